//! What a sequence is made of. Numbers are choices, taken modulo what there is to choose from, so
//! that any bytes make a meaningful sequence.

/// How long to ask for.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Ttl {
    Zero,
    /// So many ticks, and nanoseconds on top.
    Ticks(u8, u16),
    /// A power of two of ticks, one less and one more.
    Power(u8, i8),
    Least,
    Greatest,
    TooLong,
    Endless,
}

/// Which token to present.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Presented {
    /// The last one granted for the key.
    Last,
    /// An earlier one of the key.
    Earlier(u8),
    /// The last one of another key.
    Other(u16),
    /// One that was not reached yet.
    Unborn(u8),
    Any(u32),
    Greatest,
}

/// What becomes of a granted guard.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Keep {
    Guard,
    Owned,
    Detached,
    Forgotten,
    Dropped,
}

/// One step.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) enum Operation {
    Acquire {
        key: u16,
        owner: u8,
        ttl: Ttl,
        keep: Keep,
    },
    /// With a token of at least 2^`above` over the last one of the key.
    AcquireAtLeast {
        key: u16,
        owner: u8,
        ttl: Ttl,
        above: u8,
    },
    Renew {
        key: u16,
        token: Presented,
        ttl: Ttl,
    },
    Release {
        key: u16,
        token: Presented,
    },
    Validate {
        key: u16,
        token: Presented,
    },
    Revoke {
        key: u16,
    },
    Holder {
        key: u16,
    },
    RenewGuard {
        guard: u16,
        ttl: Ttl,
    },
    ReleaseGuard {
        guard: u16,
    },
    DropGuard {
        guard: u16,
    },
    DetachGuard {
        guard: u16,
    },
    ForgetGuard {
        guard: u16,
    },
    Iterate,
    Advance,
    /// Sleep until the manager wants to be woken, then advance it.
    Drive,
    Pass {
        ticks: u8,
        nanos: u32,
    },
    /// To the deadline of a key's lease, or just before it.
    Edge {
        key: u16,
        before: bool,
    },
    /// Far ahead, by a power of two of nanoseconds.
    Leap {
        exponent: u8,
        nanos: u16,
    },
    /// The clock is set back, and must be taken not to have moved.
    Back {
        nanos: u64,
    },
    /// Many keys are taken, so that the table grows.
    Crowd {
        from: u16,
        count: u16,
        ttl: Ttl,
    },
    /// The leases of many keys are released, so that the table shrinks.
    Disperse {
        from: u16,
        count: u16,
    },
}

/// What kind of world a sequence runs in.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(fuzzing, derive(arbitrary::Arbitrary))]
pub(crate) struct Setting {
    /// The number of keys, less one.
    pub(crate) keys: u16,
    /// So many keys fewer may be held at once than there are.
    pub(crate) scarce: Option<u8>,
    /// `advance` is called whenever time has passed.
    pub(crate) driven: bool,
    /// TTLs below one tick are allowed.
    pub(crate) fine: bool,
    /// The tick, in microseconds, less a hundred.
    pub(crate) tick: u16,
}
