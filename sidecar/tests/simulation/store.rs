//! The way from one replica to the shared store: slow, cut, or losing the answer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use holdfast_sidecar::state::{CallId, Id, Slot};
use holdfast_sidecar::store::*;
use tokio::sync::broadcast;
use tokio::time::sleep;

use super::plan::Hearing;
use super::pod::Gate;
use super::world::World;

pub struct FaultyStore {
    world: Arc<World>,
    gate: Arc<Gate>,
    inner: Arc<MemoryStore>,
}

/// What becomes of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Fine,
    Undelivered,
    LostReply,
    CrashBefore,
    CrashAfter,
}

impl FaultyStore {
    pub fn new(world: &Arc<World>, gate: &Arc<Gate>, inner: &Arc<MemoryStore>) -> Arc<Self> {
        Arc::new(Self { world: Arc::clone(world), gate: Arc::clone(gate), inner: Arc::clone(inner) })
    }

    fn fate(&self) -> (Fate, u64) {
        if !self.world.troubled() {
            return (Fate::Fine, self.world.draw(|rng| rng.pick(&[0, 0, 1, 2])));
        }
        let odds = self.world.plan.odds;
        self.world.draw(|rng| {
            let travel =
                if rng.permille(odds.slow) { rng.between(100, 7_000) } else { rng.pick(&[0, 0, 1, 2]) };
            let n = rng.between(0, 999);
            let mut below = 0;
            let mut hit = |odds: u64| {
                below += odds;
                n < below
            };
            let fate = if hit(odds.undelivered) {
                Fate::Undelivered
            } else if hit(odds.lost_reply) {
                Fate::LostReply
            } else if hit(odds.crash_before) {
                Fate::CrashBefore
            } else if hit(odds.crash_after) {
                Fate::CrashAfter
            } else {
                Fate::Fine
            };
            (fate, travel)
        })
    }

    async fn crash(&self) {
        self.gate.kill();
        self.gate.pass().await;
    }

    /// Carries one operation there and its answer back.
    async fn carry<T>(
        &self,
        name: &'static str,
        about: &Slot,
        operation: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let who = &self.gate.name;
        self.gate.pass().await;
        let (fate, travel) = self.fate();
        if travel > 2 {
            self.world.count("slow operations");
        }
        let (there, back) = if travel % 2 == 0 { (travel, 0) } else { (0, travel) };
        if there > 0 {
            // What a process has sent arrives, whatever becomes of the process.
            sleep(Duration::from_millis(there)).await;
        }
        // A fault that was still on its way when the trouble ended is no fault.
        let fate = if self.world.troubled() { fate } else { Fate::Fine };
        if self.world.outage() || self.gate.partitioned() || fate == Fate::Undelivered {
            self.world.count("undelivered requests");
            self.world.trace(|| format!("{who} {name} {about} does not arrive"));
            sleep(Duration::from_millis(1)).await;
            self.gate.pass().await;
            return Err(StoreError::Unavailable("simulated".into()));
        }
        if fate == Fate::CrashBefore {
            self.world.count("kills before an operation");
            self.world.trace(|| format!("{who} dies before {name} {about}"));
            self.crash().await;
        }
        let answer = operation.await;
        let ok = if answer.is_ok() { "ok" } else { "refused" };
        self.world.trace(|| format!("{who} {name} {about} {ok}"));
        match fate {
            Fate::CrashAfter => {
                self.world.count("kills after an operation");
                self.world.trace(|| format!("{who} dies after {name} {about}"));
                self.crash().await;
            }
            Fate::LostReply => {
                self.world.count("lost replies");
                self.world.trace(|| format!("{who} {name} {about}: the reply is lost"));
                sleep(Duration::from_millis(self.world.draw(|rng| rng.pick(&[1, 40, 1_000])))).await;
                self.gate.pass().await;
                return Err(StoreError::Unanswered("simulated".into()));
            }
            _ if back > 0 => sleep(Duration::from_millis(back)).await,
            _ => {}
        }
        self.gate.pass().await;
        answer
    }

    fn granted(&self, slot: &Slot, grant: &Grant) {
        let call = &grant.call;
        if call.attempts_total > 0 {
            self.world.count("takeovers after a death");
        } else if call.resumes > 0 {
            self.world.count("takeovers after a suspension");
        }
        if call.attempts >= 2 {
            self.world.suspect(slot);
        }
        if grant.history.from > 0 {
            self.world.count("warm starts");
        }
        self.world.trace(|| {
            format!(
                "{} holds {slot}: {} attempts {}/{} resumes {} journal {} version {}",
                self.gate.name,
                call.id,
                call.attempts,
                call.attempts_total,
                call.resumes,
                call.steps.len(),
                grant.session.version
            )
        });
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn begin(&self, slot: &Slot, begin: &Begin) -> Result<Begun, StoreError> {
        self.carry("begin", slot, async {
            let begun = self.inner.begin(slot, begin).await;
            if let Ok(Begun::Granted(grant)) = &begun {
                self.granted(slot, grant);
            }
            begun
        })
        .await
    }

    async fn claim(&self, slot: &Slot, claim: &Claim) -> Result<Claimed, StoreError> {
        self.carry("claim", slot, async {
            let claimed = self.inner.claim(slot, claim).await;
            match &claimed {
                Ok(Claimed::Granted(grant)) => self.granted(slot, grant),
                Ok(Claimed::Left) => self.world.suspect(slot),
                _ => {}
            }
            claimed
        })
        .await
    }

    async fn append(&self, slot: &Slot, append: &Append) -> Result<Pulse, StoreError> {
        self.carry("append", slot, self.inner.append(slot, append)).await
    }

    async fn renew(&self, slot: &Slot, renew: &Renew) -> Result<Pulse, StoreError> {
        self.carry("renew", slot, self.inner.renew(slot, renew)).await
    }

    async fn commit(&self, slot: &Slot, commit: &Commit) -> Result<Committed, StoreError> {
        self.carry("commit", slot, self.inner.commit(slot, commit)).await
    }

    async fn suspend(&self, slot: &Slot, suspend: &Suspend) -> Result<(), StoreError> {
        self.carry("suspend", slot, self.inner.suspend(slot, suspend)).await
    }

    async fn interrupt(&self, slot: &Slot, call: &CallId, mark: &Blob) -> Result<Interrupted, StoreError> {
        self.carry("interrupt", slot, self.inner.interrupt(slot, call, mark)).await
    }

    async fn retry(&self, slot: &Slot, retry: &Retry) -> Result<Retried, StoreError> {
        self.carry("retry", slot, self.inner.retry(slot, retry)).await
    }

    async fn rewrite(&self, slot: &Slot, rewrite: &Rewrite) -> Result<Rewritten, StoreError> {
        self.carry("rewrite", slot, self.inner.rewrite(slot, rewrite)).await
    }

    async fn delete(&self, slot: &Slot) -> Result<bool, StoreError> {
        self.carry("delete", slot, self.inner.delete(slot)).await
    }

    async fn load(&self, slot: &Slot, last: Option<usize>) -> Result<Option<Loaded>, StoreError> {
        self.carry("load", slot, self.inner.load(slot, last)).await
    }

    async fn status(&self, slot: &Slot, call: &CallId) -> Result<CallStatus, StoreError> {
        self.carry("status", slot, self.inner.status(slot, call)).await
    }

    async fn live(&self, slot: &Slot) -> Result<Vec<LiveCall>, StoreError> {
        self.carry("live", slot, self.inner.live(slot)).await
    }

    async fn events(
        &self,
        slot: &Slot,
        call: &CallId,
        after: Option<EventId>,
    ) -> Result<EventPage, StoreError> {
        self.carry("events", slot, self.inner.events(slot, call, after)).await
    }

    async fn list(&self, user: &Id, limit: usize, cursor: Option<&str>) -> Result<SessionPage, StoreError> {
        self.inner.list(user, limit, cursor).await
    }

    async fn overdue(&self, bucket: u8, limit: usize) -> Result<Vec<Slot>, StoreError> {
        self.gate.pass().await;
        if self.world.outage() || self.gate.partitioned() {
            return Err(StoreError::Unavailable("simulated".into()));
        }
        self.inner.overdue(bucket, limit).await
    }

    fn buckets(&self) -> u8 {
        self.inner.buckets()
    }

    fn announcements(&self) -> broadcast::Receiver<Announcement> {
        let mut all = self.inner.announcements();
        if self.world.plan.hearing == Hearing::All {
            return all;
        }
        let (sender, heard) = broadcast::channel(64);
        let (world, gate) = (Arc::clone(&self.world), Arc::clone(&self.gate));
        tokio::spawn(async move {
            // The sender lives as long as the process: a closed channel would be news.
            while let Ok(announcement) = all.recv().await {
                let dropped = world.plan.hearing == Hearing::Nothing || world.draw(|rng| rng.permille(500));
                if dropped || gate.is_dead() {
                    world.count("announcements dropped");
                } else {
                    let _ = sender.send(announcement);
                }
            }
        });
        heard
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.inner.ping().await
    }

    fn is_local(&self) -> bool {
        false
    }
}
