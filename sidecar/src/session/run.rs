//! A run: one lease, one call after another, until the queue is empty, the lease is lost, or the replica stops.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use futures::future::BoxFuture;
use tokio::time::{Instant, sleep};
use tracing::Instrument;

use super::Shared;
use super::board::{DeskRef, FeedEnd};
use super::call::{Ran, Run};
use super::history::History;
use super::lease::Lease;
use super::settings::waits;
use crate::state::Slot;
use crate::store::{Claim, Claimed, Epoch, Grant, Nonce, StoreError, Suspend};

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

impl Shared {
    pub fn claim_request(&self, cached: Option<&History>) -> Claim {
        Claim {
            holder: self.settings.replica.clone(),
            nonce: Nonce::random(),
            known: cached.map(History::known),
            epoch: Epoch::random(),
        }
    }

    /// Starts to work on a slot that was granted to this process. Nobody waits for it: a run outlives its clients.
    pub fn launch(
        self: &Arc<Self>,
        slot: Slot,
        desk: DeskRef,
        grant: Grant,
        cached: Option<History>,
        sent: Instant,
    ) -> Result<(), StoreError> {
        let running = Running::new(self);
        let history = History::join(cached, grant.session, grant.history)?;
        let lease = Lease::new(Arc::clone(self), slot, desk, grant.token, &grant.call, sent);
        let shared = Arc::clone(self);
        self.runs.spawn(async move {
            shared.run(lease, history, grant.call).await;
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
        if self.is_deferred(slot) {
            return Ok(false);
        }
        let desk = self.board.desk(slot);
        let cached = self.cache.take(slot);
        let claim = self.claim_request(cached.as_ref());
        let sent = Instant::now();
        match self.until_known(|| self.store.claim(slot, &claim)).await {
            Ok(Claimed::Granted(grant)) => {
                self.launch(slot.clone(), desk, *grant, cached, sent)?;
                Ok(true)
            }
            Ok(Claimed::Held { .. } | Claimed::NothingToDo) => {
                if let Some(cached) = cached {
                    self.cache.put(slot, cached);
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn run(self: Arc<Self>, mut lease: Lease, mut history: History, mut call: crate::store::HeadCall) {
        loop {
            // A call that has killed two replicas runs alone, so that it takes nobody with it. Who has to wait gives the
            // lease back: a holder that dies while waiting would count against it.
            let suspicious = call.attempts >= 2 && call.attempts < self.settings.recovery_attempts;
            let alone = if suspicious {
                match self.suspects.try_acquire() {
                    Ok(permit) => Some(permit),
                    Err(_) => return self.give_back(&lease, &call.id).await,
                }
            } else {
                None
            };
            let ran = match Run::new(&self, &mut lease, &mut history, call) {
                Ok(run) => {
                    let span = run.log_span();
                    run.run().instrument(span).await
                }
                Err(lost) => Err(lost),
            };
            drop(alone);
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
                    tracing::warn!(slot = %lease.slot, call = %lease.call, reason = lost.0.label(), "a run ended without its lease");
                    if let StoreError::Corrupt(_) = lost.0 {
                        lease.end_feed(FeedEnd::Broken(lost.0));
                    }
                    return;
                }
            }
        }
    }

    fn is_deferred(&self, slot: &Slot) -> bool {
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        deferred.retain(|_, until| *until > now);
        deferred.contains_key(slot)
    }

    async fn give_back(&self, lease: &Lease, call: &crate::state::CallId) {
        let until = Instant::now() + waits::POLL;
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).insert(lease.slot.clone(), until);
        let suspend = Suspend {
            token: lease.token,
            call: call.clone(),
            ran: lease.ran(),
            park: false,
            events: Vec::new(),
        };
        if let Err(error) = self.store.suspend(&lease.slot, &suspend).await {
            tracing::warn!(slot = %lease.slot, error = error.label(), "a lease could not be given back; it will run out");
        }
    }
}
