//! Which process this is. A child that was forked has a copy of all managers and clocks, and none of their
//! threads.

/// The process that something was made in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    /// Whether it is this one. (A system call.)
    pub(crate) fn is_this(self) -> bool {
        self == Self::this()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself_and_no_other() {
        let this = Process::this();
        assert!(this.is_this());
        assert!(!Process(this.0 + 1).is_this());
    }
}
