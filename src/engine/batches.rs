//! Batches: operations on many keys, one after the other, after the loads of all of them.

use super::Engine;
use super::grants::{Acquired, Denied, Request};
use crate::key::Key;
use crate::locals;
pub(crate) use crate::table::CHUNK;
use crate::table::{Ended, Handle, Layout};

impl<L: Layout> Engine<L> {
    /// Grants what each of the requests asks for, in their order, and hands on the answers. At most a
    /// [`CHUNK`]. One reading of the clock serves all grants that are simple.
    #[inline]
    pub(crate) fn grant_chunk(
        &self,
        keys: &[Key],
        request: impl Fn(Key) -> Request,
        mut answer: impl FnMut(Key, Result<Acquired, Denied>),
    ) {
        let mut hashes = [0; CHUNK];
        for (hash, key) in hashes.iter_mut().zip(keys) {
            *hash = self.table.hash(*key);
        }
        let entry = locals::take(self);
        let hashes = &hashes[..keys.len().min(CHUNK)];
        self.table.fetch_buckets(&entry.local, hashes);
        locals::put(entry);
        let mut now = self.time.now();
        for (key, hash) in keys.iter().zip(hashes) {
            let request = request(*key);
            let granted = match self.grant_at(now, *hash, request) {
                Ok(acquired) => Ok(acquired),
                Err(begun) => {
                    let granted = self.grant_more(begun, &{ request });
                    // That may have taken its time, or have run code of the user's.
                    now = self.time.now();
                    granted
                }
            };
            answer(*key, granted);
        }
    }

    /// Loads what the releases of these leases will look at. At most a [`CHUNK`].
    pub(crate) fn fetch_leases(&self, handles: impl Iterator<Item = Handle>) {
        let entry = locals::take(self);
        self.table.fetch_leases(&entry.local, handles);
        locals::put(entry);
    }

    /// As [`release`](Self::release), at a reading of the clock that serves all releases that are simple.
    #[inline]
    pub(crate) fn release_in_chunk(
        &self,
        now: &mut u64,
        handle: Handle,
        deadline: u64,
        key: Key,
        token: u64,
    ) -> Result<(), Ended> {
        match self.release_at(*now, handle, deadline, token) {
            Ok(()) => Ok(()),
            Err(begun) => {
                let released = self.release_more(begun, handle, key, token, *now);
                *now = self.time.now();
                released
            }
        }
    }
}
