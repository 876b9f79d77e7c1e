//! The contract as a pure state machine.
//!
//! Every operation is `decide(data, now, request) → (outcome, changes)`: it looks, and changes nothing. Applying the
//! changes is a second, separate step that cannot fail. So no operation can stop half-way, a store can put the changes
//! on disk before it answers, and the Redis scripts have something to be compared with.
//!
//! ```text
//! admit.rs   begin, claim, retry        who may run what
//! run.rs     append, renew, commit, suspend      the holder's own
//! manage.rs  interrupt, rewrite, delete          everybody else's
//! read.rs    load, status, live, events
//! ```

mod admit;
mod change;
mod manage;
mod read;
mod run;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

pub(super) use admit::millis;
pub use change::Change;

use super::blob::Blob;
use super::contract::{Ended, LoggedEvent, Millis, NewEvent, Reply, SessionHead, SessionRow, Step};
use super::ids::{Epoch, EventId, Nonce, Token};
use crate::mutants::{self, Mutant};
use crate::state::{CallId, Id};

/// What an operation found, what it wants changed, and whether others should look.
#[derive(Debug)]
pub struct Decision<T> {
    pub outcome: T,
    pub changes: Vec<Change>,
    pub announce: bool,
}

impl<T> Decision<T> {
    fn nothing(outcome: T) -> Self {
        Self { outcome, changes: Vec::new(), announce: false }
    }

    fn map<U>(self, f: impl FnOnce(T) -> U) -> Decision<U> {
        Decision { outcome: f(self.outcome), changes: self.changes, announce: self.announce }
    }
}

/// The fields that change with almost every operation. Small, and replaced whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// 0: there is no session.
    pub created: Millis,
    pub updated: Millis,
    pub version: u64,
    pub epoch: Epoch,
    /// Never goes back, not even over a delete.
    pub fence: u64,
    /// The lease. Releasing clears it; running out does not.
    pub token: Option<Token>,
    pub until: Millis,
    pub holder: String,
    pub revision: String,
    pub interrupted: bool,
    pub turns: u64,
    /// The last rewrite and the version it made, so that the same one again is known.
    pub rewrite: Option<(Nonce, u64)>,
    /// Somebody on another replica waits for this slot.
    pub watched: bool,
    /// Suspended until somebody calls again.
    pub parked: bool,
    /// When all of it is forgotten.
    pub expires: Millis,
}

impl Head {
    /// The session as a list shows it, unless there is none or its time is up.
    pub fn row(&self, session: &Id, now: Millis) -> Option<SessionRow> {
        (self.created > 0 && self.expires > now).then(|| SessionRow {
            session: session.clone(),
            updated: self.updated,
            version: self.version,
        })
    }
}

/// A live call. Its input never changes; the rest is [`Progress`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub digest: String,
    pub input: Vec<Blob>,
    pub context: Blob,
    pub revision: String,
    pub retry: u32,
    pub prior: usize,
    pub progress: Progress,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// A JSON array of the marks set so far.
    pub mark: Option<Blob>,
    pub stream: bool,
    pub ran: Millis,
    pub resumes: u32,
    pub attempts: u32,
    pub attempts_total: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finished {
    pub end: Millis,
    pub digest: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptReply {
    pub ended: Ended,
    pub document: Blob,
    pub messages: Vec<Blob>,
    pub retry: u32,
    pub token: Token,
    pub version: u64,
    pub expires: Millis,
}

impl KeptReply {
    fn reply(&self) -> Reply {
        Reply {
            ended: self.ended,
            document: self.document.clone(),
            messages: self.messages.clone(),
            retry: self.retry,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EventLog {
    pub events: Vec<KeptEvent>,
    pub bytes: usize,
    /// Older events were dropped to keep the log in bounds.
    pub trimmed: bool,
    /// Set when the call ends.
    pub expires: Option<Millis>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KeptEvent {
    pub id: EventId,
    pub name: super::contract::EventName,
    pub data: Blob,
    pub message: Option<Blob>,
}

impl KeptEvent {
    fn weight(&self) -> usize {
        self.data.len() + self.message.as_ref().map_or(0, |message| message.len())
    }

    fn logged(&self) -> LoggedEvent {
        LoggedEvent { id: self.id, name: self.name, data: self.data.clone(), message: self.message.clone() }
    }
}

/// What is left of a deleted session: enough never to run its calls again and never to reuse its numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tombstone {
    pub fence: u64,
    pub version: u64,
    pub calls: BTreeSet<CallId>,
    pub expires: Millis,
}

/// Everything a store knows about one slot.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SlotData {
    pub head: Head,
    pub meta: Blob,
    pub context: Vec<Blob>,
    pub queue: VecDeque<CallId>,
    pub calls: BTreeMap<CallId, Call>,
    /// The journal of the call at the head.
    pub journal: Vec<Step>,
    pub done: BTreeMap<CallId, Finished>,
    pub replies: BTreeMap<CallId, KeptReply>,
    pub events: BTreeMap<CallId, EventLog>,
    pub tombstone: Option<Tombstone>,
}

impl SlotData {
    pub fn exists(&self) -> bool {
        self.head.created > 0
    }

    /// When somebody must look at this slot, if ever.
    pub fn due(&self) -> Option<Millis> {
        if self.queue.is_empty() || self.head.parked {
            return None;
        }
        Some(self.head.token.map_or(0, |_| self.head.until))
    }

    /// There is work, and nobody holds the lease, not even one that has run out.
    pub fn is_orphaned(&self) -> bool {
        self.due() == Some(0)
    }

    /// Forgets what has run out. A store calls it before every operation.
    pub fn forget(&mut self, now: Millis) {
        if self.exists() && self.head.expires <= now {
            *self = Self { tombstone: self.tombstone.take(), ..Self::default() };
        }
        if self.tombstone.as_ref().is_some_and(|tombstone| tombstone.expires <= now) {
            self.tombstone = None;
        }
        self.replies.retain(|_, reply| reply.expires > now);
        self.events.retain(|_, log| log.expires.is_none_or(|expires| expires > now));
    }

    /// Nothing is left that anybody could ask for.
    pub fn is_forgotten(&self) -> bool {
        !self.exists() && self.tombstone.is_none()
    }

    fn held(&self, now: Millis) -> bool {
        self.head.token.is_some() && self.head.until > now
    }

    fn session_head(&self, head: &Head) -> SessionHead {
        SessionHead {
            created: head.created,
            version: head.version,
            epoch: head.epoch,
            turns: head.turns,
            revision: head.revision.clone(),
            interrupted: head.interrupted,
        }
    }

    /// The events of one operation as they will be kept: numbered under `fence`, their messages beside them, none that
    /// the log already has.
    fn numbered(&self, call: &CallId, fence: u64, events: &[NewEvent], messages: &[Blob]) -> Vec<KeptEvent> {
        let mut last = self.events.get(call).and_then(|log| log.events.last()).map(|event| event.id);
        events
            .iter()
            .map(|event| KeptEvent {
                id: EventId { fence, seq: event.seq },
                name: event.name,
                data: event.data.clone(),
                message: event.message.and_then(|index| messages.get(index).cloned()),
            })
            .filter(|event| {
                let later = last.is_none_or(|last| event.id > last) || mutants::is(Mutant::EventsRepeated);
                last = last.max(Some(event.id));
                later
            })
            .collect()
    }
}
