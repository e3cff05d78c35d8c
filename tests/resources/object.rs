//! Object stores: in memory, with a conditional put, and on local files, without.

use std::sync::Arc;
use std::time::Duration;

use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload};
use tempfile::TempDir;
use tenure::resources::ResourceError;
use tenure::resources::object::{local, read, write};
use tenure::{FencingToken, StaleToken};
use tokio::runtime::Runtime;

use crate::story::{Number, Way, a_crowd_of_writers, a_paused_writer, number, stale};
use crate::token;

fn location() -> Path {
    Path::from("accounts/7")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
}

#[derive(Clone)]
enum Store {
    Memory(Arc<InMemory>),
    Local {
        files: Arc<LocalFileSystem>,
        /// So that it stays until its last writer has gone.
        _directory: Arc<TempDir>,
    },
}

impl Store {
    fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    fn local() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("accounts")).unwrap();
        let files = LocalFileSystem::new_with_prefix(directory.path()).unwrap();
        Self::Local {
            files: Arc::new(files),
            _directory: Arc::new(directory),
        }
    }

    fn plain(&self) -> &dyn ObjectStore {
        match self {
            Self::Memory(store) => &**store,
            Self::Local { files, .. } => &**files,
        }
    }

    async fn read(&self, token: FencingToken) -> Result<Option<Vec<u8>>, ResourceError<Error>> {
        match self {
            Self::Memory(store) => read(&**store, &location(), token).await,
            Self::Local { files, .. } => local::read(files, &location(), token).await,
        }
    }

    async fn write(&self, token: FencingToken, value: &[u8]) -> Result<(), ResourceError<Error>> {
        match self {
            Self::Memory(store) => write(&**store, &location(), token, value).await,
            Self::Local { files, .. } => local::write(files, &location(), token, value).await,
        }
    }
}

struct Writer {
    store: Store,
    runtime: Runtime,
}

fn begin(store: fn() -> Store) -> impl Fn(Way) -> Box<dyn Fn() -> Writer + Sync> {
    move |_| {
        let store = std::sync::Mutex::new(store());
        Box::new(move || Writer {
            store: store.lock().unwrap().clone(),
            runtime: runtime(),
        })
    }
}

impl Number for Writer {
    fn read(&mut self, way: Way, token: FencingToken) -> Result<u64, StaleToken> {
        self.runtime.block_on(async {
            match way {
                Way::Fenced => stale(self.store.read(token).await).map(number),
                Way::Unfenced => match self.store.plain().get(&location()).await {
                    Ok(object) => Ok(number(object.bytes().await.ok())),
                    Err(Error::NotFound { .. }) => Ok(0),
                    Err(error) => panic!("{error}"),
                },
            }
        })
    }

    fn write(&mut self, way: Way, token: FencingToken, new: u64) -> Result<(), StaleToken> {
        let text = new.to_string();
        self.runtime.block_on(async {
            match way {
                Way::Fenced => stale(self.store.write(token, text.as_bytes()).await),
                Way::Unfenced => {
                    let payload = PutPayload::from(text);
                    self.store.plain().put(&location(), payload).await.unwrap();
                    Ok(())
                }
            }
        })
    }
}

#[test]
fn a_paused_writer_loses_anothers_write_only_without_the_conditional_put() {
    a_paused_writer(begin(Store::memory));
}

#[test]
fn a_crowd_of_paused_writers_loses_writes_only_without_the_conditional_put() {
    a_crowd_of_writers(begin(Store::memory));
}

#[test]
fn a_paused_writer_loses_anothers_write_on_local_files_only_without_the_lock() {
    a_paused_writer(begin(Store::local));
}

#[test]
fn a_crowd_of_paused_writers_loses_writes_on_local_files_only_without_the_lock() {
    a_crowd_of_writers(begin(Store::local));
}

#[test]
fn equal_tokens_are_accepted_lower_ones_refused_and_higher_ones_remembered() {
    for store in [Store::memory(), Store::local()] {
        runtime().block_on(async {
            store.write(token(33), b"1").await.unwrap();
            store.write(token(33), b"2").await.unwrap();
            store.write(token(34), b"3").await.unwrap();
            let refused = stale(store.write(token(33), b"4").await).unwrap_err();
            assert_eq!((refused.presented, refused.highest), (token(33), token(34)));
            assert!(stale(store.read(token(33)).await).is_err());
            assert_eq!(store.read(token(34)).await.unwrap().unwrap(), b"3");
            store.write(FencingToken::MAX, b"5").await.unwrap();
            let below = token(FencingToken::MAX.get() - 1);
            assert!(stale(store.write(below, b"6").await).is_err());
        });
    }
}

#[test]
fn a_read_of_nothing_raises_the_fence() {
    for store in [Store::memory(), Store::local()] {
        runtime().block_on(async {
            assert_eq!(store.read(token(34)).await.unwrap(), None);
            assert!(stale(store.write(token(33), b"late").await).is_err());
        });
    }
}

#[test]
fn an_object_that_holds_no_token_is_left_as_it_is() {
    for store in [Store::memory(), Store::local()] {
        runtime().block_on(async {
            let plain = store.plain();
            plain.put(&location(), "{}".into()).await.unwrap();
            let error = store.write(token(34), b"1").await.unwrap_err();
            assert_eq!(error.stale(), None);
            assert!(error.to_string().contains("accounts/7"), "{error}");
            let kept = plain.get(&location()).await.unwrap().bytes().await.unwrap();
            assert_eq!(kept, "{}");
        });
    }
}

/// The pause that fits in between, if anything does: each put waits before it is done.
#[test]
fn what_is_put_between_the_comparison_and_the_put_is_not_overwritten() {
    let (early, late) = (token(33), token(34));
    let config = ThrottleConfig {
        wait_put_per_call: Duration::from_millis(300),
        ..ThrottleConfig::default()
    };
    for begun in [None, Some(&b"100"[..])] {
        let store = Arc::new(InMemory::new());
        let slow = ThrottledStore::new(Arc::clone(&store), config);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            if let Some(begun) = begun {
                write(&*store, &location(), early, begun).await.unwrap();
            }
            let location = location();
            let late_write = write(&slow, &location, early, b"110");
            let between = async {
                // By now the other one has compared.
                tokio::time::sleep(Duration::from_millis(100)).await;
                write(&*store, &location, late, b"125").await.unwrap();
            };
            let (refused, ()) = tokio::join!(late_write, between);
            let refused = stale(refused).expect_err("accepted (I6)");
            assert_eq!((refused.presented, refused.highest), (early, late));
            let kept = read(&*store, &location, late).await.unwrap();
            assert_eq!(kept.unwrap(), b"125");

            // A read is no different: it must not put the old value back.
            let slow_read = read(&slow, &location, token(35));
            let between = async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                write(&*store, &location, late, b"126").await.unwrap();
            };
            let (seen, ()) = tokio::join!(slow_read, between);
            assert_eq!(seen.unwrap().unwrap(), b"126");
            let again = write(&*store, &location, late, b"127").await;
            assert_eq!(stale(again).unwrap_err().highest, token(35));
        });
    }
}

/// What the documentation says about that store, which may change with it.
#[test]
fn local_files_have_no_conditional_put_and_their_helpers_are_not_listed() {
    let store = Store::local();
    let Store::Local { files, .. } = &store else {
        unreachable!()
    };
    runtime().block_on(async {
        store.write(token(34), b"125").await.unwrap();
        let error = write(&**files, &location(), token(34), b"126").await;
        assert!(
            matches!(
                error,
                Err(ResourceError::Failed(Error::NotImplemented { .. }))
            ),
            "{error:?}"
        );
        let listed = files
            .list_with_delimiter(Some(&Path::from("accounts")))
            .await
            .unwrap();
        let names: Vec<_> = listed
            .objects
            .into_iter()
            .map(|object| object.location)
            .collect();
        assert_eq!(names, [location()]);
        let content = files.get(&location()).await.unwrap().bytes().await.unwrap();
        assert_eq!(content, "34\n125");
    });
}

/// Many writes under one token at once: none may undo another's comparison, and the last lower one is refused.
#[test]
fn writers_of_one_token_wait_for_each_other_and_never_for_ever() {
    let store = Store::memory();
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let store = store.clone();
            std::thread::spawn(move || {
                runtime().block_on(async {
                    for value in 0..500_u32 {
                        let value = value.to_string();
                        store.write(token(34), value.as_bytes()).await.unwrap();
                    }
                });
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    runtime().block_on(async {
        assert_eq!(store.read(token(34)).await.unwrap().unwrap(), b"499");
        assert!(stale(store.write(token(33), b"late").await).is_err());
    });
}
