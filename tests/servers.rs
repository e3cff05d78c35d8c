//! What the tests that need a server rely on: that one can be started, killed, stopped and had again. Real time.

#[cfg(not(all(feature = "etcd", feature = "postgres", feature = "redis")))]
#[test]
fn left_to_features_etcd_postgres_redis_are_the_tests_against_real_servers() {
    println!(
        "cargo test --features etcd,postgres,redis starts the servers itself; it needs them installed:\n\
         apt-get install etcd-server postgresql redis-server, and protoc to build the client of etcd"
    );
}

#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
#[path = "common/servers.rs"]
mod servers;

/// The first bytes that a server answers with; an error if it does not within the time.
#[cfg(any(feature = "etcd", feature = "postgres", feature = "redis"))]
fn ask(port: u16, question: &[u8], patience: std::time::Duration) -> std::io::Result<[u8; 5]> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(question)?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[cfg(feature = "redis")]
mod redis {
    use std::io::ErrorKind;
    use std::time::Duration;

    use super::ask;
    use super::servers::{Control as _, Redis};

    const LONG: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(200);

    fn port(server: &Redis) -> u16 {
        let (_, port) = server
            .url()
            .trim_end_matches('/')
            .rsplit_once(':')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        port.parse().unwrap()
    }

    #[test]
    fn what_was_written_is_there_after_a_kill_and_a_restart() {
        let server = Redis::start();
        let port = port(&server);
        assert_eq!(ask(port, b"SET key value\r\n", LONG).unwrap(), *b"+OK\r\n");
        server.kill();
        assert!(ask(port, b"PING\r\n", LONG).is_err(), "still there");
        server.restart();
        // "$5", the length of what follows.
        assert!(ask(port, b"GET key\r\n", LONG).unwrap().starts_with(b"$5"));
    }

    #[test]
    fn a_server_that_is_stopped_answers_nothing_until_it_is_resumed() {
        let server = Redis::start();
        let port = port(&server);
        server.pause();
        let error = ask(port, b"PING\r\n", SHORT).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            "{error}"
        );
        server.resume();
        assert_eq!(ask(port, b"PING\r\n", LONG).unwrap(), *b"+PONG");
    }

    #[test]
    fn a_server_is_gone_when_it_is_dropped_and_the_shared_one_with_its_last_user() {
        let server = Redis::start();
        let gone = port(&server);
        // Even one that is stopped.
        server.pause();
        drop(server);
        assert!(ask(gone, b"PING\r\n", LONG).is_err());

        let (first, second) = (Redis::shared(), Redis::shared());
        assert_eq!(first.url(), second.url());
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use std::time::Duration;

    use super::servers::{Control as _, Postgres};

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
            .block_on(future)
    }

    async fn connect(server: &Postgres) -> tokio_postgres::Client {
        let (client, connection) = tokio_postgres::connect(&server.config(), tokio_postgres::NoTls)
            .await
            .unwrap();
        tokio::spawn(connection);
        client
    }

    #[test]
    fn what_was_committed_is_there_after_a_kill_and_a_restart() {
        run(async {
            let server = Postgres::start();
            let client = connect(&server).await;
            client
                .batch_execute("CREATE TABLE kept (x int); INSERT INTO kept VALUES (7)")
                .await
                .unwrap();
            server.kill();
            assert!(client.query("SELECT x FROM kept", &[]).await.is_err());
            server.restart();
            let client = connect(&server).await;
            let row = client.query_one("SELECT x FROM kept", &[]).await.unwrap();
            assert_eq!(row.get::<_, i32>(0), 7);
        });
    }

    #[test]
    fn a_session_is_stopped_with_its_server() {
        run(async {
            let server = Postgres::start();
            let client = connect(&server).await;
            server.pause();
            // The process that serves this session is a child of the server's.
            let asked = client.query_one("SELECT 1", &[]);
            let mut asked = Box::pin(asked);
            let early = tokio::time::timeout(Duration::from_millis(200), &mut asked).await;
            assert!(early.is_err(), "answered though stopped");
            server.resume();
            asked.await.unwrap();
        });
    }
}

#[cfg(feature = "etcd")]
mod etcd {
    use std::time::Duration;

    use super::ask;
    use super::servers::{Control as _, Etcd};

    #[test]
    fn a_killed_node_answers_again_at_the_same_place() {
        let server = Etcd::start();
        let endpoint = server.endpoint();
        let port = endpoint.rsplit_once(':').unwrap().1.parse().unwrap();
        let health = b"GET /health HTTP/1.0\r\n\r\n";
        let long = Duration::from_secs(10);
        assert_eq!(ask(port, health, long).unwrap(), *b"HTTP/");
        server.kill();
        assert!(ask(port, health, long).is_err());
        server.restart();
        assert_eq!(ask(port, health, long).unwrap(), *b"HTTP/");
    }
}
