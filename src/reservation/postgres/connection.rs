//! One connection to `PostgreSQL`, over TLS or not.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, Socket};

/// A connection, and the task that reads from it.
pub(super) struct Link {
    pub(super) client: Arc<Client>,
    /// Told when the shard's holder resigns, and when the connection ends.
    pub(super) news: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Drop for Link {
    fn drop(&mut self) {
        // It would end by itself, but for a server that neither answers nor goes away.
        self.task.abort();
    }
}

type Linking<'a> = Pin<Box<dyn Future<Output = Result<Link, Error>> + Send + 'a>>;

/// Makes connections, whatever the type of their TLS.
pub(super) trait Dial: Send + Sync {
    fn dial<'a>(&'a self, shard: &'a str, limit: Duration) -> Linking<'a>;
}

pub(super) struct Dialer<T> {
    pub(super) config: Config,
    pub(super) tls: T,
}

impl<T> Dial for Dialer<T>
where
    T: MakeTlsConnect<Socket> + Clone + Send + Sync + 'static,
    T::Stream: Send + 'static,
    T::TlsConnect: Send,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    fn dial<'a>(&'a self, shard: &'a str, limit: Duration) -> Linking<'a> {
        Box::pin(async move {
            let mut config = self.config.clone();
            if config.get_connect_timeout().is_none() {
                // So that one host of several that is silent leaves time for the next.
                let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
                let hosts = u32::try_from(hosts.max(1)).unwrap_or(u32::MAX);
                config.connect_timeout(limit / hosts);
            }
            let (client, connection) = config.connect(self.tls.clone()).await?;
            let news = Arc::new(Notify::new());
            let task = tokio::spawn(read(connection, Arc::clone(&news), shard.to_owned()));
            Ok(Link {
                client: Arc::new(client),
                news,
                task,
            })
        })
    }
}

async fn read<S>(mut connection: Connection<Socket, S>, news: Arc<Notify>, shard: String)
where
    S: tokio_postgres::tls::TlsStream + Unpin,
{
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(resigned) = message
            && resigned.payload() == shard
        {
            news.notify_one();
        }
    }
    news.notify_one();
}
