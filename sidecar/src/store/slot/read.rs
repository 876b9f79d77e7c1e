//! Looking without touching: load, status, live, events.

use super::{KeptEvent, SlotData};
use crate::state::CallId;
use crate::store::contract::{CallStatus, EventPage, LiveCall, Loaded, Millis, journalled_messages};
use crate::store::ids::EventId;

impl SlotData {
    pub fn load(&self, last: Option<usize>) -> Option<Loaded> {
        let from = last.map_or(0, |last| self.context.len().saturating_sub(last));
        self.exists().then(|| Loaded {
            head: self.session_head(&self.head),
            meta: self.meta.clone(),
            messages: self.context[from..].to_vec(),
        })
    }

    pub fn status(&self, now: Millis, call: &CallId) -> CallStatus {
        if let Some(position) = self.queue.iter().position(|id| id == call) {
            return CallStatus::Live(self.live_call(now, position));
        }
        if let Some(reply) = self.replies.get(call) {
            return CallStatus::Done(reply.reply());
        }
        if self.done.contains_key(call) {
            return CallStatus::Expired;
        }
        if self.tombstone.as_ref().is_some_and(|tombstone| tombstone.calls.contains(call)) {
            return CallStatus::Deleted;
        }
        CallStatus::Unknown
    }

    pub fn live(&self, now: Millis) -> Vec<LiveCall> {
        (0..self.queue.len()).map(|position| self.live_call(now, position)).collect()
    }

    pub fn events(&self, now: Millis, call: &CallId, after: Option<EventId>) -> EventPage {
        let status = self.status(now, call);
        let Some(log) = self.events.get(call) else {
            return EventPage { events: Vec::new(), gap: false, status };
        };
        let first = log.events.first().map(|event| event.id);
        let gap = log.trimmed && after.is_none_or(|after| first.is_some_and(|first| after < first));
        let later = |event: &&KeptEvent| after.is_none_or(|after| event.id > after);
        let events = log.events.iter().filter(later).map(KeptEvent::logged).collect();
        EventPage { events, gap, status }
    }

    fn live_call(&self, now: Millis, position: usize) -> LiveCall {
        let id = &self.queue[position];
        let first = position == 0;
        let journal: &[_] = if first { &self.journal } else { &[] };
        LiveCall {
            id: id.clone(),
            position,
            running: first && self.held(now),
            suspended: first && self.head.interrupted && self.head.token.is_none(),
            resumes: self.calls[id].progress.resumes,
            messages: journalled_messages(journal).cloned().collect(),
            fence: self.head.fence,
        }
    }
}
