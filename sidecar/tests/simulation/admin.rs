//! Clients that change a session by hand: delete, clear, PUT, fork.

use std::time::Duration;

use holdfast_sidecar::session::StateChangeError;
use holdfast_sidecar::state::{Block, Message, Share};
use holdfast_sidecar::store::{Condition, StoreError};
use tokio::time::timeout;

use super::client::Client;
use super::pod::Process;
use super::world::{Upheaval, UpheavalKind};

const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a change took effect; `None` where nobody knows.
fn effect<T>(outcome: &Option<Option<Result<T, StateChangeError>>>) -> Option<bool> {
    match outcome {
        Some(Some(Ok(_))) => Some(true),
        Some(Some(Err(StateChangeError::Store(StoreError::Unanswered(_))))) | Some(None) | None => None,
        Some(Some(Err(_))) => Some(false),
    }
}

impl Client {
    fn upheaval(&self, slot: usize, kind: UpheavalKind, from: u64, done: Option<bool>) {
        self.world.trace(|| format!("client did {kind:?} on slot {slot}: {done:?}"));
        if done != Some(false) {
            self.world.count(match kind {
                UpheavalKind::Delete => "deletes",
                UpheavalKind::Clear => "clears",
                UpheavalKind::Redact => "redactions",
                UpheavalKind::Annotate => "annotations",
                UpheavalKind::Fork { .. } => "forks",
            });
        }
        let to = self.world.moment();
        self.world.ledger().upheavals.push(Upheaval { slot, kind, from, to, done });
    }

    pub async fn delete(&self, slot: usize) {
        let Some(process) = self.pick() else { return };
        let from = self.world.moment();
        let done = self.deleted(&process, slot).await;
        self.upheaval(slot, UpheavalKind::Delete, from, done);
    }

    async fn deleted(&self, process: &Process, slot: usize) -> Option<bool> {
        let slot = &self.world.plan.slots[slot];
        match timeout(PATIENCE, process.gate.serve(process.sessions.delete(slot))).await {
            Ok(Some(Ok(deleted))) => Some(deleted),
            Ok(Some(Err(StoreError::Unavailable(_)))) => Some(false),
            _ => None,
        }
    }

    pub async fn clear(&self, slot: usize) {
        let Some(process) = self.pick() else { return };
        let from = self.world.moment();
        let clearing = process.sessions.clear(&self.world.plan.slots[slot]);
        let done = effect(&timeout(PATIENCE, process.gate.serve(clearing)).await.ok());
        self.upheaval(slot, UpheavalKind::Clear, from, done);
    }

    /// Nothing may be lost by this: it names the version it read.
    pub async fn annotate(&self, slot: usize) {
        let Some(process) = self.pick() else { return };
        let from = self.world.moment();
        let name = &self.world.plan.slots[slot];
        let text = format!("#{}/note{from}# by hand", self.world.plan.home_of(slot));
        let putting = async {
            let mut state = process.sessions.state(name, None).await?.ok_or(StateChangeError::NoSession)?;
            state.context.push(Message::user(text.clone()));
            let version = Condition::Version(state.version);
            process.sessions.put_state(name, &state, version).await
        };
        let done = effect(&timeout(PATIENCE, process.gate.serve(putting)).await.ok());
        self.world.ledger().annotations.push((slot, text, done));
        self.upheaval(slot, UpheavalKind::Annotate, from, done);
    }

    /// The same history but for one text, under another epoch: a cache that takes one for the other is found out.
    pub async fn redact(&self, slot: usize) {
        let (Some(process), Some(other)) = (self.pick(), self.pick()) else { return };
        let from = self.world.moment();
        let name = &self.world.plan.slots[slot];
        let Ok(Some(Ok(Some(mut state)))) =
            timeout(PATIENCE, process.gate.serve(process.sessions.state(name, None))).await
        else {
            return;
        };
        let deleted = self.deleted(&process, slot).await;
        if let Some(first) = state.context.first_mut() {
            first.content = vec![Block::text("[redacted]")];
        }
        if deleted == Some(true) {
            let putting = other.sessions.put_state(name, &state, Condition::Absent);
            let put = effect(&timeout(PATIENCE, other.gate.serve(putting)).await.ok());
            self.world.trace(|| format!("client puts the redacted state of slot {slot} back: {put:?}"));
        }
        self.upheaval(slot, UpheavalKind::Redact, from, deleted);
    }

    pub async fn fork(&self, slot: usize, into: usize) {
        let Some(process) = self.pick() else { return };
        let from = self.world.moment();
        let slots = &self.world.plan.slots;
        let forking = process.sessions.fork(&slots[slot], &slots[into], Share { history: true, state: true });
        let done = effect(&timeout(PATIENCE, process.gate.serve(forking)).await.ok());
        self.upheaval(into, UpheavalKind::Fork { from: slot }, from, done);
    }
}
