//! Redis over the loopback interface: `SET … NX PX` to acquire, and scripts that compare the token before
//! they delete the key or move its deadline.
//!
//! Like all locks of this pattern, it has no fencing tokens: the client makes up a value that only
//! tells its own lease from others. A refusal says neither who holds the key nor for how long. Both are in
//! its favour, and so is the network, which is none. Each thread has a connection while it makes a call.
//!
//! The server is the one that `TENURE_TEST_REDIS` names (`redis://127.0.0.1:6379/`, say); otherwise
//! `redis-server` is started on a free port, which keeps nothing on disk, and stopped afterwards; otherwise
//! Redis is left out.

use std::env;
use std::error::Error;
use std::net::TcpListener;
use std::process::{self, Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Once, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Client, Cmd, Connection, Pipeline, Script, cmd};

use super::{Handle, LeaseTable, Tokens};

/// One connection for each thread that is making a call, each call a round trip.
pub(crate) struct Redis {
    /// What tells this table's keys from those of others on the server.
    prefix: [u8; 16],
    tokens: Tokens,
    release: Script,
    renew: Script,
    idle: Mutex<Vec<Connection>>,
    /// The keys that stay out: a server that is not ours doesn't forget them.
    kept: Mutex<Vec<u64>>,
    server: Arc<Server>,
}

/// The same with many pairs in one round trip, each released without waiting for its grant.
pub(crate) struct Pipelined(Redis);

/// The key is held.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held;

const RELEASE: &str = "\
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

const RENEW: &str = "\
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('pexpire', KEYS[1], ARGV[2], 'GT')
return 1";

/// Why a call panics.
const GONE: &str = "the Redis server has been there until now";

impl Redis {
    /// A table without keys, if there is a server.
    pub(crate) fn connected() -> Option<Self> {
        static NOTE: Once = Once::new();
        let table = Self::new();
        if let Err(error) = &table {
            NOTE.call_once(|| eprintln!("redis is left out: {error}"));
        }
        table.ok()
    }

    fn new() -> Result<Self, Box<dyn Error>> {
        static TABLES: AtomicU64 = AtomicU64::new(0);
        let server = Server::shared()?;
        let mut connection = server.client.get_connection()?;
        let (release, renew) = (Script::new(RELEASE), Script::new(RENEW));
        release.load(&mut connection)?;
        renew.load(&mut connection)?;
        let table = TABLES.fetch_add(1, Ordering::Relaxed);
        let name = format!("{:>10}{table:>5}:", process::id());
        Ok(Self {
            prefix: name.as_bytes().try_into()?,
            tokens: Tokens::default(),
            release,
            renew,
            idle: Mutex::new(vec![connection]),
            kept: Mutex::new(vec![]),
            server,
        })
    }

    /// The key's name: made without an allocation, because that is not the server's fault.
    fn name(&self, key: u64) -> [u8; 24] {
        let mut name = [0; 24];
        name[..16].copy_from_slice(&self.prefix);
        name[16..].copy_from_slice(&key.to_be_bytes());
        name
    }

    fn with_connection<R>(&self, call: impl FnOnce(&mut Connection) -> redis::RedisResult<R>) -> R {
        let idle = self.idle.lock().pop();
        let mut connection =
            idle.unwrap_or_else(|| self.server.client.get_connection().expect(GONE));
        let result = call(&mut connection).expect(GONE);
        self.idle.lock().push(connection);
        result
    }

    fn set(&self, key: u64, token: u64, ttl: Duration) -> Cmd {
        let mut set = cmd("SET");
        let milliseconds = ttl.as_millis() as u64;
        set.arg(&self.name(key)).arg(token);
        set.arg("NX").arg("PX").arg(milliseconds);
        set
    }
}

impl LeaseTable for Redis {
    type Lease<'table> = Handle;
    type Refusal = Held;

    const CAN_EXPIRE: bool = false;
    /// A million would take a minute.
    const MOST_HELD: u64 = 10_000;

    fn acquire(&self, key: u64, _owner: u64, ttl: Duration) -> Result<Handle, Held> {
        let token = self.tokens.next();
        let set = self.set(key, token, ttl);
        let granted = self.with_connection(|connection| set.query(connection));
        if granted {
            Ok(Handle { key, token })
        } else {
            Err(Held)
        }
    }

    fn token(lease: &Handle) -> u64 {
        lease.token
    }

    fn renew(&self, lease: &Handle, ttl: Duration) -> bool {
        let milliseconds = ttl.as_millis() as u64;
        self.with_connection(|connection| {
            let mut renew = self.renew.key(&self.name(lease.key));
            renew.arg(lease.token).arg(milliseconds).invoke(connection)
        })
    }

    fn renew_by_key(&self, key: u64, token: u64, ttl: Duration) -> bool {
        LeaseTable::renew(self, &Handle { key, token }, ttl)
    }

    fn release(&self, lease: Handle) -> bool {
        self.with_connection(|connection| {
            let mut release = self.release.key(&self.name(lease.key));
            release.arg(lease.token).invoke(connection)
        })
    }

    fn keep(&self, lease: Handle) {
        self.kept.lock().push(lease.key);
    }

    /// The server does it when it sees fit.
    fn sweep(&self) -> u64 {
        0
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let kept = self.kept.get_mut();
        let (Some(connection), false) = (self.idle.get_mut().first_mut(), kept.is_empty()) else {
            return;
        };
        let mut delete = cmd("DEL");
        for key in kept {
            let name: [&[u8]; 2] = [&self.prefix, &key.to_be_bytes()];
            delete.arg(name.concat());
        }
        // A server that is gone has no keys.
        let _deleted: redis::RedisResult<u64> = delete.query(connection);
    }
}

impl Pipelined {
    /// A table without keys, if there is a server.
    pub(crate) fn connected() -> Option<Self> {
        Redis::connected().map(Self)
    }
}

impl LeaseTable for Pipelined {
    type Lease<'table> = Handle;
    type Refusal = Held;

    const CAN_RENEW: bool = false;
    const CAN_EXPIRE: bool = false;
    const MOST_HELD: u64 = 0;
    const PAIRS_AT_ONCE: usize = 64;

    fn acquire(&self, key: u64, owner: u64, ttl: Duration) -> Result<Handle, Held> {
        self.0.acquire(key, owner, ttl)
    }

    fn pairs(&self, keys: &[u64], _owner: u64, ttl: Duration) -> u64 {
        let mut pipeline = Pipeline::with_capacity(2 * keys.len());
        for key in keys {
            let token = self.0.tokens.next();
            pipeline.add_command(self.0.set(*key, token, ttl));
            let release = pipeline.cmd("EVALSHA").arg(self.0.release.get_hash());
            release.arg(1).arg(&self.0.name(*key)).arg(token);
        }
        let answers: Vec<bool> = self
            .0
            .with_connection(|connection| pipeline.query(connection));
        let both = |pair: &&[bool]| pair.iter().all(|yes| *yes);
        answers.chunks_exact(2).filter(both).count() as u64
    }

    fn token(lease: &Handle) -> u64 {
        lease.token
    }

    fn renew(&self, lease: &Handle, ttl: Duration) -> bool {
        self.0.renew(lease, ttl)
    }

    fn renew_by_key(&self, key: u64, token: u64, ttl: Duration) -> bool {
        self.0.renew_by_key(key, token, ttl)
    }

    fn release(&self, lease: Handle) -> bool {
        self.0.release(lease)
    }

    fn keep(&self, lease: Handle) {
        self.0.keep(lease);
    }

    fn sweep(&self) -> u64 {
        self.0.sweep()
    }
}

/// A server, while a table is there that uses it.
struct Server {
    client: Client,
    /// The process, if it is ours.
    own: Option<Child>,
}

impl Server {
    /// The server of this process.
    fn shared() -> Result<Arc<Self>, Box<dyn Error>> {
        static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock();
        if let Some(server) = shared.upgrade() {
            return Ok(server);
        }
        let server = Arc::new(match env::var("TENURE_TEST_REDIS") {
            Ok(address) => Self {
                client: Client::open(address)?,
                own: None,
            },
            Err(_) => Self::started()?,
        });
        *shared = Arc::downgrade(&server);
        Ok(server)
    }

    fn started() -> Result<Self, Box<dyn Error>> {
        // The port could be taken again before the server has it, which then ends at once.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let program = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let own = program.map_err(|error| {
            format!("TENURE_TEST_REDIS is not set, and redis-server doesn't start: {error}")
        })?;
        // Whatever happens from here on, the process is ended.
        let mut server = Self {
            client: Client::open(format!("redis://127.0.0.1:{port}/"))?,
            own: Some(own),
        };
        for _ in 0..500 {
            if server.client.get_connection().is_ok() {
                return Ok(server);
            }
            let ended = server.own.as_mut().map(Child::try_wait).transpose()?;
            if let Some(Some(status)) = ended {
                return Err(format!("redis-server has ended: {status}").into());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Err("redis-server does not answer".into())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            // It has nothing to save, and it may have ended already.
            let _killed = own.kill();
            let _ended = own.wait();
        }
    }
}
