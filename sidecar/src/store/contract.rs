//! The contract of a store: what the session layer may ask, and every answer it can get.
//!
//! All operations on one slot are atomic and take effect in one order. Each is safe to send again after a lost reply:
//! the second answer is the first. Times are the store's own clock.

use std::ops::Range;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use tokio::sync::broadcast;

use super::blob::Blob;
use super::error::StoreError;
use super::ids::{Epoch, EventId, Nonce, Tail, Token};
use crate::state::{CallId, Id, Slot};

/// Milliseconds since the Unix epoch, by the store's clock.
pub type Millis = u64;

/// How many finished calls are remembered by id, however long ago they ended.
pub const REMEMBERED_CALLS: usize = 1000;

/// How long a store keeps things, and what it lets in. Fixed for the life of a process.
#[derive(Debug, Clone)]
pub struct Limits {
    pub lease: Duration,
    pub session_ttl: Duration,
    pub reply_ttl: Duration,
    pub event_ttl: Duration,
    /// Calls that may wait behind the running one.
    pub queue_limit: usize,
    /// Bytes of one call's event log; older events go first.
    pub event_log_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(6),
            session_ttl: Duration::from_secs(720 * 3600),
            reply_ttl: Duration::from_secs(24 * 3600),
            event_ttl: Duration::from_secs(600),
            queue_limit: 32,
            event_log_bytes: 1 << 20,
        }
    }
}

#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Admits a call, or finds it, and takes the lease where it is free.
    async fn begin(&self, slot: &Slot, begin: &Begin) -> Result<Begun, StoreError>;
    /// Takes the lease of a slot that has work, where it is free.
    async fn claim(&self, slot: &Slot, claim: &Claim) -> Result<Claimed, StoreError>;
    /// Journals steps of the running call, before their side effects.
    async fn append(&self, slot: &Slot, append: &Append) -> Result<Pulse, StoreError>;
    async fn renew(&self, slot: &Slot, renew: &Renew) -> Result<Pulse, StoreError>;
    /// Ends the call at the head: its messages into the history, its reply kept, the next call or nobody's lease.
    async fn commit(&self, slot: &Slot, commit: &Commit) -> Result<Committed, StoreError>;
    /// Gives the running call back unfinished, for another replica.
    async fn suspend(&self, slot: &Slot, suspend: &Suspend) -> Result<(), StoreError>;
    /// Marks one live call to be stopped. `mark` is opaque to the store.
    async fn interrupt(&self, slot: &Slot, call: &CallId, mark: &Blob) -> Result<Interrupted, StoreError>;
    /// Makes the last call, if it failed, live again.
    async fn retry(&self, slot: &Slot, retry: &Retry) -> Result<Retried, StoreError>;
    /// Replaces the history: PUT, clear, compaction and fork are all this.
    async fn rewrite(&self, slot: &Slot, rewrite: &Rewrite) -> Result<Rewritten, StoreError>;
    /// Removes a session for good. A run in progress is fenced off. `false` where there was nothing.
    async fn delete(&self, slot: &Slot) -> Result<bool, StoreError>;

    /// The committed state; `last` bounds the messages.
    async fn load(&self, slot: &Slot, last: Option<usize>) -> Result<Option<Loaded>, StoreError>;
    async fn status(&self, slot: &Slot, call: &CallId) -> Result<CallStatus, StoreError>;
    /// The live calls of a session, oldest first.
    async fn live(&self, slot: &Slot) -> Result<Vec<LiveCall>, StoreError>;
    async fn events(
        &self,
        slot: &Slot,
        call: &CallId,
        after: Option<EventId>,
    ) -> Result<EventPage, StoreError>;
    /// Sessions of a user, latest change first.
    async fn list(&self, user: &Id, limit: usize, cursor: Option<&str>) -> Result<SessionPage, StoreError>;
    /// Slots of a bucket that have work and nobody at it, at most `limit`.
    async fn overdue(&self, bucket: u8, limit: usize) -> Result<Vec<Slot>, StoreError>;
    /// How many buckets `overdue` must be asked for.
    fn buckets(&self) -> u8;

    /// Hints that something changed in a slot. They make waiting fast; nothing depends on them.
    fn announcements(&self) -> broadcast::Receiver<Announcement>;
    /// Whether the store answers at all.
    async fn ping(&self) -> Result<(), StoreError>;
    /// A store only this process can see: a suspended call can only be resumed by its own next process.
    fn is_local(&self) -> bool;
}

// ---- what is asked -------------------------------------------------------------------------------------------------

/// The history a caller already has, so that it is not sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    pub epoch: Epoch,
    pub version: u64,
    pub len: usize,
    pub tail: Tail,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OnBusy {
    Enqueue,
    Reject,
    Interrupt,
}

#[derive(Debug, Clone)]
pub struct Begin {
    pub call: CallId,
    /// Of the canonical messages alone: how a client wants its answer may differ on a retry.
    pub digest: String,
    /// One element a message.
    pub input: Vec<Blob>,
    /// The call's own context: reaches tools and traces, never the state.
    pub context: Blob,
    pub revision: String,
    /// Somebody wants to see the text as it comes.
    pub stream: bool,
    pub on_busy: OnBusy,
    /// `call.queued`, without its position, which the store knows.
    pub queued: Blob,
    pub claim: Claim,
}

#[derive(Debug, Clone)]
pub struct Claim {
    /// A name for people: which replica has it.
    pub holder: String,
    pub nonce: Nonce,
    pub known: Option<Known>,
    /// The epoch of the session, should this request create it.
    pub epoch: Epoch,
    /// A call whose holders have died so often since its last step, this grant counted, is not granted but left where it
    /// is: whoever wants to run it must see to it first that it takes nobody with it.
    pub leave: Range<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepKind {
    /// A model's reply that asks for tools.
    Message,
    /// A tool is about to run.
    Intent,
    /// A tool's result, as the message it becomes.
    Result,
}

/// One entry of the running call's journal: exactly one message, intent or result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub kind: StepKind,
    pub bytes: Blob,
}

/// An event to be logged under the holder's fence. A log skips what it already has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    pub seq: u64,
    pub name: EventName,
    /// A JSON object; for the last event of a call, nothing: it is the reply.
    pub data: Blob,
    /// The message the event carries: by its place among the messages this very operation sends.
    pub message: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventName {
    #[serde(rename = "call.queued")]
    Queued,
    #[serde(rename = "call.started")]
    Started,
    #[serde(rename = "message.delta")]
    Delta,
    #[serde(rename = "message.reset")]
    Reset,
    #[serde(rename = "message.completed")]
    MessageCompleted,
    #[serde(rename = "tool.started")]
    ToolStarted,
    #[serde(rename = "tool.finished")]
    ToolFinished,
    #[serde(rename = "call.suspended")]
    Suspended,
    #[serde(rename = "call.resumed")]
    Resumed,
    #[serde(rename = "call.completed")]
    Completed,
    #[serde(rename = "call.interrupted")]
    Interrupted,
    #[serde(rename = "call.failed")]
    Failed,
}

impl EventName {
    pub const ALL: [Self; 12] = [
        Self::Queued,
        Self::Started,
        Self::Delta,
        Self::Reset,
        Self::MessageCompleted,
        Self::ToolStarted,
        Self::ToolFinished,
        Self::Suspended,
        Self::Resumed,
        Self::Completed,
        Self::Interrupted,
        Self::Failed,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "call.queued",
            Self::Started => "call.started",
            Self::Delta => "message.delta",
            Self::Reset => "message.reset",
            Self::MessageCompleted => "message.completed",
            Self::ToolStarted => "tool.started",
            Self::ToolFinished => "tool.finished",
            Self::Suspended => "call.suspended",
            Self::Resumed => "call.resumed",
            Self::Completed => "call.completed",
            Self::Interrupted => "call.interrupted",
            Self::Failed => "call.failed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }

    /// The one event after which nothing comes.
    pub const fn ends_the_call(self) -> bool {
        matches!(self, Self::Completed | Self::Interrupted | Self::Failed)
    }
}

#[derive(Debug, Clone)]
pub struct Append {
    pub token: Token,
    /// A lease outlives a call: a late copy of this request must not reach the next one.
    pub call: CallId,
    /// How long the journal is before this: the same steps at the same place are the same request.
    pub at: usize,
    pub steps: Vec<Step>,
    /// How long the call has run in all, over every replica that had it.
    pub ran: Millis,
    pub events: Vec<NewEvent>,
}

#[derive(Debug, Clone)]
pub struct Renew {
    pub token: Token,
    pub call: CallId,
    pub ran: Millis,
    pub events: Vec<NewEvent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    Completed,
    Interrupted,
    Failed,
}

#[derive(Debug, Clone)]
pub struct Commit {
    pub token: Token,
    pub version: u64,
    pub call: CallId,
    /// Model replies in the whole history, after this.
    pub turns: u64,
    /// `None` where nothing in it changed.
    pub meta: Option<Blob>,
    pub revision: String,
    /// What comes after the call's input and the messages and results in its journal, which the store has already.
    pub messages: Vec<Blob>,
    pub ended: Ended,
    /// The reply without its messages, which the store has already.
    pub reply: Blob,
    /// Bytes of the list of marks that this end takes into account. Marks add up, so another length is a mark unseen.
    pub marks_seen: usize,
    /// Go on with the next call under the same lease.
    pub go_on: bool,
    pub events: Vec<NewEvent>,
}

#[derive(Debug, Clone)]
pub struct Suspend {
    pub token: Token,
    pub call: CallId,
    pub ran: Millis,
    /// Leave it until somebody calls again, instead of handing it to any replica at once.
    pub park: bool,
    pub events: Vec<NewEvent>,
}

#[derive(Debug, Clone)]
pub struct Retry {
    pub call: CallId,
    /// The retry number of the failure that was seen.
    pub seen: u32,
    /// Deaths of holders that it begins with: who was given up for them does not start as if nothing had happened.
    pub attempts: u32,
    pub context: Blob,
    pub revision: String,
    pub stream: bool,
    pub queued: Blob,
    pub claim: Claim,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// There must be a session, of any version.
    Exists,
    /// There must be a session of just this version.
    Version(u64),
    /// There must be none.
    Absent,
}

#[derive(Debug, Clone)]
pub struct Rewrite {
    pub nonce: Nonce,
    pub condition: Condition,
    pub epoch: Epoch,
    pub messages: Vec<Blob>,
    pub meta: Blob,
    pub turns: u64,
    pub revision: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    pub slot: Slot,
    /// The slot has work and nobody at it: whoever has room may claim it.
    pub orphaned: bool,
}

// ---- what is answered ----------------------------------------------------------------------------------------------

#[derive(Debug, Clone, PartialEq)]
pub enum Begun {
    /// The lease is ours, for the call at the head: this one or an earlier one.
    Granted(Box<Grant>),
    /// Admitted, or found live; somebody else has the lease.
    Waiting { position: usize },
    /// Finished before; its reply.
    Done(Reply),
    /// Finished longer ago than replies are kept.
    Expired,
    /// This id was used with other messages.
    Conflict,
    /// Its session was deleted while it was live, or after.
    Deleted,
    /// The queue is full; nothing was admitted.
    Full,
    /// `OnBusy::Reject`, and a call is running; nothing was admitted.
    SessionBusy,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Claimed {
    Granted(Box<Grant>),
    /// Held by another, for about so long.
    Held {
        for_ms: Millis,
    },
    /// Free, and left where it is: [`Claim::leave`].
    Left,
    NothingToDo,
}

/// A lease and all that is needed to go on.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    pub token: Token,
    pub session: SessionHead,
    pub history: Delta,
    pub call: HeadCall,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionHead {
    /// When the session was made: part of every tool call's idempotency key.
    pub created: Millis,
    pub version: u64,
    pub epoch: Epoch,
    pub turns: u64,
    pub revision: String,
    pub interrupted: bool,
}

/// What the caller lacks of a history.
#[derive(Debug, Clone, PartialEq)]
pub struct Delta {
    /// How many messages of the caller's own copy still hold.
    pub from: usize,
    pub messages: Vec<Blob>,
    /// `None` where the caller's own copy still holds.
    pub meta: Option<Blob>,
}

/// The call at the head of the queue, with its journal.
#[derive(Debug, Clone, PartialEq)]
pub struct HeadCall {
    pub id: CallId,
    /// Empty on a retry: it is in the history already.
    pub input: Vec<Blob>,
    pub context: Blob,
    pub revision: String,
    pub mark: Option<Blob>,
    pub stream: bool,
    pub steps: Vec<Step>,
    pub ran: Millis,
    /// How often it was taken over.
    pub resumes: u32,
    pub retry: u32,
    /// Messages at the end of the history that belong to this call, from before its retry.
    pub prior: usize,
    /// Takeovers from a holder that died, since the last journal entry.
    pub attempts: u32,
    pub attempts_total: u32,
}

/// The answer to a sign of life.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Somebody wants this call stopped.
    pub mark: Option<Blob>,
    /// Somebody wants to see the text as it comes.
    pub stream: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Committed {
    /// It has ended; the next call, under the same lease.
    Done { next: Option<Box<HeadCall>> },
    /// Nothing was written: somebody wants it stopped, or something said, that this end does not know of. All marks.
    Marked(Blob),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    Marked,
    NoRunningCall,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Retried {
    Granted(Box<Grant>),
    Waiting {
        position: usize,
    },
    /// Another retry than the one seen has ended already.
    Done(Reply),
    /// Not failed, not the last call, or the history has changed since.
    NotRetryable,
    SessionBusy,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rewritten {
    Done {
        version: u64,
    },
    /// The condition does not hold; `None` where there is no session.
    Mismatch {
        version: Option<u64>,
    },
    SessionBusy,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub head: SessionHead,
    pub meta: Blob,
    pub messages: Vec<Blob>,
}

/// A finished call, as the store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub ended: Ended,
    /// The document the holder wrote, without messages.
    pub document: Blob,
    pub messages: Vec<Blob>,
    pub retry: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub enum CallStatus {
    Live(LiveCall),
    Done(Reply),
    Expired,
    Deleted,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveCall {
    pub id: CallId,
    /// 0 is the head.
    pub position: usize,
    /// A lease that has not run out holds it.
    pub running: bool,
    /// A replica gave it back unfinished.
    pub suspended: bool,
    pub resumes: u32,
    /// What it has added so far, by its journal.
    pub messages: Vec<Blob>,
    /// Who has or had the lease: a relay waits for another name to appear.
    pub fence: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedEvent {
    pub id: EventId,
    pub name: EventName,
    pub data: Blob,
    pub message: Option<Blob>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EventPage {
    pub events: Vec<LoggedEvent>,
    /// What came right after the asked id is no longer in the log.
    pub gap: bool,
    pub status: CallStatus,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionPage {
    pub sessions: Vec<SessionRow>,
    pub next: Option<String>,
}

impl SessionPage {
    /// The page after `cursor` of all `rows`, latest change first.
    pub fn of(mut rows: Vec<SessionRow>, limit: usize, cursor: Option<&str>) -> Self {
        rows.sort_unstable_by(|a, b| (b.updated, &b.session).cmp(&(a.updated, &a.session)));
        let after = cursor.and_then(SessionRow::from_cursor);
        let mut rest = rows.into_iter().filter(|row| {
            after.as_ref().is_none_or(|(updated, session)| (row.updated, &row.session) < (*updated, session))
        });
        let sessions: Vec<_> = rest.by_ref().take(limit).collect();
        let next = rest.next().and(sessions.last()).map(SessionRow::cursor);
        Self { sessions, next }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    pub session: Id,
    pub updated: Millis,
    pub version: u64,
}

impl SessionRow {
    /// Where the next page starts: right after this row.
    pub fn cursor(&self) -> String {
        format!("{}.{}", self.updated, URL_SAFE_NO_PAD.encode(self.session.as_str()))
    }

    pub fn from_cursor(cursor: &str) -> Option<(Millis, Id)> {
        let (updated, session) = cursor.split_once('.')?;
        let session = String::from_utf8(URL_SAFE_NO_PAD.decode(session).ok()?).ok()?;
        Some((updated.parse().ok()?, Id::new("session", session).ok()?))
    }
}

/// Messages a call added, by its journal: replies and results, not intents.
pub fn journalled_messages(steps: &[Step]) -> impl Iterator<Item = &Blob> {
    steps.iter().filter(|step| step.kind != StepKind::Intent).map(|step| &step.bytes)
}
