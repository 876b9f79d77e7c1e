//! The holder's side of a lease: journal, signs of life, events, and the certainty that it is still ours.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};

use super::Shared;
use super::board::{DeskRef, Feed, FeedEnd};
use super::settings::{Durability, waits};
use crate::mutants::{self, Mutant};
use crate::state::{CallId, Slot};
use crate::store::{
    Append, Blob, Commit, Committed, EventId, EventName, HeadCall, LoggedEvent, Millis, NewEvent, Pulse,
    Renew, Step, StepKind, StoreError, Suspend, Token,
};

/// This run must end without another word: whatever it still has in hand belongs to somebody else.
#[derive(Debug)]
pub struct Lost(pub StoreError);

pub struct Lease {
    shared: Arc<Shared>,
    pub slot: Slot,
    pub token: Token,
    pub call: CallId,
    pub desk: DeskRef,
    feed: Arc<Feed>,
    /// Entries in the store's journal.
    journalled: usize,
    /// Steps not yet there, in order.
    unsaved: Vec<Step>,
    next_seq: u64,
    /// Events not yet there, in order.
    pending: Vec<NewEvent>,
    /// When the last answered sign of life was *sent*: the lease lasts at least so long from then.
    confirmed: Instant,
    /// A sign of life went unanswered: ask before doing anything that cannot be undone.
    unsure: bool,
    ran_before: Millis,
    taken: Instant,
    pub pulse: Pulse,
}

impl Lease {
    pub fn new(
        shared: Arc<Shared>,
        slot: Slot,
        desk: DeskRef,
        token: Token,
        call: &HeadCall,
        sent: Instant,
    ) -> Self {
        let feed = desk.open_feed(&call.id, false);
        Self {
            shared,
            slot,
            token,
            desk,
            feed,
            call: call.id.clone(),
            journalled: call.steps.len(),
            unsaved: Vec::new(),
            next_seq: 1,
            pending: Vec::new(),
            confirmed: sent,
            unsure: false,
            ran_before: call.ran,
            taken: Instant::now(),
            pulse: Pulse { mark: call.mark.clone(), stream: call.stream },
        }
    }

    /// The lease stays, the call is the next one.
    pub fn turn_to(&mut self, call: &HeadCall) {
        self.feed = self.desk.open_feed(&call.id, false);
        self.call = call.id.clone();
        self.journalled = call.steps.len();
        self.unsaved.clear();
        self.pending.clear();
        self.next_seq = 1;
        self.ran_before = call.ran;
        self.taken = Instant::now();
        self.pulse = Pulse { mark: call.mark.clone(), stream: call.stream };
    }

    /// Time this call has run, on every replica that had it.
    pub fn ran(&self) -> Millis {
        self.ran_before + Millis::try_from(self.taken.elapsed().as_millis()).unwrap_or(0)
    }

    pub fn event(&mut self, name: EventName, data: Blob) {
        self.event_with(name, data, None);
    }

    fn event_with(&mut self, name: EventName, data: Blob, message: Option<usize>) {
        self.pending.push(NewEvent { seq: self.next_seq, name, data, message });
        self.next_seq += 1;
    }

    /// Where the next unsaved step will stand among the steps it is sent with.
    pub fn next_place(&self) -> usize {
        self.unsaved.len()
    }

    pub fn event_about(&mut self, place: usize, name: EventName, data: Blob) {
        self.event_with(name, data, Some(place));
    }

    pub fn keep(&mut self, step: Step) {
        self.unsaved.push(step);
    }

    /// Writes the unsaved steps down. `durable: false` may wait for a better moment, where the manifest allows it.
    /// Where the store refuses them, they are tried again until `patience` ends or somebody wants the call stopped, and the
    /// lease is kept meanwhile: `false`, and they go with the commit.
    pub async fn journal(&mut self, durable: bool, patience: Option<Instant>) -> Result<bool, Lost> {
        if self.unsaved.is_empty() || (!durable && self.shared.settings.durability == Durability::Call) {
            return Ok(true);
        }
        let append = Append {
            token: self.token,
            call: self.call.clone(),
            at: self.journalled,
            steps: std::mem::take(&mut self.unsaved),
            ran: self.ran(),
            events: std::mem::take(&mut self.pending),
        };
        let store = Arc::clone(&self.shared.store);
        let (mut pause, mut may_be_there) = (waits::RETRY_FIRST, false);
        let (pulse, sent) = loop {
            let sent = Instant::now();
            let error = match store.append(&self.slot, &append).await {
                Ok(pulse) => break (pulse, sent),
                Err(error) => error,
            };
            if mutants::is(Mutant::GoOnAfterReconnectUnchecked) {
                self.journalled += append.steps.len();
                return Ok(true);
            }
            if let StoreError::LeaseLost | StoreError::Corrupt(_) = error {
                return Err(Lost(error));
            }
            tracing::warn!(error = error.label(), "the store did not take a step; trying again");
            may_be_there |= error.may_have_happened();
            let over =
                patience.is_some_and(|patience| Instant::now() >= patience || self.pulse.mark.is_some());
            if over && !may_be_there {
                self.unsaved = append.steps;
                self.pending.splice(0..0, append.events);
                return Ok(false);
            }
            sleep(pause).await;
            pause = (pause * 2).min(waits::RETRY_LONGEST).min(self.shared.settings.lease / 3);
            // A store that takes nothing new still renews: nobody else is to take the call for dead.
            self.beat().await?;
        };
        self.journalled += append.steps.len();
        let messages: Vec<_> = append.steps.into_iter().map(|step| step.bytes).collect();
        self.heard(pulse, sent, append.events, &messages);
        Ok(true)
    }

    /// A sign of life, with the events there are. Not answered is not lost: the next one may be.
    pub async fn beat(&mut self) -> Result<(), Lost> {
        let sendable = self.pending.iter().take_while(|event| event.message.is_none()).count();
        let events: Vec<_> = self.pending.drain(..sendable).collect();
        let renew = Renew { token: self.token, call: self.call.clone(), ran: self.ran(), events };
        let sent = Instant::now();
        match self.shared.store.renew(&self.slot, &renew).await {
            Ok(pulse) => self.heard(pulse, sent, renew.events, &[]),
            Err(error @ (StoreError::LeaseLost | StoreError::Corrupt(_))) => return Err(Lost(error)),
            Err(error) => {
                tracing::warn!(slot = %self.slot, error = error.label(), "a lease could not be renewed");
                self.unsure = true;
                self.pending.splice(0..0, renew.events);
            }
        }
        Ok(())
    }

    /// Before anything that cannot be undone: the lease is ours, and will be for a while.
    pub async fn make_sure(&mut self) -> Result<(), Lost> {
        let stale = self.confirmed.elapsed() > self.shared.settings.lease * 2 / 3;
        if !(stale || self.unsure) {
            return Ok(());
        }
        let renew = Renew { token: self.token, call: self.call.clone(), ran: self.ran(), events: Vec::new() };
        let store = Arc::clone(&self.shared.store);
        let (pulse, sent) = patiently(|| store.renew(&self.slot, &renew)).await?;
        self.heard(pulse, sent, Vec::new(), &[]);
        Ok(())
    }

    /// When the next sign of life is due if nothing else is said.
    pub fn next_beat(&self) -> Instant {
        let third = self.shared.settings.lease / 3;
        if self.unsure {
            Instant::now() + third.min(Duration::from_millis(250))
        } else {
            self.confirmed + third
        }
    }

    /// Steps that are to go with the commit instead of the journal, as the messages they become.
    pub fn take_unsaved(&mut self) -> Vec<Blob> {
        let steps = std::mem::take(&mut self.unsaved);
        let is_message = |step: &Step| step.kind != StepKind::Intent;
        for place in self.pending.iter_mut().filter_map(|event| event.message.as_mut()) {
            *place = steps[..*place].iter().filter(|step| is_message(step)).count();
        }
        steps.into_iter().filter(is_message).map(|step| step.bytes).collect()
    }

    pub fn take_events(&mut self) -> Vec<NewEvent> {
        std::mem::take(&mut self.pending)
    }

    /// The same event, after all that there are now.
    pub fn renumbered(&mut self, event: NewEvent) -> NewEvent {
        let seq = self.next_seq;
        self.next_seq += 1;
        NewEvent { seq, ..event }
    }

    /// Marks of whoever wants the call stopped, as far as this holder knows them: [`Commit::marks_seen`].
    pub fn marks_seen(&self) -> usize {
        self.pulse.mark.as_ref().map_or(0, |marks| marks.len())
    }

    /// What it carried is published, and gone from it, once it is done.
    pub async fn commit(&mut self, commit: &mut Commit) -> Result<Committed, Lost> {
        let store = Arc::clone(&self.shared.store);
        let (committed, sent) = patiently(|| store.commit(&self.slot, commit)).await?;
        if let Committed::Done { .. } = committed {
            let pulse = self.pulse.clone();
            self.heard(pulse, sent, std::mem::take(&mut commit.events), &commit.messages);
        }
        Ok(committed)
    }

    /// Gives the call back for another replica.
    pub async fn suspend(&mut self) -> Result<(), Lost> {
        self.journal(true, None).await?;
        let suspend = Suspend {
            token: self.token,
            call: self.call.clone(),
            ran: self.ran(),
            park: self.shared.settings.park,
            events: std::mem::take(&mut self.pending),
        };
        let store = Arc::clone(&self.shared.store);
        let ((), sent) = patiently(|| store.suspend(&self.slot, &suspend)).await?;
        let pulse = self.pulse.clone();
        self.heard(pulse, sent, suspend.events, &[]);
        Ok(())
    }

    pub fn end_feed(&self, end: FeedEnd) {
        self.desk.end_feed(&self.call, &self.feed, end);
    }

    fn heard(&mut self, pulse: Pulse, sent: Instant, events: Vec<NewEvent>, messages: &[Blob]) {
        self.confirmed = sent;
        self.unsure = false;
        self.pulse = pulse;
        if events.is_empty() {
            return;
        }
        let fence = self.token.fence;
        let logged = events.into_iter().map(|event| LoggedEvent {
            id: EventId { fence, seq: event.seq },
            name: event.name,
            data: event.data,
            message: event.message.and_then(|place| messages.get(place).cloned()),
        });
        self.desk.publish(&self.feed, logged);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // However a run ends, nobody waits for its feed: they look into the store instead.
        self.end_feed(FeedEnd::Lost);
    }
}

/// Tries until the store has said yes or no. The same request every time: sent twice it is carried out once.
async fn patiently<'a, T>(
    operation: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
) -> Result<(T, Instant), Lost> {
    let mut pause = waits::RETRY_FIRST;
    loop {
        let sent = Instant::now();
        match operation().await {
            Ok(answer) => return Ok((answer, sent)),
            Err(error @ (StoreError::LeaseLost | StoreError::Corrupt(_))) => return Err(Lost(error)),
            Err(error) => {
                tracing::warn!(error = error.label(), "the store did not take a step; trying again");
                sleep(pause).await;
                pause = (pause * 2).min(waits::RETRY_LONGEST);
            }
        }
    }
}
