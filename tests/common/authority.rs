//! What every backend with authority and a server is put through, whichever it is.
//!
//! A test file has to include `servers.rs` as well; it brings a [`Backend`], and calls the scenarios.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tenure::reservation::{Block, ConnectError, Reservation, ReservationError};

use super::servers::Control;

/// A server, one shard on it, and how to open clients of that shard.
pub(crate) trait Backend: Sync {
    type Client: Reservation + Debug;

    /// Opens a client, which others know by that name.
    fn open(&self, name: &str) -> Result<Self::Client, ReservationError>;

    /// How long its clients' authority lasts.
    fn term(&self) -> Duration;

    /// The time limit of a call.
    fn timeout(&self) -> Duration;

    fn server(&self) -> &dyn Control;
}

/// The backend's own error, of an attempt to connect that can fail for no other reason.
pub(crate) fn of_the_backend(error: ConnectError) -> ReservationError {
    match error {
        ConnectError::Reservation(error) => error,
        other => panic!("{other}"),
    }
}

/// A busy machine may be that late.
pub(crate) const SLACK: Duration = Duration::from_secs(4);

pub(crate) fn tokens(count: u64) -> NonZeroU64 {
    NonZeroU64::new(count).unwrap()
}

/// A client that has won the shard.
pub(crate) fn winner<B: Backend>(backend: &B, name: &str) -> B::Client {
    let mut client = backend.open(name).unwrap();
    client.campaign(backend.term() + SLACK).unwrap();
    client
}

/// Blocks stay above those before, when the server and the clients are killed (I2).
pub(crate) fn blocks_rise_over_restarts<B: Backend>(backend: &B) {
    let mut last = 0;
    let mut above = |block: Block| {
        assert!(block.first().get() > last, "{block:?} after {last}");
        last = block.last().get();
    };
    let mut client = winner(backend, "first");
    above(client.reserve(tokens(10)).unwrap());
    for _ in 0..2 {
        backend.server().kill();
        backend.server().restart();
        // The same client, over a new connection, with the authority it had.
        above(client.reserve(tokens(10)).unwrap());
        above(client.reserve(tokens(1)).unwrap());
        client.keep_alive().unwrap();
    }
    drop(client);
    let mut client = winner(backend, "second");
    above(client.reserve(tokens(1)).unwrap());
    client.resign();
}

/// While the server is down or stopped, calls say so in time, and afterwards they work again.
pub(crate) fn a_server_that_does_not_answer_is_unavailable<B: Backend>(backend: &B) {
    let mut client = winner(backend, "holder");
    let mut contender = backend.open("contender").unwrap();
    let mut last = client.reserve(tokens(10)).unwrap().last().get();
    for killed in [true, false] {
        if killed {
            backend.server().kill();
        } else {
            backend.server().pause();
        }
        let limit = backend.timeout() + SLACK / 2;
        within(limit, || unavailable(&client.reserve(tokens(1))));
        within(limit, || unavailable(&client.keep_alive()));
        within(limit, || unavailable(&contender.campaign(Duration::ZERO)));
        within(limit, || unavailable(&backend.open("another")));
        if killed {
            backend.server().restart();
        } else {
            backend.server().resume();
        }
        // It may have lost its authority meanwhile, which is what it has to be told then.
        let block = client.reserve(tokens(1)).or_else(|error| {
            assert_eq!(error, ReservationError::Lost);
            client.campaign(backend.term() + SLACK)?;
            client.reserve(tokens(1))
        });
        let block = block.unwrap();
        assert!(block.first().get() > last, "{block:?} after {last}");
        last = block.last().get();
    }
    client.resign();
    contender.campaign(SLACK).unwrap();
    contender.resign();
}

fn within<T>(limit: Duration, call: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let answer = call();
    let took = began.elapsed();
    assert!(took <= limit, "it took {took:?}, of {limit:?}");
    answer
}

fn unavailable<T: Debug>(answer: &Result<T, ReservationError>) {
    assert!(
        matches!(answer, Err(ReservationError::Unavailable { .. })),
        "{answer:?}"
    );
}

/// Of two contenders one is handed blocks, and the other once that one resigns.
pub(crate) fn a_contender_waits_for_a_resignation<B: Backend>(backend: &B) {
    let mut holder = winner(backend, "holder");
    let mut contender = backend.open("contender").unwrap();
    let held = ReservationError::Held {
        holder: "holder".to_owned(),
    };
    assert_eq!(contender.campaign(Duration::ZERO), Err(held.clone()));
    assert_eq!(contender.reserve(tokens(1)), Err(ReservationError::Lost));
    assert_eq!(contender.keep_alive(), Err(ReservationError::Lost));
    let began = Instant::now();
    let patience = Duration::from_millis(200);
    assert_eq!(contender.campaign(patience), Err(held));
    assert!(began.elapsed() >= patience);

    let mut waits = vec![];
    for _ in 0..3 {
        waits.push(hand_over(&mut holder, &mut contender));
        std::mem::swap(&mut holder, &mut contender);
    }
    holder.resign();
    // They are told, and don't find out by looking: once a second, and so 0.7 s after it.
    let soonest = waits.iter().min().unwrap();
    assert!(*soonest < Duration::from_millis(500), "{waits:?}");
}

/// How long the contender waits from the holder's resignation on.
fn hand_over<R: Reservation>(holder: &mut R, contender: &mut R) -> Duration {
    let before = holder.reserve(tokens(5)).unwrap();
    let (resigned, won) = thread::scope(|scope| {
        let waits = scope.spawn(|| {
            contender.campaign(Duration::from_secs(60)).unwrap();
            Instant::now()
        });
        thread::sleep(Duration::from_millis(300));
        holder.keep_alive().unwrap();
        let resigned = Instant::now();
        holder.resign();
        (resigned, waits.join().unwrap())
    });
    assert_eq!(holder.reserve(tokens(1)), Err(ReservationError::Lost));
    let after = contender.reserve(tokens(1)).unwrap();
    assert!(after.first() > before.last());
    won.saturating_duration_since(resigned)
}

/// Who waits for the shard is told of its end, and does not ask again and again.
///
/// `open` opens a client that reaches the server through that port.
pub(crate) fn who_waits_asks_rarely<R: Reservation + Debug>(server: u16, open: impl Fn(u16) -> R) {
    // One that was just resigned by another: news of that is none of this one's.
    let mut first = open(server);
    let mut holder = open(server);
    first.campaign(SLACK).unwrap();
    first.resign();
    holder.campaign(SLACK).unwrap();
    let wire = Wire::to(server);
    let mut contender = open(wire.port);
    let patience = Duration::from_millis(1500);
    contender.campaign(patience).unwrap_err();
    let asked = wire.asked.load(Ordering::SeqCst);
    assert!(asked < 40, "{asked} times in {patience:?}");
    holder.resign();
}

/// A connection that has fallen silent is given up, and the next call has another.
///
/// `open` opens a client that reaches the server through that port.
pub(crate) fn a_silent_connection_is_replaced<R: Reservation + Debug>(
    server: u16,
    open: impl Fn(u16) -> R,
) {
    let wire = Wire::to(server);
    let mut client = open(wire.port);
    client.campaign(SLACK).unwrap();
    let before = client.reserve(tokens(10)).unwrap();
    // For good, though connections that are made from now on work.
    wire.silence();
    let mut answer = client.reserve(tokens(10));
    if answer.is_err() {
        unavailable(&answer);
        answer = client.reserve(tokens(10));
    }
    assert!(answer.unwrap().first() > before.last());
    client.keep_alive().unwrap();
    client.resign();
}

/// A resignation that the server has not heard is made up for before the next campaign.
///
/// `open` opens clients whose term is not over meanwhile.
pub(crate) fn a_resignation_is_made_up_for<R: Reservation + Debug>(
    server: &dyn Control,
    open: impl Fn() -> R,
) {
    let mut client = open();
    client.campaign(SLACK).unwrap();
    let before = client.reserve(tokens(10)).unwrap();
    server.kill();
    client.resign();
    server.restart();
    client.campaign(Duration::ZERO).unwrap();
    assert!(client.reserve(tokens(1)).unwrap().first() > before.last());
    client.resign();
    open().campaign(Duration::ZERO).unwrap();
}

/// A holder that falls silent keeps the shard until its term is over, and not for much longer.
pub(crate) fn a_silent_holder_keeps_the_shard_for_its_term<B: Backend>(backend: &B) {
    let mut holder = winner(backend, "holder");
    let mut contender = backend.open("contender").unwrap();
    thread::sleep(backend.term() / 2);
    let kept = Instant::now();
    let term = holder.keep_alive().unwrap().unwrap();
    contender.campaign(Duration::from_secs(60)).unwrap();
    let waited = kept.elapsed();
    assert!(waited >= term, "after {waited:?} of {term:?}");
    assert!(waited <= term + SLACK, "after {waited:?}");
    // It is told, by whichever it calls first.
    assert_eq!(holder.reserve(tokens(1)), Err(ReservationError::Lost));
    assert_eq!(holder.keep_alive(), Err(ReservationError::Lost));
    contender.reserve(tokens(1)).unwrap();
    contender.resign();
}

/// An answer that is lost on its way leaves tokens unused, and none is handed out twice (I2).
///
/// `open` opens a client that reaches the server through that port.
pub(crate) fn a_lost_answer_skips_tokens<R: Reservation + Debug>(
    server: u16,
    open: impl Fn(u16) -> R,
) {
    let wire = Wire::to(server);
    let mut client = open(wire.port);
    client.campaign(SLACK).unwrap();
    let before = client.reserve(tokens(10)).unwrap();
    wire.deaf.store(true, Ordering::SeqCst);
    unavailable(&client.reserve(tokens(10)));
    wire.deaf.store(false, Ordering::SeqCst);
    wire.cut();
    let after = client.reserve(tokens(10)).unwrap();
    assert!(
        after.first().get() > before.last().get() + 10,
        "the request whose answer was lost took no tokens: {before:?}, {after:?}"
    );
    client.resign();
    // A campaign that was won without the candidate's being told is its own at the next try.
    wire.deaf.store(true, Ordering::SeqCst);
    unavailable(&client.campaign(Duration::ZERO));
    wire.deaf.store(false, Ordering::SeqCst);
    wire.cut();
    let began = Instant::now();
    client.campaign(Duration::ZERO).unwrap();
    assert!(client.reserve(tokens(1)).unwrap().first() > after.last());
    assert!(began.elapsed() < SLACK);
    client.resign();
}

/// From inside runtimes of both kinds, calls work and don't panic; nor do drops.
pub(crate) fn it_works_from_inside_a_runtime<B: Backend>(backend: &B) {
    let mut last = 0;
    for mut kind in [
        tokio::runtime::Builder::new_current_thread(),
        tokio::runtime::Builder::new_multi_thread(),
    ] {
        let runtime = kind.build().unwrap();
        let block = runtime.block_on(async {
            let mut client = winner(backend, "inside");
            client.keep_alive().unwrap();
            let block = client.reserve(tokens(3)).unwrap();
            client.resign();
            block
        });
        assert!(block.first().get() > last);
        last = block.last().get();
    }
}

/// Candidates that resign, crash and fall silent at random, for so long at least, on a server that is killed
/// and stopped meanwhile: blocks are disjoint and rise (I2), and are handed to nobody while another has been
/// told of a term.
pub(crate) fn hammered<B: Backend>(backend: &B, time: Duration) {
    let witness = Witness::default();
    let end = Instant::now() + time;
    thread::scope(|scope| {
        let witness = &witness;
        for number in 1..=4 {
            scope.spawn(move || contend(backend, witness, number, end));
        }
        thread::sleep(time / 3);
        backend.server().kill();
        backend.server().restart();
        thread::sleep(time / 6);
        backend.server().pause();
        thread::sleep(backend.timeout());
        backend.server().resume();
    });
    let (wins, blocks) = witness.counts();
    println!("{blocks} blocks, {wins} terms");
    assert!(witness.has_seen_enough(), "{blocks} blocks, {wins} terms");
}

/// What all candidates were told.
#[derive(Default)]
struct Witness {
    told: Mutex<Told>,
    wins: AtomicU64,
}

#[derive(Default)]
struct Told {
    blocks: BTreeMap<u64, u64>,
    /// Of the last term that was told: whose, its number, and its end. Counted from before the call.
    term: Option<(u64, u64, Instant)>,
}

impl Witness {
    /// Wins and blocks so far.
    fn counts(&self) -> (u64, usize) {
        let blocks = self.told.lock().unwrap().blocks.len();
        (self.wins.load(Ordering::Relaxed), blocks)
    }

    fn has_seen_enough(&self) -> bool {
        let (wins, blocks) = self.counts();
        wins >= 10 && blocks >= 50
    }

    /// Until `end`, and on while too little has happened: the server's disk may be a slow one.
    fn wants_more(&self, end: Instant) -> bool {
        let now = Instant::now();
        now < end || (now < end + Duration::from_secs(60) && !self.has_seen_enough())
    }
}

impl Told {
    fn rival(&self, number: u64) -> Option<(u64, u64, Instant)> {
        self.term
            .filter(|(other, _, until)| *other != number && Instant::now() < *until)
    }
}

fn contend<B: Backend>(backend: &B, witness: &Witness, number: u64, end: Instant) {
    let mut random = random_from(number);
    let mut client = None;
    while witness.wants_more(end) {
        let Some(open) = &mut client else {
            client = backend.open(&format!("number {number}")).ok();
            continue;
        };
        if open.campaign(Duration::from_millis(random(300))).is_err() {
            continue;
        }
        let win = witness.wins.fetch_add(1, Ordering::Relaxed);
        for _ in 0..=random(8) {
            if random(3) == 0 && !keep(open, witness, number, win) {
                break;
            }
            if !take(open, witness, number, 1 + random(1000)) {
                break;
            }
        }
        match random(12) {
            // Silent, for longer than its term; what it reserves then is looked at like all else.
            0 => {
                thread::sleep(backend.term() + Duration::from_millis(random(1000)));
                take(open, witness, number, 1);
            }
            // As a crash: nobody resigns.
            1 => client = None,
            _ => {
                let mut told = witness.told.lock().unwrap();
                if told.term.is_some_and(|(other, ..)| other == number) {
                    told.term = None;
                }
                drop(told);
                open.resign();
            }
        }
    }
    if let Some(mut open) = client {
        open.resign();
    }
}

fn keep(client: &mut impl Reservation, witness: &Witness, number: u64, win: u64) -> bool {
    let began = Instant::now();
    let Ok(term) = client.keep_alive() else {
        return false;
    };
    let until = began + term.unwrap();
    let mut told = witness.told.lock().unwrap();
    if Instant::now() < until {
        let rival = told.rival(number);
        assert_eq!(rival, None, "number {number} was told of a term as well");
        told.term = Some((number, win, until));
    }
    true
}

fn take(client: &mut impl Reservation, witness: &Witness, number: u64, count: u64) -> bool {
    let (highest, before) = {
        let told = witness.told.lock().unwrap();
        let highest = told.blocks.last_key_value().map_or(0, |(_, last)| *last);
        (highest, told.rival(number))
    };
    let Ok(block) = client.reserve(tokens(count)) else {
        return false;
    };
    let (first, last) = (block.first().get(), block.last().get());
    let mut told = witness.told.lock().unwrap();
    assert_eq!(last - first + 1, count);
    assert!(first > highest, "{block:?} came after {highest}");
    let below = told.blocks.range(..=last).next_back();
    assert!(
        below.is_none_or(|(_, end)| *end < first),
        "{block:?} and {below:?}"
    );
    told.blocks.insert(first, last);
    let after = told.rival(number);
    if let (Some((other, win, _)), Some((same, still, _))) = (before, after) {
        assert!(
            other != same || win != still,
            "{block:?} went to number {number}, and number {other} had the shard all the while"
        );
    }
    true
}

/// Numbers below a bound, from a seed.
fn random_from(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |bound| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    }
}

/// A wire to a server: what clients send always arrives, and answers only while it is not deaf.
pub(crate) struct Wire {
    pub(crate) port: u16,
    pub(crate) deaf: Arc<AtomicBool>,
    /// How often something came from clients, requests that come together counted once.
    asked: Arc<AtomicU64>,
    open: Arc<Mutex<Vec<Connection>>>,
}

struct Connection {
    /// The client's end.
    client: TcpStream,
    /// Answers are kept from it.
    silent: Arc<AtomicBool>,
}

impl Wire {
    pub(crate) fn to(server: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let wire = Self {
            port: listener.local_addr().unwrap().port(),
            deaf: Arc::default(),
            asked: Arc::default(),
            open: Arc::default(),
        };
        let (deaf, open) = (Arc::clone(&wire.deaf), Arc::clone(&wire.open));
        let asked = Arc::clone(&wire.asked);
        // Ends with the test's process.
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).unwrap();
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let silent = Arc::new(AtomicBool::new(false));
                open.lock().unwrap().push(Connection {
                    client: client.try_clone().unwrap(),
                    silent: Arc::clone(&silent),
                });
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let asked = Arc::clone(&asked);
                thread::spawn(move || questions(from, to, &asked));
                let deaf = Arc::clone(&deaf);
                thread::spawn(move || answers(server, client, [&deaf, &silent]));
            }
        });
        wire
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        for connection in self.open.lock().unwrap().drain(..) {
            // It may have ended already.
            let _ = connection.client.shutdown(Shutdown::Both);
        }
    }

    /// No answer comes through any connection that there is now.
    fn silence(&self) {
        for connection in &*self.open.lock().unwrap() {
            connection.silent.store(true, Ordering::SeqCst);
        }
    }
}

fn questions(mut client: TcpStream, mut server: TcpStream, asked: &AtomicU64) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        asked.fetch_add(1, Ordering::SeqCst);
        if server.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = server.shutdown(Shutdown::Write);
}

fn answers(mut server: TcpStream, mut client: TcpStream, lost: [&AtomicBool; 2]) {
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = server.read(&mut buffer) {
        let lost = lost.iter().any(|lost| lost.load(Ordering::SeqCst));
        if !lost && client.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
}
