//! Resident memory of this process, where the system tells it.

use std::fs;

/// A reading of this process's resident memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    /// Resident now.
    pub(super) resident: u64,
    /// The most that was ever resident.
    pub(super) peak: u64,
}

impl Memory {
    /// Reads it from `/proc/self/status`; `None` on systems without one.
    pub(super) fn read() -> Option<Self> {
        Self::parse(&fs::read_to_string("/proc/self/status").ok()?)
    }

    /// What the program has allocated and not freed, in bytes.
    pub(super) fn allocated() -> u64 {
        crate::HEAP.allocated() as u64
    }

    fn parse(status: &str) -> Option<Self> {
        let bytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let kib = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
            Some(kib * 1024)
        };
        Some(Self {
            resident: bytes("VmRSS:")?,
            peak: bytes("VmHWM:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_page_is_read() {
        let page = "Name:\tx\nVmPeak:\t  9 kB\nVmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let memory = Memory::parse(page).expect("both lines are there");
        assert_eq!((memory.resident, memory.peak), (1 << 20, 2 << 20));
        assert!(Memory::parse("VmRSS:\t1 kB\n").is_none());
    }
}
