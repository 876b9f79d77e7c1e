//! Slots in memory, within a bound of bytes. Nothing depends on what is here: a slot that is not is read again.
//!
//! One exception: a slot whose lease is held stays, because the end of a lease is known to this process alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as Turnstile, OwnedMutexGuard};

use super::slot_file::SlotFile;
use crate::state::Slot;

/// A slot, for one operation at a time; `None` until it has been read.
pub(super) type Cell = Option<SlotFile>;
pub(super) type Turn = OwnedMutexGuard<Cell>;

/// What an entry costs beside its messages.
const OVERHEAD: usize = 1024;

pub(super) struct Cache {
    limit: usize,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    entries: HashMap<Slot, Entry>,
    bytes: usize,
    uses: u64,
}

struct Entry {
    cell: Arc<Turnstile<Cell>>,
    bytes: usize,
    last_use: u64,
    held: bool,
}

impl Cache {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, inner: Mutex::default() }
    }

    /// Waits for this slot's turn.
    pub(super) async fn turn(&self, slot: &Slot) -> Turn {
        self.cell(slot).lock_owned().await
    }

    /// This slot's turn, unless somebody has it.
    pub(super) fn try_turn(&self, slot: &Slot) -> Option<Turn> {
        self.cell(slot).try_lock_owned().ok()
    }

    fn cell(&self, slot: &Slot) -> Arc<Turnstile<Cell>> {
        let inner = &mut *self.inner();
        inner.uses += 1;
        let entry = inner.entries.entry(slot.clone()).or_insert_with(|| {
            inner.bytes += OVERHEAD;
            Entry { cell: Arc::default(), bytes: OVERHEAD, last_use: 0, held: false }
        });
        entry.last_use = inner.uses;
        entry.cell.clone()
    }

    /// Takes note of what a slot weighs, at the end of its turn, and makes room.
    pub(super) fn weigh(&self, slot: &Slot, turn: &Turn) {
        let inner = &mut *self.inner();
        if let Some(entry) = inner.entries.get_mut(slot) {
            let bytes = OVERHEAD + turn.as_ref().map_or(0, SlotFile::bytes);
            inner.bytes = inner.bytes - entry.bytes + bytes;
            entry.bytes = bytes;
            entry.held = turn.as_ref().is_some_and(|file| file.data().head.token.is_some());
        }
        if inner.bytes > self.limit {
            inner.evict(self.limit / 8 * 7);
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Every change of the map is a whole one.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// Drops the longest unused slots. One that only the map knows is in nobody's turn, and nobody can ask for a turn
    /// without the map.
    fn evict(&mut self, target: usize) {
        let idle = |entry: &Entry| !entry.held && Arc::strong_count(&entry.cell) == 1;
        let mut oldest: Vec<(u64, Slot)> = self
            .entries
            .iter()
            .filter(|(_, entry)| idle(entry))
            .map(|(slot, entry)| (entry.last_use, slot.clone()))
            .collect();
        oldest.sort_unstable();
        for (_, slot) in oldest {
            if self.bytes <= target {
                break;
            }
            self.bytes -= self.entries.remove(&slot).map_or(0, |entry| entry.bytes);
        }
    }
}
