//! A call as its client sees it.

use serde::Serialize;

use super::end::{CallFailure, CallUsage, Document, RECOVERY_EXHAUSTED};
use crate::state::{CallId, Entry, Role};
use crate::store::{Blob, Ended, LiveCall, Reply, StoreError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Queued,
    Running,
    Suspended,
    Completed,
    Interrupted,
    Failed,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CallView {
    pub call_id: CallId,
    pub status: Status,
    /// What the assistant said last.
    pub text: String,
    /// What the call added after its input, as it is stored.
    pub messages: Vec<Blob>,
    pub usage: CallUsage,
    /// The state's version after it; absent while it is live.
    pub version: Option<u64>,
    pub resumes: u32,
    pub error: Option<CallFailure>,
    #[serde(skip_serializing_if = "is_zero")]
    pub messages_not_sent: usize,
    /// Why the answer ends before all was said: its last message's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl CallView {
    pub fn live(live: &LiveCall) -> Self {
        let status = match live {
            LiveCall { suspended: true, .. } => Status::Suspended,
            LiveCall { running: true, .. } => Status::Running,
            _ => Status::Queued,
        };
        let (text, stop_reason) = last_said(&live.messages);
        Self {
            call_id: live.id.clone(),
            status,
            text,
            messages: live.messages.clone(),
            usage: CallUsage::default(),
            version: None,
            resumes: live.resumes,
            error: None,
            messages_not_sent: 0,
            stop_reason,
        }
    }

    pub fn done(call: &CallId, reply: &Reply) -> Result<Self, StoreError> {
        let document: Document = serde_json::from_slice(&reply.document)
            .map_err(|error| StoreError::Corrupt(format!("a kept reply is not readable: {error}")))?;
        let status = match reply.ended {
            Ended::Completed => Status::Completed,
            Ended::Interrupted => Status::Interrupted,
            Ended::Failed => Status::Failed,
        };
        let (text, stop_reason) = last_said(&reply.messages);
        Ok(Self {
            call_id: call.clone(),
            status,
            text,
            messages: reply.messages.clone(),
            usage: document.usage,
            version: Some(document.version),
            resumes: document.resumes,
            error: document.error,
            messages_not_sent: document.messages_not_sent,
            stop_reason,
        })
    }

    /// Whether it ended because its replicas died of it, or with it.
    pub fn was_given_up(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.r#type == RECOVERY_EXHAUSTED)
    }
}

/// What the assistant said last, and why it stopped where it did not say all.
fn last_said(messages: &[Blob]) -> (String, Option<String>) {
    let entries = messages.iter().rev().map(|bytes| Entry::from_bytes(bytes.bytes().clone()));
    let mut parsed = entries.filter_map(|entry| entry.message().ok());
    let last = parsed.find(|message| message.role == Role::Assistant);
    last.map(|message| (message.text(), message.stop_reason().map(str::to_owned))).unwrap_or_default()
}
