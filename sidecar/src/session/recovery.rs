//! Work nobody has: found by looking, faster by listening. No client's help is needed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::settings::{OVERDUE_BATCH, waits};
use crate::state::Slot;
use crate::store::StoreError;

impl Shared {
    /// Wakes local waiters when the store announces something, and takes what was given back.
    pub async fn listen(self: Arc<Self>) {
        let mut announcements = self.store.announcements();
        loop {
            match announcements.recv().await {
                Ok(announcement) => {
                    self.board.announce(&announcement.slot);
                    if announcement.orphaned && self.has_room() {
                        let shared = Arc::clone(&self);
                        self.errands.spawn(async move {
                            let taken = shared.take_over(&announcement.slot).await;
                            shared.note(taken.map(drop));
                        });
                    }
                }
                Err(RecvError::Lagged(_)) => self.board.announce_all(),
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Looks for overdue slots, once a second and again at once while there are more.
    pub async fn look_for_work(self: Arc<Self>) {
        loop {
            let started = Instant::now();
            let mut more = false;
            if self.has_room() {
                for bucket in 0..self.store.buckets() {
                    match self.take_overdue(bucket).await {
                        Ok(full) => more |= full,
                        Err(error) => {
                            self.note(Err(error));
                            break;
                        }
                    }
                }
            }
            if !more {
                sleep_until(started + waits::POLL).await;
            }
        }
    }

    /// `true` where the bucket has more than one batch and this replica made progress with it.
    async fn take_overdue(self: &Arc<Self>, bucket: u8) -> Result<bool, StoreError> {
        let mut slots = self.store.overdue(bucket, OVERDUE_BATCH).await?;
        let full = slots.len() == OVERDUE_BATCH;
        // Replicas that look at the same moment do not queue up for the same slot: each has an order of its own.
        slots.sort_by_cached_key(|slot| own_order(&self.settings.replica, slot));
        let mut progress = false;
        for slot in slots {
            if !self.has_room() {
                return Ok(false);
            }
            match self.take_over(&slot).await {
                Ok(taken) => progress |= taken,
                // One slot's trouble is not its neighbours'.
                Err(error) => self.note(Err(error)),
            }
        }
        Ok(full && progress)
    }

    fn note(&self, result: Result<(), StoreError>) {
        if let Err(error) = result {
            tracing::warn!(error = error.label(), "looking for work failed: {error}");
        }
    }
}

fn own_order(replica: &str, slot: &Slot) -> u64 {
    let mut hash = DefaultHasher::new();
    (replica, slot).hash(&mut hash);
    hash.finish()
}
