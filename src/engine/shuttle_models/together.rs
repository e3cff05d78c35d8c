//! All that a manager does, at once: its table grows and shrinks, leases are renewed and expire, some wait and
//! some leave, some share, and a session holds two keys.

use super::*;

const SHORT: Duration = Duration::from_millis(4);

/// Those who share a key, beside [`Visits`] of those who don't.
#[derive(Clone, Default)]
struct Sharers(Arc<Plain>);

impl Sharers {
    /// Nobody is in who does not share (I1).
    fn visit(&self, world: &World, lease: Lease<'_>) -> FencingToken {
        let token = lease.token();
        self.0.fetch_add(1, PlainOrdering::SeqCst);
        assert!(lease.is_live(), "I3: the lease of token {token} is over");
        let other = world.visits.inside.load(PlainOrdering::SeqCst);
        assert_eq!(other, 0, "I1: token {other} is not shared");
        self.0.fetch_sub(1, PlainOrdering::SeqCst);
        assert_eq!(lease.release(), Ok(()), "I3: the lease ended early");
        token
    }

    fn assert_none(&self) {
        assert_eq!(self.0.load(PlainOrdering::SeqCst), 0, "I1: it is shared");
    }
}

/// A table of one bucket that a crowd of other keys makes grow.
fn crowd(world: &Arc<World>) -> JoinHandle<()> {
    world.spawn(|world| {
        let leases = [100, 101, 102, 103, 104].map(|key| world.locks.try_acquire(key, 4, LONG));
        for lease in leases {
            assert_eq!(lease.expect("nobody else's").release(), Ok(()));
        }
    })
}

/// A session of two keys that is kept alive, or not, and closed: both leases go on as long as it does.
fn keep_session(world: &Arc<World>, keys: [u64; 2]) -> JoinHandle<()> {
    let session = world.locks.session(5, 2 * SHORT).expect("in range");
    let session = session.into_owned();
    let leases = keys.map(|key| session.try_acquire(key).expect("free").into_owned());
    world.spawn(move |_| {
        let [one, other] = leases;
        if toss() {
            let kept = session.keep_alive().is_ok();
            let lived = one.is_live();
            assert!(kept || !lived, "never revived");
            // In this order: it may end in between.
            assert!(lived || !other.is_live(), "all or none");
        }
        let was_over = !one.is_live();
        let closed = session.close().is_ok();
        assert!(!(was_over && closed), "it was over");
        assert!(!one.is_live() && !other.is_live());
    })
}

/// A lease that its holder renews, releases or leaves to its deadline; those who wait for it, one of whom
/// leaves and one of whom shares; a session, and one who waits for a key of that; a crowd that makes the table
/// grow, and time, which passes: each is granted its key, in turn and never early (I1 to I5, I7).
#[test]
fn shuttle_all_at_once() {
    check(|| {
        let world = World::with(1, None, false);
        let held = world.locks.try_acquire(KEY, 1, SHORT);
        let held = held.expect("the key is free").into_owned();
        let token = held.token();
        let [first, leaver] = world.queue(LONG);
        let sharers = Sharers::default();
        let waiting = Arc::new(Plain::new(3));
        let session = keep_session(&world, [OTHER, 3]);

        let holder = world.spawn(move |_| match thread_rng().gen_range(0..3) {
            0 => held.release().map_or(at(SHORT), |()| Timestamp::ZERO),
            1 => {
                let until = held.renew(2 * SHORT).unwrap_or(at(SHORT));
                let _ = held.detach();
                until
            }
            _ => {
                let _ = held.detach();
                at(SHORT)
            }
        });
        let served = || {
            let waiting = Arc::clone(&waiting);
            move || _ = waiting.fetch_sub(1, PlainOrdering::SeqCst)
        };
        let (seen, done) = (sharers.clone(), served());
        let first = world.spawn(move |world| {
            let lease = shuttle::future::block_on(first).expect("the lease passes on");
            seen.assert_none();
            let seen_at = world.clock_reads();
            done();
            (world.visits.visit(lease), seen_at)
        });
        let leaver = thread::spawn(move || drop(leaver));
        let (seen, done) = (sharers.clone(), served());
        let sharer = world.spawn(move |world| {
            let lease = world.locks.acquire(KEY, 6, LONG).shared().wait();
            done();
            seen.visit(world, lease.expect("every waiter is granted the lease"))
        });
        let done = served();
        let next = world.spawn(move |world| {
            let lease = world.locks.acquire(OTHER, 7, LONG).wait();
            done();
            let lease = lease.expect("the session ends");
            assert!(lease.is_live(), "I3");
            assert_eq!(lease.release(), Ok(()), "I3");
        });
        let crowd = crowd(&world);
        // It is all there is of a driver: what the last of them has left to be swept is swept, too.
        let left = Arc::clone(&waiting);
        let time = world.spawn(move |world| {
            for _ in 0..3 {
                world.clock.advance(SHORT);
                world.locks.advance();
            }
            while left.load(PlainOrdering::SeqCst) > 0 {
                thread::yield_now();
                world.locks.advance();
            }
        });

        let until = join(holder);
        let (first, from) = join(first);
        assert!(
            from >= until,
            "I5: granted at {from:?}, promised until {until:?}"
        );
        assert!(first > token && join(sharer) > first, "I2, and in turn");
        join(leaver);
        join(session);
        join(next);
        join(crowd);
        join(time);
        world.settle();
        assert!(world.engine.floor() > 0, "it has not moved");
    });
}

/// With a driver, and nobody who looks: a session ends, whose key some wait for, and one of them leaves; another
/// key's lease expires, for which some wait who want one permit of two. All that is over passes on by itself.
#[test]
fn shuttle_all_at_once_is_driven() {
    check(|| {
        let world = World::with(1, None, true);
        let session = world.locks.session(5, SHORT).expect("in range");
        let session = session.into_owned();
        let lease = session.try_acquire(KEY).expect("free").into_owned();
        let [first, leaver] = world.queue(LONG);
        let other = world.locks.try_acquire(OTHER, 8, SHORT).expect("free");
        let _ = other.detach();

        let first = world.spawn(|world| world.go_on(first));
        let leaver = thread::spawn(move || drop(leaver));
        let second = world.spawn(|world| world.wait(11));
        let inside = Arc::new(Plain::new(0));
        let permits = [6, 7, 9].map(|owner| {
            let inside = Arc::clone(&inside);
            world.spawn(move |world| {
                let permit = world.locks.acquire(OTHER, owner, LONG).permit(2);
                let lease = permit.wait().expect("every waiter is granted a permit");
                let others = inside.fetch_add(1, PlainOrdering::SeqCst);
                assert!(others < 2, "more than there are permits");
                assert!(lease.is_live(), "I3");
                inside.fetch_sub(1, PlainOrdering::SeqCst);
                assert_eq!(lease.release(), Ok(()), "I3");
            })
        });
        let crowd = crowd(&world);
        let token = lease.token();
        let keeper = world.spawn(move |_| {
            let kept = toss() && session.keep_alive().is_ok();
            (kept, session, lease)
        });
        world.pass(SHORT);
        let (kept, session, lease) = join(keeper);
        if toss() {
            assert!(session.close().is_ok() <= kept, "its time was over");
        }
        assert!(
            !lease.is_live(),
            "kept alive at the very beginning, or not at all"
        );
        let firsts = [join(first), join(second)];
        assert!(firsts.is_sorted() && firsts[0] > token, "I2");
        join(leaver);
        permits.into_iter().for_each(join);
        join(crowd);
        world.settle();
        assert!(world.engine.floor() > 0, "it has not moved");
    });
}
