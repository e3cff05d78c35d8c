//! Weighs one contender: see [`weights`]. `versus` runs it.

// Of what `versus` shares with it, it needs little.
#![allow(dead_code, unused_imports)]
// Counts become ratios here; none of them comes near 2^52.
#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

mod churn;
mod contenders;
mod keys;
mod options;
mod tasks;
mod weights;

use std::alloc::System;
use std::error::Error;
use std::time::{Duration, Instant};
use std::{env, fs};

use cap::Cap;
use tenure_benches::measure::Kind;

use churn::Churn;
use contenders::{LeaseTable, Visit, each, granted};
use weights::{Bytes, Load, Order, Weight};

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// An entry kept for each key grows without bound. Here it ends.
const MOST_GROWTH: u64 = 2 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let line = env::args().nth(1).ok_or("weigh is run by versus")?;
    let mut scales = Scales {
        order: serde_json::from_str(&line)?,
        weight: None,
    };
    each(&mut scales);
    let weight = scales.weight.ok_or("there is no such contender")?;
    println!("{}", serde_json::to_string(&weight)?);
    Ok(())
}

struct Scales {
    order: Order,
    weight: Option<Weight>,
}

impl Visit for Scales {
    fn table<T: LeaseTable>(&mut self, name: &'static str, _: Kind, new: impl Fn() -> T + 'static) {
        if name == self.order.contender {
            self.weight = Some(match self.order.load {
                Load::Held { leases } => held(leases, new),
                Load::Churn {
                    leases,
                    keys,
                    seconds,
                } => churn(leases, keys, Duration::from_secs_f64(seconds), new),
            });
        }
    }
}

fn held<T: LeaseTable>(leases: u64, new: impl Fn() -> T) -> Weight {
    let before = now();
    let table = new();
    for key in 1..=leases {
        table.keep(granted(&table, key));
    }
    let start = beyond(before);
    Weight {
        start,
        end: start,
        keys: 0,
    }
}

fn churn<T: LeaseTable>(leases: u64, keys: u64, length: Duration, new: impl Fn() -> T) -> Weight {
    /// Between two looks at the clock and at memory.
    const CHUNK: u64 = 1 << 16;
    let earlier = now();
    let table = new();
    // What the holders keep in their hands is not the table's.
    let own = leases * size_of::<Option<T::Lease<'_>>>() as u64;
    let mut churn = Churn::new(&table, leases);
    let before = Bytes {
        resident: earlier.resident.map(|bytes| bytes + own),
        allocated: earlier.allocated + own,
    };
    churn.fill();
    let start = beyond(before);
    let begun = Instant::now();
    let (mut end, mut done) = (start, 0);
    while done < keys && begun.elapsed() < length && end.allocated < MOST_GROWTH {
        let chunk = CHUNK.min(keys - done);
        for _ in 0..chunk {
            churn.next();
        }
        done += chunk;
        end = beyond(before);
        if end.resident.is_some_and(|bytes| bytes >= MOST_GROWTH) {
            break;
        }
    }
    Weight {
        start,
        end,
        keys: done,
    }
}

/// What the process takes.
fn now() -> Bytes {
    Bytes {
        resident: resident_bytes(),
        allocated: ALLOCATOR.allocated() as u64,
    }
}

/// What it has taken since.
fn beyond(before: Bytes) -> Bytes {
    let now = now();
    let resident = now.resident.zip(before.resident);
    Bytes {
        resident: resident.map(|(now, before)| now.saturating_sub(before)),
        allocated: now.allocated.saturating_sub(before.allocated),
    }
}

/// The resident memory of this process, where the system tells it as Linux does.
fn resident_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}
