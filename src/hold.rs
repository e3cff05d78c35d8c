//! How guards reach their engine.

use crate::engine::Engine;
use crate::sync::Arc;

/// How a guard reaches its engine.
#[derive(Clone)]
pub(crate) enum Hold<'m> {
    Borrowed(&'m Engine),
    /// Can outlive the manager.
    Owned(Arc<Engine>),
}

impl Hold<'_> {
    #[inline]
    pub(crate) fn engine(&self) -> &Engine {
        match self {
            Self::Borrowed(engine) => engine,
            Self::Owned(engine) => engine,
        }
    }

    /// The same without the borrow.
    pub(crate) fn to_owned_hold(&self) -> Hold<'static> {
        Hold::Owned(match self {
            Self::Borrowed(engine) => engine.share(),
            Self::Owned(engine) => Arc::clone(engine),
        })
    }

    /// Only an owned guard can outlive its manager.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        match self {
            Self::Borrowed(_) => false,
            Self::Owned(engine) => engine.is_closed(),
        }
    }
}
