//! A lock server whose holders are remote: they have no guard, only the token of their grant.
//!
//! Requests and answers would travel over a network, where an answer may be lost and a request
//! repeated or late. The token in every request is what makes that harmless.

use std::error::Error;
use std::time::Duration;

use tenure::{AcquireError, FencingToken, LockManager, ManualClock, OwnerId, RenewError};

const TTL: Duration = Duration::from_secs(10);

/// What a client sends.
#[derive(Clone, Copy, Debug)]
enum Request {
    Acquire {
        client: u64,
    },
    Renew {
        token: FencingToken,
    },
    Release {
        token: FencingToken,
    },
    /// Sent by a resource before it trusts a token that it hasn't seen yet.
    Validate {
        token: FencingToken,
    },
}

/// What it gets back.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Granted {
        token: FencingToken,
    },
    Busy {
        retry_after: Duration,
    },
    Done,
    /// The lease is over: stop writing, acquire again.
    Lost,
    Refused,
}

struct Server {
    locks: LockManager,
}

impl Server {
    fn handle(&self, key: &str, request: Request) -> Answer {
        match request {
            Request::Acquire { client } => match self.locks.try_acquire(key, client, TTL) {
                Ok(lease) => Answer::Granted {
                    token: lease.detach(),
                },
                // The same client again: it was granted the lease, and never heard of it.
                Err(AcquireError::Held { owner, token, .. }) if owner == OwnerId(client) => {
                    Answer::Granted { token }
                }
                Err(AcquireError::Held { remaining, .. }) => Answer::Busy {
                    retry_after: remaining,
                },
                Err(_) => Answer::Refused,
            },
            Request::Renew { token } => match self.locks.renew(key, token, TTL) {
                Ok(_deadline) => Answer::Done,
                Err(RenewError::Expired { .. }) => Answer::Lost,
                Err(_) => Answer::Refused,
            },
            // A release that comes twice or late touches nobody else's lease.
            Request::Release { token } => match self.locks.release(key, token) {
                Ok(()) => Answer::Done,
                Err(_) => Answer::Lost,
            },
            Request::Validate { token } => match self.locks.validate(key, token) {
                Ok(_holder) => Answer::Done,
                Err(_) => Answer::Lost,
            },
        }
    }

    fn tell(&self, request: Request) -> Answer {
        let answer = self.handle("shard/7", request);
        println!("{request:?} -> {answer:?}");
        answer
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // By hand, so that this program has no need to sleep; a server keeps the default clock.
    let clock = ManualClock::new();
    let locks = LockManager::builder()
        .clock(clock.clone())
        .driver(false)
        .build()?;
    let server = Server { locks };

    let Answer::Granted { token: first } = server.tell(Request::Acquire { client: 1 }) else {
        return Err("nobody holds the key yet".into());
    };
    println!("-- the answer is lost, and the client asks again");
    server.tell(Request::Acquire { client: 1 });
    if let Answer::Busy { retry_after } = server.tell(Request::Acquire { client: 2 }) {
        println!("-- client 2 comes back within {retry_after:?}");
    }

    println!("-- the client renews after 8 s, then stalls");
    clock.advance(Duration::from_secs(8));
    server.tell(Request::Renew { token: first });
    clock.advance(Duration::from_secs(10));
    server.locks.advance();
    server.tell(Request::Acquire { client: 2 });

    println!("-- it wakes up with its old token");
    server.tell(Request::Validate { token: first });
    server.tell(Request::Renew { token: first });
    server.tell(Request::Release { token: first });

    for holder in server.locks.iter() {
        let (owner, token) = (holder.owner, holder.token);
        println!(
            "-- held by client {owner}, token {token}, for {:?}",
            holder.remaining
        );
    }
    println!(
        "-- the operator evicts the holder: {:?}",
        server.locks.revoke("shard/7")?
    );
    server.tell(Request::Acquire { client: 3 });
    Ok(())
}
