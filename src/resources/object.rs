//! Object stores: put only over the version that was read.
//!
//! An object's content is that of a file, see [`file`]: a first line with the highest token that it has
//! seen, then the value. It is kept in the content and not in the object's attributes, since some stores have
//! none, and copying tools lose them.
//!
//! # What makes it safe
//!
//! Each call reads the object with its `ETag` or version, compares its token with the object's, and puts the new
//! content on condition that the object is still the one that was read ([`PutMode::Update`], or
//! [`PutMode::Create`] if there was none). If it is another one, the call begins again: with its comparison
//! too. S3 (`If-Match`), Google Cloud Storage, Azure and the in-memory store can do that.
//!
//! # Local files
//!
//! `object_store`'s [`LocalFileSystem`] can't: it answers `PutMode::Update` with `NotImplemented`. Its
//! `PutMode::Create` alone is not enough, with names that count up: whoever deletes an old version makes its
//! name free for a writer that was paused before it. So [`local`] locks the object's file as [`file`] does.
//! What it writes can be read and listed through the store, and its lock and temporary files can't be seen there.
//!
//! [`file`]: super::file
//! [`PutMode::Update`]: https://docs.rs/object_store/latest/object_store/enum.PutMode.html
//! [`PutMode::Create`]: https://docs.rs/object_store/latest/object_store/enum.PutMode.html
//! [`LocalFileSystem`]: https://docs.rs/object_store/latest/object_store/local/struct.LocalFileSystem.html

#[cfg(feature = "object-store")]
pub use self::conditional::{read, write};

#[cfg(feature = "object-store")]
mod conditional {
    use object_store::path::Path;
    use object_store::{
        Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
    };

    use super::super::{ResourceError, file};
    use crate::FencingToken;

    /// Reads an object's value under a token: `None` if there is no such object, or it was never written.
    ///
    /// From then on lower tokens are refused. Costs a get, and a put if the token is new to the object; both
    /// again for each put of somebody else's that comes in between. Cancelled, it may or may not have raised
    /// the fence, which harms nobody with a live lease.
    ///
    /// # Errors
    ///
    /// [`Stale`](ResourceError::Stale) if a higher token was seen; [`Failed`](ResourceError::Failed) for
    /// everything that the store says, and for an object that does not begin with a token: it is left as it was.
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// use object_store::{memory::InMemory, path::Path};
    /// use tenure::FencingToken;
    /// use tenure::resources::object;
    ///
    /// let (store, account) = (InMemory::new(), Path::from("account/7"));
    /// let (a, b) = (FencingToken::new(33)?, FencingToken::new(34)?);
    /// object::write(&store, &account, a, b"100").await?;
    /// // A is paused past its lease; B is granted the next one.
    /// let balance = object::read(&store, &account, b).await?;
    /// assert_eq!(balance.as_deref(), Some(&b"100"[..]));
    /// object::write(&store, &account, b, b"125").await?;
    /// // A wakes up.
    /// let refused = object::write(&store, &account, a, b"110").await.unwrap_err();
    /// assert_eq!(refused.stale().unwrap().highest, b);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn read(
        store: &(impl ObjectStore + ?Sized),
        location: &Path,
        token: FencingToken,
    ) -> Result<Option<Vec<u8>>, ResourceError<Error>> {
        loop {
            let (content, mode) = get(store, location).await?;
            let raised = file::with_fence_raised(content.as_deref(), token)
                .map_err(|error| error.map_failure(|error| foreign(location, &error)))?;
            let content = match raised {
                Some(raised) if put(store, location, raised.clone(), mode).await? => raised,
                Some(_) => continue,
                None => content.unwrap_or_default(),
            };
            let (_, value) = file::split(&content)
                .map_err(|error| ResourceError::Failed(foreign(location, &error)))?;
            return Ok(value.map(<[u8]>::to_vec));
        }
    }

    /// Writes an object's value under a token.
    ///
    /// Costs a get and a put; both again for each put of somebody else's that comes in between. Cancelled, it
    /// may or may not have written.
    ///
    /// # Errors
    ///
    /// [`Stale`](ResourceError::Stale) if a higher token was seen: nothing was written;
    /// [`Failed`](ResourceError::Failed) for everything that the store says, and for an object that does not
    /// begin with a token: it is left as it was.
    ///
    /// An example stands at [`read`].
    pub async fn write(
        store: &(impl ObjectStore + ?Sized),
        location: &Path,
        token: FencingToken,
        value: &[u8],
    ) -> Result<(), ResourceError<Error>> {
        loop {
            let (content, mode) = get(store, location).await?;
            file::admit(content.as_deref(), token)
                .map_err(|error| error.map_failure(|error| foreign(location, &error)))?;
            if put(store, location, file::join(token, Some(value)), mode).await? {
                return Ok(());
            }
        }
    }

    /// What is there, and how to put something in its place and in no other's.
    async fn get(
        store: &(impl ObjectStore + ?Sized),
        location: &Path,
    ) -> Result<(Option<Vec<u8>>, PutMode), ResourceError<Error>> {
        let found = match store.get(location).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok((None, PutMode::Create)),
            Err(error) => return Err(ResourceError::Failed(error)),
        };
        let version = UpdateVersion {
            e_tag: found.meta.e_tag.clone(),
            version: found.meta.version.clone(),
        };
        let content = found.bytes().await.map_err(ResourceError::Failed)?;
        Ok((Some(content.to_vec()), PutMode::Update(version)))
    }

    /// Puts; `false` if something else has been put since.
    async fn put(
        store: &(impl ObjectStore + ?Sized),
        location: &Path,
        content: Vec<u8>,
        mode: PutMode,
    ) -> Result<bool, ResourceError<Error>> {
        let replaces = matches!(mode, PutMode::Update(_));
        let options = PutOptions::from(mode);
        let payload = PutPayload::from(content);
        let answer = store.put_opts(location, payload, options).await;
        is_put(answer.map(drop), replaces)
    }

    /// What a store's answer to a put means.
    fn is_put(answer: Result<(), Error>, replaces: bool) -> Result<bool, ResourceError<Error>> {
        match answer {
            Ok(()) => Ok(true),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(false),
            // Deleted since. Where there was nothing to replace, it is the bucket that was not found.
            Err(Error::NotFound { .. }) if replaces => Ok(false),
            Err(error) => Err(ResourceError::Failed(error)),
        }
    }

    pub(super) fn foreign(location: &Path, error: &std::io::Error) -> Error {
        Error::Generic {
            store: "tenure",
            source: format!("{location}: {error}").into(),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn an_object_that_is_gone_is_looked_for_again_and_a_bucket_that_is_not_there_is_an_error() {
            let not_found = || {
                Err(Error::NotFound {
                    path: "account-7".to_owned(),
                    source: "it is gone".into(),
                })
            };
            assert!(matches!(is_put(not_found(), true), Ok(false)));
            let failed = is_put(not_found(), false);
            assert!(matches!(
                failed,
                Err(ResourceError::Failed(Error::NotFound { .. }))
            ));
            for replaces in [false, true] {
                let overtaken = Error::AlreadyExists {
                    path: "account-7".to_owned(),
                    source: "it is there".into(),
                };
                assert!(matches!(is_put(Err(overtaken), replaces), Ok(false)));
                let other = foreign(&Path::from("account-7"), &std::io::Error::other("said"));
                let failed = is_put(Err(other), replaces);
                assert!(matches!(failed, Err(ResourceError::Failed(_))));
                assert!(matches!(is_put(Ok(()), replaces), Ok(true)));
            }
        }
    }
}

/// The same for [`LocalFileSystem`](object_store::local::LocalFileSystem), which has no conditional put.
///
/// Within a tokio runtime the work is done by one of its threads for blocking work, as that store does it;
/// elsewhere by the caller's thread.
#[cfg(feature = "object-store")]
pub mod local {
    use object_store::local::LocalFileSystem;
    use object_store::path::Path;
    use object_store::{Error, Result};
    use std::io;
    use std::path::PathBuf;

    use super::super::{ResourceError, file};
    use super::conditional::foreign;
    use crate::FencingToken;

    /// Reads an object's value under a token, as [`object::read`](super::read) does.
    ///
    /// Cancelled, it goes on by itself. The directory has to be there.
    ///
    /// # Errors
    ///
    /// Those of [`object::read`](super::read).
    ///
    /// ```
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    /// # runtime.block_on(async {
    /// # let directory = tempfile::tempdir()?;
    /// use object_store::{local::LocalFileSystem, path::Path};
    /// use tenure::FencingToken;
    /// use tenure::resources::object::local;
    ///
    /// let store = LocalFileSystem::new_with_prefix(directory.path())?;
    /// let account = Path::from("account-7");
    /// local::write(&store, &account, FencingToken::new(34)?, b"125").await?;
    /// let late = local::read(&store, &account, FencingToken::new(33)?).await;
    /// assert!(late.unwrap_err().stale().is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn read(
        store: &LocalFileSystem,
        location: &Path,
        token: FencingToken,
    ) -> Result<Option<Vec<u8>>, ResourceError<Error>> {
        blocking(store, location, move |path| file::read(path, token)).await
    }

    /// Writes an object's value under a token, as [`object::write`](super::write) does.
    ///
    /// Cancelled, it goes on by itself. The directory has to be there.
    ///
    /// # Errors
    ///
    /// Those of [`object::write`](super::write).
    ///
    /// An example stands at [`read`].
    pub async fn write(
        store: &LocalFileSystem,
        location: &Path,
        token: FencingToken,
        value: &[u8],
    ) -> Result<(), ResourceError<Error>> {
        let value = value.to_vec();
        blocking(store, location, move |path| {
            file::write(path, token, &value)
        })
        .await
    }

    async fn blocking<R: Send + 'static>(
        store: &LocalFileSystem,
        location: &Path,
        work: impl FnOnce(PathBuf) -> Result<R, ResourceError<io::Error>> + Send + 'static,
    ) -> Result<R, ResourceError<Error>> {
        let path = store
            .path_to_filesystem(location)
            .map_err(ResourceError::Failed)?;
        let done = match tokio::runtime::Handle::try_current() {
            Ok(runtime) => runtime
                .spawn_blocking(move || work(path))
                .await
                .map_err(|error| ResourceError::Failed(Error::JoinError { source: error }))?,
            Err(_) => work(path),
        };
        done.map_err(|error| error.map_failure(|error| foreign(location, &error)))
    }
}
