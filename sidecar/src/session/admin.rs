//! Everything about a session but running a call: its state, its end, its copies.

use std::sync::Arc;

use super::document::StateDocument;
use super::end::Mark;
use super::error::CallError;
use super::history::read_loaded;
use super::{Sessions, reply};
use crate::state::{AgentState, CallId, Entry, Id, PairingError, Share, Slot, check_pairing};
use crate::store::{
    Blob, CallStatus, Condition, Epoch, Interrupted, LiveCall, Nonce, Rewrite, Rewritten, SessionPage,
    StoreError,
};

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum StateChangeError {
    #[error("the session changed meanwhile: it is at version {}, not the one named", version.map_or("none".into(), |v| v.to_string()))]
    Mismatch { version: Option<u64> },
    #[error("a call of this session is live; wait for its end or interrupt it")]
    SessionBusy,
    #[error("the state names another user or session than the path")]
    OtherIds,
    #[error("the history is not valid: {0}")]
    Pairing(#[from] PairingError),
    #[error("there is no such session")]
    NoSession,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Sessions {
    pub async fn status(&self, slot: &Slot, call: &CallId) -> Result<reply::CallView, CallError> {
        match self.shared.store.status(slot, call).await? {
            CallStatus::Live(live) => Ok(reply::CallView::live(&live)),
            CallStatus::Done(reply) => reply::CallView::done(call, &reply).map_err(CallError::from),
            CallStatus::Expired | CallStatus::Deleted | CallStatus::Unknown => Err(CallError::UnknownCall),
        }
    }

    /// Whether there is such a call to follow.
    pub async fn knows(&self, slot: &Slot, call: &CallId) -> Result<(), CallError> {
        match self.shared.store.status(slot, call).await? {
            CallStatus::Live(_) | CallStatus::Done(_) => Ok(()),
            CallStatus::Expired | CallStatus::Deleted | CallStatus::Unknown => Err(CallError::UnknownCall),
        }
    }

    pub async fn live(&self, slot: &Slot) -> Result<Vec<reply::CallView>, CallError> {
        Ok(self.shared.store.live(slot).await?.iter().map(reply::CallView::live).collect())
    }

    /// Stops one call: the named one, or the one at the head when this was asked.
    pub async fn interrupt(
        &self,
        slot: &Slot,
        call: Option<CallId>,
        message: Option<String>,
    ) -> Result<CallId, CallError> {
        let call = match call {
            Some(call) => call,
            None => {
                let live: Option<LiveCall> = self.shared.store.live(slot).await?.into_iter().next();
                live.ok_or(CallError::NoRunningCall)?.id
            }
        };
        let mark = Blob::json(&Mark { id: Nonce::random().to_string(), message });
        match self.shared.store.interrupt(slot, &call, &mark).await? {
            Interrupted::Marked => Ok(call),
            Interrupted::NoRunningCall => Err(CallError::NoRunningCall),
        }
    }

    pub async fn state(&self, slot: &Slot, last: Option<usize>) -> Result<Option<AgentState>, StoreError> {
        let Some(loaded) = self.shared.store.load(slot, last).await? else { return Ok(None) };
        let (head, meta, entries) = read_loaded(loaded)?;
        let mut state = AgentState::new(slot);
        state.version = head.version;
        state.revision = head.revision;
        state.turn_count = head.turns;
        state.shutdown_interrupted = head.interrupted;
        state.meta = meta;
        state.context =
            entries.iter().filter_map(|entry| entry.message().ok()).map(Arc::unwrap_or_clone).collect();
        Ok(Some(state))
    }

    /// The state as clients see it, its messages as they are stored.
    pub async fn document(
        &self,
        slot: &Slot,
        last: Option<usize>,
    ) -> Result<Option<StateDocument>, StoreError> {
        let Some(loaded) = self.shared.store.load(slot, last).await? else { return Ok(None) };
        StateDocument::new(slot, loaded).map(Some)
    }

    pub async fn put_state(
        &self,
        slot: &Slot,
        state: &AgentState,
        condition: Condition,
    ) -> Result<u64, StateChangeError> {
        if state.slot() != *slot {
            return Err(StateChangeError::OtherIds);
        }
        check_pairing(&state.context)?;
        self.rewrite(slot, state, condition).await
    }

    pub async fn clear(&self, slot: &Slot) -> Result<AgentState, StateChangeError> {
        let mut fresh = AgentState::new(slot);
        match self.rewrite(slot, &fresh, Condition::Exists).await {
            Ok(version) => {
                fresh.version = version;
                fresh.revision.clone_from(&self.shared.settings.revision);
                Ok(fresh)
            }
            Err(StateChangeError::Mismatch { .. }) => Err(StateChangeError::NoSession),
            Err(error) => Err(error),
        }
    }

    /// A new session that starts where this one stood at its last commit. Never over an existing one.
    pub async fn fork(&self, slot: &Slot, into: &Slot, share: Share) -> Result<AgentState, StateChangeError> {
        let state = self.state(slot, None).await?.ok_or(StateChangeError::NoSession)?;
        let mut fork = state.fork(into, share);
        fork.version = self.rewrite(into, &fork, Condition::Absent).await?;
        Ok(fork)
    }

    pub async fn sessions(
        &self,
        user: &Id,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<SessionPage, StoreError> {
        self.shared.store.list(user, limit, cursor).await
    }

    async fn rewrite(
        &self,
        slot: &Slot,
        state: &AgentState,
        condition: Condition,
    ) -> Result<u64, StateChangeError> {
        let rewrite = Rewrite {
            nonce: Nonce::random(),
            condition,
            epoch: Epoch::random(),
            messages: state
                .context
                .iter()
                .map(|message| Entry::new(message.clone()).raw().clone().into())
                .collect(),
            meta: Blob::from(state.meta.to_bytes()),
            turns: state.turn_count,
            revision: self.shared.settings.revision.clone(),
        };
        match self.shared.store.rewrite(slot, &rewrite).await? {
            Rewritten::Done { version } => {
                self.shared.keep_files(slot);
                Ok(version)
            }
            Rewritten::Mismatch { version } => Err(StateChangeError::Mismatch { version }),
            Rewritten::SessionBusy => Err(StateChangeError::SessionBusy),
        }
    }
}
