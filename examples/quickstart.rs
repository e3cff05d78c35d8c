//! One lease, and a resource that a late writer can't spoil.

use std::{error::Error, time::Duration};

use tenure::{Fenced, LockManager};

fn main() -> Result<(), Box<dyn Error>> {
    let (locks, ttl) = (LockManager::new(), Duration::from_secs(5));
    let ledger = Fenced::new(vec![]);
    let first = locks.try_acquire("order/42", 1, ttl)?.detach(); // worker 1, then it stalls
    assert!(locks.try_acquire("order/42", 2, ttl).is_err()); // worker 2 has to wait
    locks.revoke("order/42")?; // or five seconds pass
    let second = locks.try_acquire("order/42", 2, ttl)?; // a greater token
    ledger.write(second.token(), |rows| rows.push("paid by 2"))?;
    let late = ledger.write(first, |rows| rows.push("paid by 1")); // worker 1 wakes up
    println!("{:?}, ledger: {:?}", late, ledger.read(Clone::clone));
    Ok(second.release()?)
}
