//! The contract over any place that can keep slots: the machine of `slot/`, a clock, and somebody to tell.
//!
//! A place only has to let one operation at a time have a slot, and to make its changes last before it answers.

use async_trait::async_trait;
use tokio::sync::broadcast;

use super::blob::Blob;
use super::contract::*;
use super::error::StoreError;
use super::ids::EventId;
use super::slot::{Decision, SlotData};
use crate::mutants::{self, Mutant};
use crate::state::{CallId, Id, Slot};

/// Where slots are kept. The time an operation gets is read while it has the slot to itself, so that within a slot
/// time never goes back.
pub trait Cells: Send + Sync + 'static {
    /// Lets `decide` look at a slot, makes the changes it asks for last, and only then answers.
    fn decide<T: Send>(
        &self,
        slot: &Slot,
        decide: impl FnOnce(&SlotData, Millis) -> Result<Decision<T>, StoreError> + Send,
    ) -> impl Future<Output = Result<Decided<T>, StoreError>> + Send;

    fn look<T: Send>(
        &self,
        slot: &Slot,
        look: impl FnOnce(&SlotData, Millis) -> T + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send;

    /// All sessions of a user that have not run out, in any order.
    fn sessions(&self, user: &Id) -> impl Future<Output = Result<Vec<SessionRow>, StoreError>> + Send;

    fn overdue(&self, limit: usize) -> impl Future<Output = Result<Vec<Slot>, StoreError>> + Send;

    fn ping(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// What came of a decision whose changes have been made.
#[derive(Debug)]
pub struct Decided<T> {
    pub outcome: T,
    pub announce: bool,
    /// The slot has work now, and nobody at it.
    pub orphaned: bool,
}

pub struct Machine<C> {
    limits: Limits,
    cells: C,
    announcements: broadcast::Sender<Announcement>,
}

impl<C: Cells> Machine<C> {
    pub(super) fn over(cells: C, limits: Limits) -> Self {
        let (announcements, _) = broadcast::channel(1024);
        Self { limits, cells, announcements }
    }

    #[cfg(feature = "mutants")]
    pub(super) fn cells(&self) -> &C {
        &self.cells
    }

    async fn decide<T: Send>(
        &self,
        slot: &Slot,
        decide: impl FnOnce(&SlotData, Millis, &Limits) -> Result<Decision<T>, StoreError> + Send,
    ) -> Result<T, StoreError> {
        let decided = self.cells.decide(slot, |data, now| decide(data, now, &self.limits)).await?;
        if decided.announce {
            // Nobody listening is fine: a hint is all it is.
            let announcement = Announcement { slot: slot.clone(), orphaned: decided.orphaned };
            let _ = self.announcements.send(announcement);
        }
        Ok(decided.outcome)
    }
}

#[async_trait]
impl<C: Cells> Store for Machine<C> {
    async fn begin(&self, slot: &Slot, begin: &Begin) -> Result<Begun, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.begin(now, limits, begin))).await
    }

    async fn claim(&self, slot: &Slot, claim: &Claim) -> Result<Claimed, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.claim(now, limits, claim))).await
    }

    async fn append(&self, slot: &Slot, append: &Append) -> Result<Pulse, StoreError> {
        self.decide(slot, |data, now, limits| data.append(now, limits, append)).await
    }

    async fn renew(&self, slot: &Slot, renew: &Renew) -> Result<Pulse, StoreError> {
        self.decide(slot, |data, now, limits| data.renew(now, limits, renew)).await
    }

    async fn commit(&self, slot: &Slot, commit: &Commit) -> Result<Committed, StoreError> {
        self.decide(slot, |data, now, limits| data.commit(now, limits, commit)).await
    }

    async fn suspend(&self, slot: &Slot, suspend: &Suspend) -> Result<(), StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.suspend(now, limits, suspend))).await
    }

    async fn interrupt(&self, slot: &Slot, call: &CallId, mark: &Blob) -> Result<Interrupted, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.interrupt(now, limits, call, mark))).await
    }

    async fn retry(&self, slot: &Slot, retry: &Retry) -> Result<Retried, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.retry(now, limits, retry))).await
    }

    async fn rewrite(&self, slot: &Slot, rewrite: &Rewrite) -> Result<Rewritten, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.rewrite(now, limits, rewrite))).await
    }

    async fn delete(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.decide(slot, |data, now, limits| Ok(data.delete(now, limits))).await
    }

    async fn load(&self, slot: &Slot, last: Option<usize>) -> Result<Option<Loaded>, StoreError> {
        self.cells.look(slot, |data, _| data.load(last)).await
    }

    async fn status(&self, slot: &Slot, call: &CallId) -> Result<CallStatus, StoreError> {
        self.cells.look(slot, |data, now| data.status(now, call)).await
    }

    async fn live(&self, slot: &Slot) -> Result<Vec<LiveCall>, StoreError> {
        self.cells.look(slot, SlotData::live).await
    }

    async fn events(
        &self,
        slot: &Slot,
        call: &CallId,
        after: Option<EventId>,
    ) -> Result<EventPage, StoreError> {
        self.cells.look(slot, |data, now| data.events(now, call, after)).await
    }

    async fn list(&self, user: &Id, limit: usize, cursor: Option<&str>) -> Result<SessionPage, StoreError> {
        Ok(SessionPage::of(self.cells.sessions(user).await?, limit, cursor))
    }

    async fn overdue(&self, _bucket: u8, limit: usize) -> Result<Vec<Slot>, StoreError> {
        if mutants::is(Mutant::DueForgotten) {
            return Ok(Vec::new());
        }
        self.cells.overdue(limit).await
    }

    fn buckets(&self) -> u8 {
        1
    }

    fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.announcements.subscribe()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.cells.ping().await
    }

    fn is_local(&self) -> bool {
        true
    }
}
