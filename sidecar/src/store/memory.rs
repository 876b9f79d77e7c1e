//! The contract in memory: the machine of `slot/` behind a lock. Lost with the process; for tests and first steps.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::clock::Clock;
use super::contract::{Limits, Millis, SessionRow};
use super::error::StoreError;
use super::machine::{Cells, Decided, Machine};
use super::slot::{Decision, SlotData};
use crate::state::{Id, Slot};

pub type MemoryStore = Machine<Memory>;

impl MemoryStore {
    /// A store on tokio's clock, which a test may pause.
    pub fn new(limits: Limits) -> Self {
        Self::with_clock(limits, Clock::tokio())
    }

    pub fn with_clock(limits: Limits, clock: Clock) -> Self {
        Self::over(Memory { clock, slots: Mutex::default() }, limits)
    }
}

/// Failover to a copy that lags behind, for tests: everything is as it was at an earlier moment.
#[cfg(feature = "mutants")]
impl MemoryStore {
    pub fn copy(&self) -> BTreeMap<Slot, SlotData> {
        self.cells().slots().clone()
    }

    pub fn fail_over_to(&self, copy: BTreeMap<Slot, SlotData>) {
        *self.cells().slots() = copy;
    }
}

pub struct Memory {
    clock: Clock,
    slots: Mutex<BTreeMap<Slot, SlotData>>,
}

impl Memory {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<Slot, SlotData>> {
        // A panic while the lock was held happened before any change was applied: the data is whole.
        self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Cells for Memory {
    async fn decide<T: Send>(
        &self,
        slot: &Slot,
        decide: impl FnOnce(&SlotData, Millis) -> Result<Decision<T>, StoreError> + Send,
    ) -> Result<Decided<T>, StoreError> {
        let mut slots = self.slots();
        let now = self.clock.now();
        let data = slots.entry(slot.clone()).or_default();
        data.forget(now);
        let decided = decide(data, now).map(|decision| {
            data.apply_all(decision.changes);
            Decided { outcome: decision.outcome, announce: decision.announce, orphaned: data.is_orphaned() }
        });
        if data.is_forgotten() {
            slots.remove(slot);
        }
        decided
    }

    async fn look<T: Send>(
        &self,
        slot: &Slot,
        look: impl FnOnce(&SlotData, Millis) -> T + Send,
    ) -> Result<T, StoreError> {
        let mut slots = self.slots();
        let now = self.clock.now();
        Ok(match slots.get_mut(slot) {
            Some(data) => {
                data.forget(now);
                look(data, now)
            }
            None => look(&SlotData::default(), now),
        })
    }

    async fn sessions(&self, user: &Id) -> Result<Vec<SessionRow>, StoreError> {
        let slots = self.slots();
        let now = self.clock.now();
        let of_user = slots.iter().filter(|(slot, _)| slot.user.as_ref() == Some(user));
        Ok(of_user.filter_map(|(slot, data)| data.head.row(&slot.session, now)).collect())
    }

    async fn overdue(&self, limit: usize) -> Result<Vec<Slot>, StoreError> {
        let slots = self.slots();
        let now = self.clock.now();
        let due = slots.iter().filter(|(_, data)| data.due().is_some_and(|due| due <= now));
        Ok(due.map(|(slot, _)| slot.clone()).take(limit).collect())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
