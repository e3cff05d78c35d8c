//! Real servers for tests: etcd, PostgreSQL and Redis, each on free loopback ports, with its data in a
//! temporary directory of its own.
//!
//! ```text
//! let server = Postgres::start();      // answers when this returns; gone when it is dropped
//! connect(&server.config());
//! server.kill();                       // SIGKILL, to it and to its children
//! server.restart();                    // the same data, the same port
//! server.pause(); server.resume();     // SIGSTOP, SIGCONT
//! ```
//!
//! `Postgres::shared()` and its like are for tests that harm nothing: they use the server that
//! `TENURE_TEST_POSTGRES`, `TENURE_TEST_ETCD` or `TENURE_TEST_REDIS` names, and where none is named, one
//! that is started for as long as any test of this process uses it. Others use such a server at the same
//! time: take names from [`unique`].
//!
//! No server outlives its test, not even one that is killed: beside each server runs a shell that waits
//! for the end of a pipe, which comes when the test's process is gone, and then kills the server.
#![allow(
    dead_code,
    reason = "each test that includes this file uses a part of it"
)]

use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// A server that does not answer by then never will.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at a server that starts.
const LOOK: Duration = Duration::from_millis(10);
/// Somebody else may take a port between our choice and the server's.
const ATTEMPTS: u32 = 5;
/// Below the ports that Linux gives to outgoing connections: one of those could take the port of a server
/// that is down for a moment.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// A name that no other test uses, in this run or in another: letters, digits and underscores.
pub(crate) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros();
    format!("{prefix}_{}_{now}_{next}", std::process::id())
}

/// An etcd of one node.
#[derive(Debug)]
pub(crate) struct Etcd(Server);

impl Etcd {
    /// Starts one of one's own.
    pub(crate) fn start() -> Self {
        Self(Server::start(Kind::Etcd))
    }

    /// The one that is there for everybody; never killed.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Etcd>> = Mutex::new(Weak::new());
        shared(&SHARED, || Self(Server::named_or_started(Kind::Etcd)))
    }

    /// Where clients find it: `http://127.0.0.1:…`.
    pub(crate) fn endpoint(&self) -> String {
        self.0.address()
    }
}

/// A PostgreSQL cluster with one database.
#[derive(Debug)]
pub(crate) struct Postgres(Server);

impl Postgres {
    /// Starts one of one's own.
    pub(crate) fn start() -> Self {
        Self(Server::start(Kind::Postgres))
    }

    /// The one that is there for everybody; never killed.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
        shared(&SHARED, || Self(Server::named_or_started(Kind::Postgres)))
    }

    /// A connection string, as `tokio_postgres::connect` and `str::parse::<tokio_postgres::Config>` take it.
    pub(crate) fn config(&self) -> String {
        self.0.address()
    }
}

/// A Redis that logs every write to a file, so that it has them all when it is started again.
#[derive(Debug)]
pub(crate) struct Redis(Server);

impl Redis {
    /// Starts one of one's own.
    pub(crate) fn start() -> Self {
        Self(Server::start(Kind::Redis))
    }

    /// The one that is there for everybody; never killed.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Redis>> = Mutex::new(Weak::new());
        shared(&SHARED, || Self(Server::named_or_started(Kind::Redis)))
    }

    /// Where clients find it: `redis://127.0.0.1:…/`.
    pub(crate) fn url(&self) -> String {
        self.0.address()
    }
}

/// What can be done to any of them.
pub(crate) trait Control: Sync {
    /// Ends it with SIGKILL, and its children; returns when the server is gone.
    fn kill(&self);

    /// Starts it again on the same data and port, and waits until it answers. Kills it first if it runs.
    fn restart(&self);

    /// Stops it where it stands, and its children, with SIGSTOP: connections stay and nothing answers.
    fn pause(&self);

    /// Lets it go on, with SIGCONT.
    fn resume(&self);
}

macro_rules! controls {
    ($($server:ident)*) => {$(
        impl Control for $server {
            fn kill(&self) {
                self.0.kill();
            }

            fn restart(&self) {
                self.0.restart();
            }

            fn pause(&self) {
                self.0.signal(Signal::STOP);
            }

            fn resume(&self) {
                self.0.signal(Signal::CONT);
            }
        }
    )*};
}

controls!(Etcd Postgres Redis);

fn shared<T>(slot: &Mutex<Weak<T>>, start: impl FnOnce() -> T) -> Arc<T> {
    // Under the lock: who comes second waits for the server that the first one starts.
    let mut slot = locked(slot);
    slot.upgrade().unwrap_or_else(|| {
        let server = Arc::new(start());
        *slot = Arc::downgrade(&server);
        server
    })
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed says so itself; the others need not fail after it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Etcd,
    Postgres,
    Redis,
}

impl Kind {
    fn variable(self) -> &'static str {
        match self {
            Self::Etcd => "TENURE_TEST_ETCD",
            Self::Postgres => "TENURE_TEST_POSTGRES",
            Self::Redis => "TENURE_TEST_REDIS",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Etcd => "etcd-server",
            Self::Postgres => "postgresql",
            Self::Redis => "redis-server",
        }
    }

    fn address(self, port: u16) -> String {
        match self {
            Self::Etcd => format!("http://127.0.0.1:{port}"),
            Self::Postgres => {
                format!("host=127.0.0.1 port={port} user=postgres dbname=postgres")
            }
            Self::Redis => format!("redis://127.0.0.1:{port}/"),
        }
    }

    /// The program of that name; a missing one fails the test and says what to install.
    fn program(self, name: &str) -> PathBuf {
        let path = env::var_os("PATH").unwrap_or_default();
        let mut directories: Vec<PathBuf> = env::split_paths(&path).collect();
        if self == Self::Postgres {
            // Debian keeps its programs out of PATH, by version. initdb and postgres must be of the same.
            let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
                .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
                .unwrap_or_default();
            let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
            versions.sort_by_key(|path| std::cmp::Reverse(number(path)));
            directories.splice(0..0, versions.iter().map(|path| path.join("bin")));
        }
        directories
            .into_iter()
            .map(|directory| directory.join(name))
            .find(|program| program.is_file())
            .unwrap_or_else(|| {
                panic!(
                    "{name} was not found, and this test needs it: install it with `apt-get install {}`",
                    self.package()
                )
            })
    }

    /// Makes what a server needs to be there before its first start.
    fn prepare(self, directory: &Path) {
        if self != Self::Postgres {
            return;
        }
        if let Some((user, group)) = user_of_postgres() {
            std::os::unix::fs::chown(directory, Some(user), Some(group)).unwrap_or_else(|error| {
                panic!("giving {} to postgres: {error}", directory.display())
            });
        }
        let mut initdb = self.command("initdb", directory);
        initdb
            .arg("--pgdata")
            .arg(directory.join("data"))
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=postgres",
                "--encoding=UTF8",
            ])
            .args(["--no-locale", "--no-instructions"]);
        let output = initdb
            .output()
            .unwrap_or_else(|error| panic!("{initdb:?}: {error}"));
        assert!(
            output.status.success(),
            "{initdb:?}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }

    /// The server itself, in the foreground. `ports` are one that clients use, and one for whatever else.
    fn server(self, directory: &Path, ports: [u16; 2]) -> Command {
        let data = directory.join("data");
        match self {
            Self::Etcd => {
                let [client, peer] = ports.map(|port| format!("http://127.0.0.1:{port}"));
                let mut command = self.command("etcd", directory);
                command
                    .arg("--data-dir")
                    .arg(data)
                    .args(["--name", "test", "--initial-cluster-token", &client])
                    .args(["--listen-client-urls", &client])
                    .args(["--advertise-client-urls", &client])
                    .args(["--listen-peer-urls", &peer])
                    .args(["--initial-advertise-peer-urls", &peer])
                    .args(["--initial-cluster", &format!("test={peer}")])
                    // A single node elects itself after one of these; leases are not counted in them.
                    .args(["--heartbeat-interval", "10", "--election-timeout", "100"]);
                command
            }
            Self::Postgres => {
                let mut command = self.command("postgres", directory);
                command.arg("-D").arg(data);
                let port = format!("port={}", ports[0]);
                // What a killed server has written is with the system already: fsync only guards against
                // the machine's own end, which no test brings about.
                for setting in [
                    port.as_str(),
                    "listen_addresses=127.0.0.1",
                    "unix_socket_directories=",
                    "fsync=off",
                    "max_connections=200",
                    "shared_buffers=16MB",
                ] {
                    command.args(["-c", setting]);
                }
                command
            }
            Self::Redis => {
                let mut command = self.command("redis-server", directory);
                command
                    .args(["--bind", "127.0.0.1", "--port", &ports[0].to_string()])
                    .arg("--dir")
                    .arg(directory)
                    .args(["--save", "", "--appendonly", "yes"])
                    .args(["--appendfsync", "everysec"]);
                command
            }
        }
    }

    /// A program of this server's, run as the user who may run it.
    fn command(self, program: &str, directory: &Path) -> Command {
        let mut command = Command::new(self.program(program));
        command
            .current_dir(directory)
            .stdin(Stdio::null())
            // The test's own variables must not configure the server.
            .env_remove("PGDATA")
            .env("LC_ALL", "C")
            // What the terminal sends to the test's group is not for the server: it is ended by the test.
            .process_group(0);
        for (variable, _) in env::vars_os() {
            if variable.to_string_lossy().starts_with("ETCD_") {
                command.env_remove(variable);
            }
        }
        if self == Self::Postgres
            && let Some((user, group)) = user_of_postgres()
        {
            command.uid(user).gid(group);
        }
        command
    }

    /// Whether a server at that port answers as it should.
    fn answers(self, port: u16) -> bool {
        let question: Vec<u8> = match self {
            Self::Etcd => b"GET /health HTTP/1.0\r\n\r\n".to_vec(),
            Self::Redis => b"PING\r\n".to_vec(),
            Self::Postgres => {
                // A startup message: its length, the protocol's version 3.0, and who we are.
                let body = b"user\0postgres\0database\0postgres\0\0";
                let length = 8 + u32::try_from(body.len()).unwrap();
                [&length.to_be_bytes(), &196_608_u32.to_be_bytes(), &body[..]].concat()
            }
        };
        let answer = || -> std::io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
            stream.set_read_timeout(Some(Duration::from_secs(2)))?;
            stream.write_all(&question)?;
            let mut answer = Vec::new();
            if self == Self::Etcd {
                stream.read_to_end(&mut answer)?;
            } else {
                answer.resize(5, 0);
                stream.read_exact(&mut answer)?;
            }
            Ok(answer)
        };
        answer().is_ok_and(|answer| match self {
            Self::Etcd => String::from_utf8_lossy(&answer).contains(r#""health":"true""#),
            Self::Redis => answer.starts_with(b"+PONG"),
            // That the authentication was in order; an error while it still recovers.
            Self::Postgres => answer.starts_with(b"R"),
        })
    }
}

/// The user and group that PostgreSQL runs as, where the tests run as root, whom it refuses.
fn user_of_postgres() -> Option<(u32, u32)> {
    if !geteuid().is_root() {
        return None;
    }
    let id = |option: &str| {
        let output = Command::new("id").args([option, "postgres"]).output();
        let number = output
            .ok()
            .and_then(|output| String::from_utf8(output.stdout).ok())
            .and_then(|text| text.trim().parse().ok());
        number.unwrap_or_else(|| {
            panic!(
                "PostgreSQL refuses to run as root, and there is no user `postgres`: install it with \
                 `apt-get install postgresql`, which makes one"
            )
        })
    };
    Some((id("-u"), id("-g")))
}

/// A server that was started here, or one that somebody else has started.
#[derive(Debug)]
enum Server {
    Own(Own),
    Named(String),
}

impl Server {
    fn start(kind: Kind) -> Self {
        Self::Own(Own::start(kind))
    }

    fn named_or_started(kind: Kind) -> Self {
        match env::var(kind.variable()) {
            Ok(address) if !address.is_empty() => Self::Named(address),
            _ => Self::start(kind),
        }
    }

    fn address(&self) -> String {
        match self {
            Self::Own(own) => own.kind.address(own.ports[0]),
            Self::Named(address) => address.clone(),
        }
    }

    fn own(&self) -> &Own {
        match self {
            Self::Own(own) => own,
            Self::Named(address) => panic!(
                "the server at {address} belongs to others too: a test that kills its server starts one of \
                 its own with `start()`"
            ),
        }
    }

    fn kill(&self) {
        locked(&self.own().running).take();
    }

    fn restart(&self) {
        let own = self.own();
        let mut running = locked(&own.running);
        running.take();
        *running = Some(own.run_until_it_answers());
    }

    fn signal(&self, signal: Signal) {
        locked(&self.own().running)
            .as_ref()
            .expect("the server was killed")
            .signal(signal);
    }
}

#[derive(Debug)]
struct Own {
    kind: Kind,
    ports: [u16; 2],
    /// `None` after a kill. Declared before the directory, which is removed after the server's end.
    running: Mutex<Option<Running>>,
    directory: TempDir,
}

impl Own {
    fn start(kind: Kind) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("tenure-test-server-")
            .tempdir()
            .expect("a temporary directory");
        kind.prepare(directory.path());
        let mut own = Self {
            kind,
            ports: [0; 2],
            running: Mutex::new(None),
            directory,
        };
        for _ in 0..ATTEMPTS {
            own.ports = [free_port(), free_port()];
            if let Some(running) = own.run() {
                own.running = Mutex::new(Some(running));
                return own;
            }
        }
        panic!("{kind:?} did not start: {}", own.log());
    }

    /// On its old port. PostgreSQL refuses to start while a process of its previous life still ends.
    fn run_until_it_answers(&self) -> Running {
        let begin = Instant::now();
        loop {
            if let Some(running) = self.run() {
                return running;
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "{:?} did not start again: {}",
                self.kind,
                self.log()
            );
            thread::sleep(LOOK);
        }
    }

    /// Starts the server and waits until it answers; `None` if it ended instead.
    fn run(&self) -> Option<Running> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("log"))
            .expect("a log file");
        let mut command = self.kind.server(self.directory.path(), self.ports);
        command
            .stdout(log.try_clone().expect("a second handle of the log"))
            .stderr(log);
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut running = Running::watched(child);
        let begin = Instant::now();
        loop {
            let answers = self.kind.answers(self.ports[0]);
            // After the answer: if it came from somebody else at that port, ours has ended over it.
            if running.has_ended() {
                return None;
            }
            if answers {
                return Some(running);
            }
            assert!(
                begin.elapsed() < PATIENCE,
                "{:?} does not answer: {}",
                self.kind,
                self.log()
            );
            thread::sleep(LOOK);
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

/// A server's process, killed on drop, and the shell that kills it if we can't.
#[derive(Debug)]
struct Running {
    server: Child,
    watcher: Child,
}

impl Running {
    fn watched(mut server: Child) -> Self {
        let script = format!("read -r _; kill -9 {}", server.id());
        let watcher = Command::new("sh")
            .args(["-c", &script])
            // Our end closes with this process, however it ends, and no other process has it.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        match watcher {
            Ok(watcher) => Self { server, watcher },
            Err(error) => {
                let _ = server.kill();
                let _ = server.wait();
                panic!("sh, to watch a server: {error}");
            }
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.server.try_wait(), Ok(None))
    }

    /// The server first, so that it has no new children afterwards.
    fn signal(&self, signal: Signal) {
        let server = pid(self.server.id());
        kill_process(server, signal).expect("a signal to a child of ours");
        for child in children(self.server.id()) {
            // It may have ended since.
            let _ = kill_process(pid(child), signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not through `signal`, which panics. Children are only told from others while their parent lives.
        if !self.has_ended() {
            let _ = kill_process(pid(self.server.id()), Signal::STOP);
            let children = children(self.server.id());
            let _ = self.server.kill();
            for child in children {
                let _ = kill_process(pid(child), Signal::KILL);
            }
        }
        // Before the server is reaped, when its number may become another's.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        let _ = self.server.wait();
    }
}

fn pid(number: u32) -> Pid {
    i32::try_from(number)
        .ok()
        .and_then(Pid::from_raw)
        .expect("the number of a process")
}

/// The children of a process, where there is a `/proc`; elsewhere, none are found.
fn children(parent: u32) -> Vec<u32> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let number = |name: OsString| name.to_str()?.parse::<u32>().ok();
    processes
        .flatten()
        .filter_map(|entry| number(entry.file_name()))
        .filter(|process| {
            // "12 (name) S 7 …": the name may hold anything, its closing parenthesis is the last.
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            stat.rsplit_once(')')
                .and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok())
                == Some(parent)
        })
        .collect()
}

/// A port that nobody listens at now.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let ports = u32::from(PORTS.end - PORTS.start);
    // Test processes run beside each other: each begins somewhere else.
    let begin = std::process::id().wrapping_mul(2_654_435_761) >> 8;
    loop {
        let next = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % ports;
        let port = PORTS.start + u16::try_from(next).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
