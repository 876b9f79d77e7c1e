//! The contract in memory: the machine of `slot/` behind a lock. Lost with the process; for tests and first steps.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::blob::Blob;
use super::contract::*;
use super::error::StoreError;
use super::ids::EventId;
use super::slot::{Decision, SlotData};
use crate::mutants::{self, Mutant};
use crate::state::{CallId, Id, Slot};

/// A clock that goes with tokio's, so that a test with paused time can run years of leases in a moment.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    started: Instant,
    epoch: Millis,
}

impl Default for Clock {
    fn default() -> Self {
        let epoch = Millis::try_from(Timestamp::now().as_millisecond()).unwrap_or(0);
        Self { started: Instant::now(), epoch }
    }
}

impl Clock {
    pub fn now(&self) -> Millis {
        self.epoch + Millis::try_from(self.started.elapsed().as_millis()).unwrap_or(0)
    }
}

pub struct MemoryStore {
    limits: Limits,
    clock: Clock,
    slots: Mutex<BTreeMap<Slot, SlotData>>,
    announcements: broadcast::Sender<Announcement>,
}

impl MemoryStore {
    pub fn new(limits: Limits) -> Self {
        let (announcements, _) = broadcast::channel(1024);
        Self { limits, clock: Clock::default(), slots: Mutex::default(), announcements }
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<Slot, SlotData>> {
        // A panic while the lock was held happened before any change was applied: the data is whole.
        self.slots.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn decide<T>(
        &self,
        slot: &Slot,
        decide: impl FnOnce(&SlotData, Millis, &Limits) -> Result<Decision<T>, StoreError>,
    ) -> Result<T, StoreError> {
        let now = self.clock.now();
        let mut slots = self.slots();
        let data = slots.entry(slot.clone()).or_default();
        data.forget(now);
        let decision = decide(data, now, &self.limits)?;
        data.apply_all(decision.changes);
        let orphaned = data.is_orphaned();
        if data.is_forgotten() {
            slots.remove(slot);
        }
        drop(slots);
        if decision.announce {
            // Nobody listening is fine: a hint is all it is.
            let _ = self.announcements.send(Announcement { slot: slot.clone(), orphaned });
        }
        Ok(decision.outcome)
    }

    fn look<T>(&self, slot: &Slot, look: impl FnOnce(&SlotData, Millis) -> T) -> Result<T, StoreError> {
        let now = self.clock.now();
        let mut slots = self.slots();
        Ok(match slots.get_mut(slot) {
            Some(data) => {
                data.forget(now);
                look(data, now)
            }
            None => look(&SlotData::default(), now),
        })
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn begin(&self, slot: &Slot, begin: &Begin) -> Result<Begun, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.begin(now, limits, begin)))
    }

    async fn claim(&self, slot: &Slot, claim: &Claim) -> Result<Claimed, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.claim(now, limits, claim)))
    }

    async fn append(&self, slot: &Slot, append: &Append) -> Result<Pulse, StoreError> {
        self.decide(slot, |data, now, limits| data.append(now, limits, append))
    }

    async fn renew(&self, slot: &Slot, renew: &Renew) -> Result<Pulse, StoreError> {
        self.decide(slot, |data, now, limits| data.renew(now, limits, renew))
    }

    async fn commit(&self, slot: &Slot, commit: &Commit) -> Result<Committed, StoreError> {
        self.decide(slot, |data, now, limits| data.commit(now, limits, commit))
    }

    async fn suspend(&self, slot: &Slot, suspend: &Suspend) -> Result<(), StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.suspend(now, limits, suspend)))
    }

    async fn interrupt(&self, slot: &Slot, call: &CallId, mark: &Blob) -> Result<Interrupted, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.interrupt(now, limits, call, mark)))
    }

    async fn retry(&self, slot: &Slot, retry: &Retry) -> Result<Retried, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.retry(now, limits, retry)))
    }

    async fn rewrite(&self, slot: &Slot, rewrite: &Rewrite) -> Result<Rewritten, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.rewrite(now, limits, rewrite)))
    }

    async fn delete(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.delete(now, limits)))
    }

    async fn load(&self, slot: &Slot, last: Option<usize>) -> Result<Option<Loaded>, StoreError> {
        self.look(slot, |data, _| data.load(last))
    }

    async fn status(&self, slot: &Slot, call: &CallId) -> Result<CallStatus, StoreError> {
        self.look(slot, |data, now| data.status(now, call))
    }

    async fn live(&self, slot: &Slot) -> Result<Vec<LiveCall>, StoreError> {
        self.look(slot, SlotData::live)
    }

    async fn events(
        &self,
        slot: &Slot,
        call: &CallId,
        after: Option<EventId>,
    ) -> Result<EventPage, StoreError> {
        self.look(slot, |data, now| data.events(now, call, after))
    }

    async fn list(&self, user: &Id, limit: usize, cursor: Option<&str>) -> Result<SessionPage, StoreError> {
        let now = self.clock.now();
        let slots = self.slots();
        let rows = slots.iter().filter_map(|(slot, data)| {
            let live = data.exists() && data.head.expires > now && slot.user.as_ref() == Some(user);
            live.then(|| SessionRow {
                session: slot.session.clone(),
                updated: data.head.updated,
                version: data.head.version,
            })
        });
        Ok(SessionPage::of(rows.collect(), limit, cursor))
    }

    async fn overdue(&self, _bucket: u8, limit: usize) -> Result<Vec<Slot>, StoreError> {
        if mutants::is(Mutant::DueForgotten) {
            return Ok(Vec::new());
        }
        let now = self.clock.now();
        let slots = self.slots();
        let due = slots.iter().filter(|(_, data)| data.due().is_some_and(|due| due <= now));
        Ok(due.map(|(slot, _)| slot.clone()).take(limit).collect())
    }

    fn buckets(&self) -> u8 {
        1
    }

    fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.announcements.subscribe()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn is_local(&self) -> bool {
        true
    }
}
