//! Why a call was not taken, or its end not seen.

use crate::state::CallId;
use crate::store::StoreError;

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CallError {
    #[error("this call id was used with other messages; take a new one")]
    Conflict,
    #[error("this call ended longer ago than its reply is kept; its turn is in the session's history")]
    ReplyExpired,
    #[error("the session was deleted; calls sent to it before are not run")]
    SessionDeleted,
    #[error(
        "a call of this session is running, and this agent takes one at a time; try again when it has ended"
    )]
    SessionBusy,
    #[error("too many calls wait in this session; try again when some have ended")]
    QueueFull,
    #[error("this replica runs as many calls as it may; try again")]
    Overloaded,
    /// Refused, or given back unfinished, by a replica that is about to stop.
    #[error("this replica is shutting down; send the same call again, with the same callId")]
    Draining { admitted: bool },
    #[error("there is no such call in this session")]
    UnknownCall,
    #[error("no call of this session is running or waiting")]
    NoRunningCall,
    #[error("only the last call of a session can be retried, and only if it failed")]
    NotRetryable,
    #[error("{error}")]
    Store {
        error: StoreError,
        call: Option<CallId>,
        /// Whether the call is in the store: `None` where nobody knows, and the same call id must be sent again.
        admitted: Option<bool>,
    },
}

impl CallError {
    pub(super) fn store(call: &CallId, admitted: Option<bool>) -> impl FnOnce(StoreError) -> Self {
        let call = Some(call.clone());
        move |error| Self::Store { error, call, admitted }
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Self::Store { error, call: None, admitted: None }
    }
}
