//! A run: one lease, one call after another, until the queue is empty, the lease is lost, or the replica stops.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::Shared;
use super::board::{DeskRef, FeedEnd};
use super::call::{Ran, Run};
use super::history::History;
use super::lease::Lease;
use super::settings::{SUSPICIOUS_DEATHS, waits};
use crate::state::{Entry, Slot};
use crate::store::{Claim, Claimed, Epoch, Grant, HeadCall, Nonce, StoreError};

/// Counts a run for as long as it lives.
struct Running(Arc<Shared>);

impl Running {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.running.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What whoever asked for a lease had in hand.
pub struct InHand {
    pub cached: Option<History>,
    /// Messages of the call's input: they need not be read again.
    pub said: Vec<Entry>,
    /// When the lease was asked for.
    pub sent: Instant,
    pub alone: Option<OwnedSemaphorePermit>,
}

impl Shared {
    pub fn claim_request(&self, cached: Option<&History>) -> Claim {
        Claim {
            holder: self.settings.replica.clone(),
            nonce: Nonce::random(),
            known: cached.map(History::known),
            epoch: Epoch::random(),
            leave: self.suspects(),
        }
    }

    /// Starts to work on a slot that was granted to this process. Nobody waits for it: a run outlives its clients.
    pub fn launch(
        self: &Arc<Self>,
        slot: Slot,
        desk: DeskRef,
        grant: Grant,
        hand: InHand,
    ) -> Result<(), StoreError> {
        let InHand { cached, said, sent, alone } = hand;
        let running = Running::new(self);
        let history = History::join(cached, grant.session, grant.history)?;
        let lease = Lease::new(Arc::clone(self), slot, desk, grant.token, &grant.call, sent);
        let shared = Arc::clone(self);
        self.runs.spawn(async move {
            shared.run(lease, history, grant.call, said, alone).await;
            drop(running);
        });
        Ok(())
    }

    /// Sends the same request again while nobody knows whether it was carried out. A lease that was granted and never seen
    /// would stand idle until it runs out, and count as a death of its holder.
    pub async fn until_known<'a, T>(
        &self,
        request: impl Fn() -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let give_up = Instant::now() + self.settings.lease / 3;
        let (mut pause, mut unknown) = (waits::RETRY_FIRST, None);
        loop {
            match request().await {
                Err(error) if error.may_have_happened() => unknown = Some(error),
                Err(error) if unknown.is_none() || !error.is_transient() => return Err(error),
                Err(_) => {}
                Ok(answer) => return Ok(answer),
            }
            if Instant::now() >= give_up
                && let Some(unknown) = unknown
            {
                return Err(unknown);
            }
            sleep(pause).await;
            pause = (pause * 2).min(waits::RETRY_LONGEST);
        }
    }

    /// Takes a slot that has work and nobody at it. `false` where there was nothing to take.
    pub async fn take_over(self: &Arc<Self>, slot: &Slot) -> Result<bool, StoreError> {
        let desk = self.board.desk(slot);
        let cached = self.cache.take(slot);
        let mut claim = self.claim_request(cached.as_ref());
        let mut sent = Instant::now();
        let mut claimed = self.until_known(|| self.store.claim(slot, &claim)).await;
        let mut alone = None;
        if let Ok(Claimed::Left) = claimed {
            alone = self.stand_alone();
            if alone.is_some() {
                (claim.leave, sent) = (0..0, Instant::now());
                claimed = self.until_known(|| self.store.claim(slot, &claim)).await;
            }
        }
        match claimed {
            Ok(Claimed::Granted(grant)) => {
                let hand = InHand { cached, said: Vec::new(), sent, alone };
                self.launch(slot.clone(), desk, *grant, hand)?;
                Ok(true)
            }
            Ok(Claimed::Held { .. } | Claimed::Left | Claimed::NothingToDo) => {
                if let Some(cached) = cached {
                    self.cache.put(slot, cached);
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Deaths of its holders that make a call a suspect: from here on it runs alone among its kind, so that a poisonous one
    /// takes no other with it for the last time.
    fn suspects(&self) -> Range<u32> {
        SUSPICIOUS_DEATHS..self.settings.recovery_attempts
    }

    /// Before the lease of a suspect is asked for: whoever held it while waiting for another would die with that one.
    pub fn stand_alone(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.suspect).try_acquire_owned().ok()
    }

    async fn run(
        self: Arc<Self>,
        mut lease: Lease,
        mut history: History,
        mut call: HeadCall,
        mut said: Vec<Entry>,
        mut alone: Option<OwnedSemaphorePermit>,
    ) {
        loop {
            let ran = match Run::new(&self, &mut lease, &mut history, call, &std::mem::take(&mut said)) {
                Ok(run) => {
                    let span = run.log_span();
                    run.run().instrument(span).await
                }
                Err(lost) => Err(lost),
            };
            drop(alone.take());
            match ran {
                Ok(Ran::Ended(Some(next))) => {
                    call = *next;
                    lease.turn_to(&call);
                }
                Ok(Ran::Ended(None)) => {
                    self.cache.put(&lease.slot, history);
                    return;
                }
                Ok(Ran::Suspended) => {
                    lease.end_feed(FeedEnd::Suspended { fence: lease.token.fence });
                    return;
                }
                Err(lost) => {
                    tracing::warn!(slot = %lease.slot, call = %lease.call.shown(), reason = lost.0.label(), "a run ended without its lease");
                    if let StoreError::Corrupt(_) = lost.0 {
                        lease.end_feed(FeedEnd::Broken(lost.0));
                    }
                    return;
                }
            }
        }
    }
}
