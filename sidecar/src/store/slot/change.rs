//! What an operation may change. Applying a change never fails and never asks.

use serde::{Deserialize, Serialize};

use super::{Call, EventLog, Finished, Head, KeptEvent, KeptReply, Progress, SlotData, Tombstone};
use crate::state::CallId;
use crate::store::blob::Blob;
use crate::store::contract::{Millis, Step};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Change {
    Head(Box<Head>),
    Meta(Blob),
    Extend(Vec<Blob>),
    Replace(Vec<Blob>),
    Admit(CallId, Box<Call>),
    Progress(CallId, Progress),
    Journal(Vec<Step>),
    /// The call at the head has ended: out of the queue, its journal gone, its reply kept.
    Finish {
        call: CallId,
        finished: Finished,
        reply: Box<KeptReply>,
        events_until: Millis,
    },
    /// A finished call is about to be run again.
    Unfinish(CallId),
    Forget(Vec<CallId>),
    Log {
        call: CallId,
        events: Vec<KeptEvent>,
        cap: usize,
    },
    /// All gone but this.
    Bury(Box<Tombstone>),
}

impl SlotData {
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Head(head) => self.head = *head,
            Change::Meta(meta) => self.meta = meta,
            Change::Extend(messages) => self.context.extend(messages),
            Change::Replace(messages) => self.context = messages,
            Change::Admit(id, call) => {
                self.queue.push_back(id.clone());
                self.calls.insert(id, *call);
            }
            Change::Progress(id, progress) => {
                if let Some(call) = self.calls.get_mut(&id) {
                    call.progress = progress;
                }
            }
            Change::Journal(steps) => self.journal.extend(steps),
            Change::Finish { call, finished, reply, events_until } => {
                self.queue.retain(|queued| *queued != call);
                self.calls.remove(&call);
                self.journal.clear();
                if let Some(log) = self.events.get_mut(&call) {
                    log.expires = Some(events_until);
                }
                self.done.insert(call.clone(), finished);
                self.replies.insert(call, *reply);
            }
            Change::Unfinish(call) => {
                self.done.remove(&call);
                self.replies.remove(&call);
                self.events.remove(&call);
            }
            Change::Forget(calls) => {
                for call in calls {
                    self.done.remove(&call);
                }
            }
            Change::Log { call, events, cap } => self.events.entry(call).or_default().extend(events, cap),
            Change::Bury(tombstone) => *self = Self { tombstone: Some(*tombstone), ..Self::default() },
        }
    }

    pub fn apply_all(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.apply(change);
        }
    }
}

impl EventLog {
    fn extend(&mut self, events: Vec<KeptEvent>, cap: usize) {
        if events.is_empty() {
            return;
        }
        self.bytes += events.iter().map(KeptEvent::weight).sum::<usize>();
        self.events.extend(events);
        if self.bytes > cap && self.events.len() > 1 {
            // Half at a time: trimming costs nothing most of the time, and the same rule is one command in Redis.
            let kept = self.events.len() / 2;
            self.events.drain(..self.events.len() - kept);
            self.bytes /= 2;
            self.trimmed = true;
        }
    }
}
