//! `reservation::Etcd` against a real etcd, which each test starts itself.
#![cfg(feature = "etcd")]

#[path = "common/authority.rs"]
mod authority;
#[path = "common/servers.rs"]
mod servers;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{Client, GetOptions};
use tenure::reservation::conformance::{self, Failure, Options};
use tenure::reservation::{Block, ConnectError, Etcd, EtcdOptions, Reservation, ReservationError};
use tokio::runtime::{Builder, Runtime};

use self::authority::{Backend, SLACK, of_the_backend, tokens, winner};
use self::servers::Control;

const TERM: Duration = Duration::from_secs(2);
const TIMEOUT: Duration = Duration::from_millis(1200);

/// One shard on a server.
struct Shard {
    server: Arc<servers::Etcd>,
    name: String,
}

impl Shard {
    fn of(server: Arc<servers::Etcd>) -> Self {
        let name = servers::unique("shard");
        Self { server, name }
    }

    fn options(&self) -> EtcdOptions {
        Etcd::options([self.server.endpoint()], &self.name)
            .term(TERM)
            .timeout(TIMEOUT)
    }

    /// The key with that end, as a client of etcd's own sees it.
    fn key(&self, end: &str) -> String {
        format!("tenure/{}/{end}", self.name)
    }

    fn port(&self) -> u16 {
        let endpoint = self.server.endpoint();
        endpoint.rsplit(':').next().unwrap().parse().unwrap()
    }
}

/// One that no test harms.
fn shared() -> Shard {
    Shard::of(servers::Etcd::shared())
}

fn own() -> Shard {
    Shard::of(Arc::new(servers::Etcd::start()))
}

impl Backend for Shard {
    type Client = Etcd;

    fn open(&self, name: &str) -> Result<Etcd, ReservationError> {
        self.options().name(name).connect().map_err(of_the_backend)
    }

    fn term(&self) -> Duration {
        TERM
    }

    fn timeout(&self) -> Duration {
        TIMEOUT
    }

    fn server(&self) -> &dyn Control {
        &*self.server
    }
}

/// Another client, behind the backend's back.
struct Intruder {
    runtime: Runtime,
    client: Client,
}

impl Intruder {
    fn at(endpoint: String) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let client = runtime.block_on(Client::connect([endpoint], None)).unwrap();
        Self { runtime, client }
    }

    fn get(&mut self, key: &str) -> Option<String> {
        let got = self.runtime.block_on(self.client.get(key, None)).unwrap();
        let value = got.kvs().first()?.value_str().unwrap();
        Some(value.to_owned())
    }

    fn put(&mut self, key: &str, value: &str) {
        let put = self.client.put(key, value, None);
        self.runtime.block_on(put).unwrap();
    }

    fn delete(&mut self, key: &str) {
        self.runtime
            .block_on(self.client.delete(key, None))
            .unwrap();
    }

    /// Revokes the lease that the key hangs on.
    fn revoke(&mut self, key: &str) {
        self.runtime.block_on(async {
            let got = self.client.get(key, None).await.unwrap();
            let lease = got.kvs().first().unwrap().lease();
            assert_ne!(lease, 0, "{key} hangs on no lease");
            self.client.lease_revoke(lease).await.unwrap();
        });
    }
}

fn intruder(shard: &Shard) -> Intruder {
    Intruder::at(shard.server.endpoint())
}

#[test]
fn all_that_every_reservation_promises_is_kept() -> Result<(), Failure> {
    let shard = shared();
    // etcd looks for leases that are over twice a second.
    conformance::run(&Options::elected(TERM).slack(SLACK).rounds(8), || {
        shard.options().connect().map_err(of_the_backend)
    })
}

#[test]
fn blocks_rise_over_restarts_of_server_and_client() {
    authority::blocks_rise_over_restarts(&own());
}

#[test]
fn a_server_that_does_not_answer_is_unavailable_until_it_does() {
    authority::a_server_that_does_not_answer_is_unavailable(&own());
}

#[test]
fn a_contender_waits_for_a_resignation_and_no_longer() {
    authority::a_contender_waits_for_a_resignation(&shared());
}

#[test]
fn a_silent_holder_keeps_the_shard_for_its_term() {
    authority::a_silent_holder_keeps_the_shard_for_its_term(&shared());
}

/// Opens clients of a shard through any port, with a term that is not over before the test.
fn through(shard: &Shard) -> impl Fn(u16) -> Etcd {
    |port| {
        Etcd::options([format!("http://127.0.0.1:{port}")], &shard.name)
            .term(Duration::from_secs(20))
            .timeout(TIMEOUT)
            .connect()
            .unwrap()
    }
}

#[test]
fn a_lost_answer_skips_tokens_and_hands_none_out_twice() {
    let shard = shared();
    authority::a_lost_answer_skips_tokens(shard.port(), through(&shard));
}

#[test]
fn who_waits_asks_rarely() {
    // Of its own, so that nothing else counts its revision up.
    let shard = own();
    authority::who_waits_asks_rarely(shard.port(), through(&shard));
}

#[test]
fn a_connection_that_falls_silent_is_replaced() {
    let shard = shared();
    authority::a_silent_connection_is_replaced(shard.port(), through(&shard));
}

#[test]
fn a_resignation_that_is_not_heard_is_made_up_for() {
    let shard = own();
    let open = || through(&shard)(shard.port());
    authority::a_resignation_is_made_up_for(shard.server(), open);
}

/// The lease of a candidate may end before it has put its key there, if it stands still meanwhile.
#[test]
fn a_lease_that_ends_before_its_use_is_replaced() {
    let shard = own();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let Intruder {
                runtime,
                mut client,
            } = intruder(&shard);
            runtime.block_on(async {
                while !over.load(Ordering::SeqCst) {
                    for lease in client.leases().await.unwrap().leases() {
                        // It may be gone by now.
                        let _ = client.lease_revoke(lease.id()).await;
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            });
        });
        let mut client = shard.open("candidate").unwrap();
        let lost: Vec<_> = (0..40)
            .filter_map(|_| client.campaign(Duration::ZERO).err())
            .collect();
        over.store(true, Ordering::SeqCst);
        assert_eq!(lost, [], "nobody else had the shard");
    });
}

#[test]
fn it_works_from_inside_a_runtime() {
    authority::it_works_from_inside_a_runtime(&shared());
}

#[test]
fn hammered_by_four_candidates_blocks_are_disjoint_and_rise() {
    authority::hammered(&own(), Duration::from_secs(8));
}

#[test]
fn who_has_lost_its_lease_or_its_key_is_told() {
    let shard = shared();
    let mut intruder = intruder(&shard);
    let leader = shard.key("leader");
    for call in 0..2 {
        for rob in [Intruder::revoke, Intruder::delete] {
            let mut holder = winner(&shard, "holder");
            holder.reserve(tokens(1)).unwrap();
            rob(&mut intruder, &leader);
            let mut next = winner(&shard, "next");
            next.reserve(tokens(1)).unwrap();
            let told = match call {
                0 => holder.keep_alive().map(drop),
                _ => holder.reserve(tokens(1)).map(drop),
            };
            assert_eq!(told, Err(ReservationError::Lost));
            // Neither does its resignation harm the next.
            holder.resign();
            next.reserve(tokens(1)).unwrap();
            next.resign();
        }
    }
}

#[test]
fn a_lease_that_ends_between_two_calls_is_told_even_if_nobody_took_the_shard() {
    let shard = shared();
    let mut holder = winner(&shard, "holder");
    intruder(&shard).revoke(&shard.key("leader"));
    assert_eq!(holder.reserve(tokens(1)), Err(ReservationError::Lost));
    assert_eq!(holder.keep_alive(), Err(ReservationError::Lost));
    holder.campaign(Duration::ZERO).unwrap();
    holder.reserve(tokens(1)).unwrap();
    holder.resign();
}

#[test]
fn a_mark_outlives_the_lease_under_which_it_was_set() {
    let shard = shared();
    let mut holder = winner(&shard, "holder");
    let last = holder.reserve(tokens(7)).unwrap().last();
    holder.resign();
    let mut intruder = intruder(&shard);
    assert_eq!(intruder.get(&shard.key("leader")), None);
    assert_eq!(intruder.get(&shard.key("mark")), Some(last.to_string()));
}

#[test]
fn a_mark_that_makes_no_sense_is_corrupt_and_left_as_it_is() {
    let shard = shared();
    let mut intruder = intruder(&shard);
    let mark = shard.key("mark");
    let mut holder = winner(&shard, "holder");
    let last = holder.reserve(tokens(100)).unwrap().last();
    for foreign in ["", "one", "-1", "+7", "007", "9223372036854775808"] {
        intruder.put(&mark, foreign);
        let answer = holder.reserve(tokens(1));
        assert!(is_corrupt(&answer), "{foreign:?}: {answer:?}");
        // Nobody begins anew on it.
        let opened = shard.options().connect().map_err(of_the_backend);
        assert!(is_corrupt(&opened), "{foreign:?}: {opened:?}");
        assert_eq!(intruder.get(&mark).as_deref(), Some(foreign));
    }
    // It fell, or went away: whoever knew it says so.
    intruder.put(&mark, "99");
    let answer = holder.reserve(tokens(1));
    assert!(is_corrupt(&answer), "{answer:?}");
    let says = |answer: Result<Block, ReservationError>, words: &str| {
        let text = answer.map(drop).unwrap_err().to_string();
        assert!(text.contains(words), "{text}");
    };
    says(answer, &format!("is 99, and was {last}"));
    intruder.delete(&mark);
    let answer = holder.reserve(tokens(1));
    assert!(is_corrupt(&answer), "{answer:?}");
    says(answer, &format!("is missing, and was {last}"));
    assert_eq!(intruder.get(&mark), None);
    // Put right by hand, above all that were handed out, it goes on.
    intruder.put(&mark, "200");
    assert!(holder.reserve(tokens(1)).unwrap().first() > last);
    holder.resign();
}

fn is_corrupt<T>(answer: &Result<T, ReservationError>) -> bool {
    matches!(answer, Err(ReservationError::Corrupt { .. }))
}

#[test]
fn the_term_that_is_told_is_the_servers() {
    let shard = shared();
    let mut holder = shard
        .options()
        .term(Duration::from_secs(7))
        .connect()
        .unwrap();
    holder.campaign(Duration::ZERO).unwrap();
    for _ in 0..3 {
        assert_eq!(holder.keep_alive(), Ok(Some(Duration::from_secs(7))));
    }
    holder.resign();
}

#[test]
fn nothing_but_the_mark_stays_behind() {
    let shard = shared();
    let mut holder = winner(&shard, "holder");
    let mut contender = shard.open("contender").unwrap();
    contender.campaign(Duration::from_millis(50)).unwrap_err();
    holder.reserve(tokens(1)).unwrap();
    contender.resign();
    holder.resign();
    let Intruder {
        runtime,
        mut client,
    } = intruder(&shard);
    let all = client.get(
        format!("tenure/{}/", shard.name),
        Some(GetOptions::new().with_prefix()),
    );
    let keys = runtime.block_on(all).unwrap();
    let keys: Vec<_> = keys
        .kvs()
        .iter()
        .map(|pair| pair.key_str().unwrap())
        .collect();
    assert_eq!(keys, [shard.key("mark")]);
}

#[test]
fn another_server_is_asked_if_one_is_silent() {
    let shard = shared();
    // It takes connections, and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    // And nobody listens there.
    let closed = "http://127.0.0.1:9".to_owned();
    let endpoints = [silent, closed, shard.server.endpoint()];
    let mut holder = Etcd::options(endpoints, &shard.name)
        .term(Duration::from_secs(20))
        .timeout(Duration::from_secs(4))
        .connect()
        .unwrap();
    // It stays with the one that answered.
    let began = Instant::now();
    holder.campaign(Duration::ZERO).unwrap();
    holder.keep_alive().unwrap();
    holder.reserve(tokens(1)).unwrap();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    holder.resign();
}

#[test]
fn options_that_cannot_work_are_refused_before_anything_is_asked() {
    let options = || Etcd::options(["http://127.0.0.1:9"], "shard");
    for term in [0, 1, 2500, 90_000_000] {
        let refused = options().term(Duration::from_millis(term)).connect();
        assert!(matches!(refused, Err(ConnectError::Term { .. })), "{term}");
    }
    let refused = options().timeout(Duration::from_secs(10)).connect();
    assert!(matches!(refused, Err(ConnectError::Timeout { .. })));
    let none: [&str; 0] = [];
    for refused in [
        options().name("").connect(),
        options().prefix("a\nb").connect(),
        Etcd::options(["http://127.0.0.1:9"], "").connect(),
        Etcd::options(none, "shard").connect(),
    ] {
        assert!(
            matches!(refused, Err(ConnectError::Name { .. })),
            "{refused:?}"
        );
    }
    let nobody = options().timeout(Duration::from_millis(200)).connect();
    let nobody = nobody.map_err(of_the_backend);
    assert!(matches!(nobody, Err(ReservationError::Unavailable { .. })));
}

#[test]
fn it_prints_no_password() {
    let secret = etcd_client::ConnectOptions::new().with_user("user", "opensesame");
    let options = shared().options().connect_options(secret);
    assert!(!format!("{options:?}").contains("opensesame"));
}
