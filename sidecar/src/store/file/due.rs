//! Which slots have live calls, so that a start need not read every conversation.
//!
//! On disk there is an empty file for each, named after the slot: there before its first call is answered, and still
//! there for a while after its last, because a conversation that goes on would only make it again.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::disk;
use super::folder::{Folder, refused};
use crate::state::Slot;
use crate::store::contract::Millis;
use crate::store::error::StoreError;
use crate::store::slot::SlotData;

/// How long a marker outlives the last call of its slot.
const LINGER: Millis = 60_000;

/// The slots that have a marker on disk. Only changed by whoever has the slot's turn.
#[derive(Default)]
pub(super) struct Due(Mutex<BTreeMap<Slot, Marked>>);

struct Marked {
    due: Option<Millis>,
    /// Without live calls since then.
    idle: Option<Millis>,
}

impl Due {
    fn marked(&self) -> MutexGuard<'_, BTreeMap<Slot, Marked>> {
        // Every change of the map is a whole one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that the next process will look at this slot.
    pub(super) fn mark(&self, folder: &Folder, slot: &Slot, now: Millis) -> Result<(), StoreError> {
        if self.marked().contains_key(slot) {
            return Ok(());
        }
        let marker = folder.marker(slot);
        let due = folder.due();
        disk::touch(&marker)
            .and_then(|()| disk::sync_folder(&due))
            .map_err(|error| refused(&marker, &error))?;
        self.marked().insert(slot.clone(), Marked { due: None, idle: Some(now) });
        Ok(())
    }

    /// Takes over a marker that was found on disk.
    pub(super) fn found(&self, slot: &Slot, data: &SlotData, now: Millis) {
        self.marked().insert(slot.clone(), Marked { due: None, idle: Some(now) });
        self.note(slot, data, now);
    }

    /// Takes note of where a slot stands.
    pub(super) fn note(&self, slot: &Slot, data: &SlotData, now: Millis) {
        if let Some(marked) = self.marked().get_mut(slot) {
            marked.due = data.due();
            marked.idle = data.queue.is_empty().then(|| marked.idle.unwrap_or(now));
        }
    }

    pub(super) fn overdue(&self, now: Millis, limit: usize) -> Vec<Slot> {
        let marked = self.marked();
        let overdue = marked.iter().filter(|(_, marked)| marked.due.is_some_and(|due| due <= now));
        overdue.map(|(slot, _)| slot.clone()).take(limit).collect()
    }

    /// Slots that have had no live call for a while.
    pub(super) fn idle(&self, now: Millis) -> Vec<Slot> {
        let marked = self.marked();
        let long_ago = |idle: Millis| idle + LINGER <= now;
        let idle = marked.iter().filter(|(_, marked)| marked.idle.is_some_and(long_ago));
        idle.map(|(slot, _)| slot.clone()).collect()
    }

    /// Removes the marker of a slot that is still idle. For whoever has its turn. That it may come back after a power
    /// failure does no harm.
    pub(super) fn unmark(&self, folder: &Folder, slot: &Slot) -> io::Result<()> {
        if self.marked().get(slot).is_some_and(|marked| marked.idle.is_some()) {
            fs::remove_file(folder.marker(slot))?;
            self.marked().remove(slot);
        }
        Ok(())
    }
}
