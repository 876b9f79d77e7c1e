//! The holder's own: append, renew, commit, suspend. All of them need the token, none of them the clock.

use super::admit::{head_call, millis};
use super::{Change, Decision, Finished, Head, KeptReply, Progress, SlotData};
use crate::mutants::{self, Mutant};
use crate::state::CallId;
use crate::store::blob::Blob;
use crate::store::contract::{
    Append, Commit, Committed, Limits, Millis, NewEvent, Pulse, REMEMBERED_CALLS, Renew, Suspend,
    journalled_messages,
};
use crate::store::error::StoreError;
use crate::store::ids::Token;

impl SlotData {
    pub fn append(
        &self,
        now: Millis,
        limits: &Limits,
        append: &Append,
    ) -> Result<Decision<Pulse>, StoreError> {
        let call = self.current(append.token, &append.call)?;
        let repeated = self.journal.len() == append.at + append.steps.len()
            && self.journal[append.at..] == append.steps
            && !append.steps.is_empty();
        if self.journal.len() != append.at && !repeated {
            let (have, want) = (self.journal.len(), append.at);
            return Err(StoreError::Corrupt(format!(
                "its journal has {have} entries where {want} were expected"
            )));
        }
        let mut progress = self.ran(call, append.ran);
        let mut changes = Vec::with_capacity(4);
        if !repeated && !append.steps.is_empty() {
            progress.attempts = 0;
            changes.push(Change::Journal(append.steps.clone()));
        }
        let messages: Vec<Blob> = append.steps.iter().map(|step| step.bytes.clone()).collect();
        let head = self.renewed(now, limits);
        Ok(self.pulse(call, progress, head, append.token, &append.events, &messages, changes, limits))
    }

    pub fn renew(&self, now: Millis, limits: &Limits, renew: &Renew) -> Result<Decision<Pulse>, StoreError> {
        let call = self.current(renew.token, &renew.call)?;
        let mut progress = self.ran(call, renew.ran);
        if mutants::is(Mutant::AttemptsResetByEvents) {
            progress.attempts = 0;
        }
        let lease = millis(limits.lease);
        let fresh = self.head.until.saturating_sub(now) >= lease * 2 / 3;
        let head = if fresh { self.head.clone() } else { self.renewed(now, limits) };
        Ok(self.pulse(call, progress, head, renew.token, &renew.events, &[], Vec::new(), limits))
    }

    pub fn commit(
        &self,
        now: Millis,
        limits: &Limits,
        commit: &Commit,
    ) -> Result<Decision<Committed>, StoreError> {
        if self.replies.get(&commit.call).is_some_and(|reply| reply.token == commit.token) {
            let next = self.queue.front().filter(|_| self.head.token == Some(commit.token));
            return Ok(Decision::nothing(Committed::Done {
                next: next.map(|id| Box::new(self.next(id, &self.journal))),
            }));
        }
        let unchecked = mutants::is(Mutant::NoVersionCheck) && self.calls.contains_key(&commit.call);
        let head = self.queue.front().filter(|_| unchecked).unwrap_or(&commit.call);
        self.current(commit.token, head)?;
        if self.head.version != commit.version && !unchecked {
            return Err(StoreError::LeaseLost);
        }
        let call = &self.calls[&commit.call];
        if let Some(marks) = call.progress.mark.as_ref().filter(|marks| marks.len() != commit.marks_seen)
            && !mutants::is(Mutant::MarksUnread)
        {
            return Ok(Decision::nothing(Committed::Marked(marks.clone())));
        }

        let journalled: Vec<Blob> = journalled_messages(&self.journal).cloned().collect();
        let prior = &self.context[self.context.len().saturating_sub(call.prior)..];
        let reply_messages = [prior, &journalled, &commit.messages].concat();
        let dropped = mutants::is(Mutant::InputDroppedOnResume) && call.progress.resumes > 0;
        let input = if dropped { &Vec::new() } else { &call.input };
        let added = [input, &journalled, &commit.messages].into_iter().flatten().cloned().collect();

        let mut changes = vec![Change::Extend(added)];
        changes.extend(commit.meta.clone().map(Change::Meta));
        let events = self.numbered(&commit.call, commit.token.fence, &commit.events, &commit.messages);
        changes.push(Change::Log { call: commit.call.clone(), events, cap: limits.event_log_bytes });
        let reply = KeptReply {
            ended: commit.ended,
            document: commit.reply.clone(),
            messages: reply_messages,
            retry: call.retry,
            token: commit.token,
            version: self.head.version + 1,
            expires: now + millis(limits.reply_ttl.min(limits.session_ttl)),
        };
        changes.push(Change::Finish {
            call: commit.call.clone(),
            finished: Finished { end: now, digest: call.digest.clone() },
            reply: Box::new(reply),
            events_until: now + millis(limits.event_ttl),
        });
        changes.extend(self.outdated(now, limits));

        let next = self.queue.get(1);
        let waited_for = self.head.watched;
        let mut head = Head {
            version: self.head.version + 1,
            turns: commit.turns,
            revision: commit.revision.clone(),
            interrupted: false,
            watched: waited_for && next.is_some(),
            ..self.renewed(now, limits)
        };
        head.updated = now;
        if next.is_none() || !commit.go_on {
            head.token = None;
        }
        let next = next.filter(|_| commit.go_on).map(|id| Box::new(self.next(id, &[])));
        changes.push(Change::Head(Box::new(head)));
        Ok(Decision { outcome: Committed::Done { next }, changes, announce: waited_for })
    }

    pub fn suspend(&self, now: Millis, limits: &Limits, suspend: &Suspend) -> Decision<()> {
        let Ok(call) = self.current(suspend.token, &suspend.call) else {
            return Decision::nothing(());
        };
        let progress = self.ran(call, suspend.ran);
        let parked = suspend.park && self.queue.len() == 1 && progress.mark.is_none();
        let head =
            Head { token: None, interrupted: true, watched: true, parked, ..self.touched(now, limits) };
        let events = self.numbered(call, suspend.token.fence, &suspend.events, &[]);
        let changes = vec![
            Change::Progress(call.clone(), progress),
            Change::Log { call: call.clone(), events, cap: limits.event_log_bytes },
            Change::Head(Box::new(head)),
        ];
        Decision { outcome: (), changes, announce: true }
    }

    /// The call at the head, if it is the one meant and the token the one the slot knows: whether its time has passed
    /// or not.
    fn current(&self, token: Token, call: &CallId) -> Result<&CallId, StoreError> {
        let known = self.head.token == Some(token) || mutants::is(Mutant::NoFenceCheck);
        self.queue.front().filter(|first| known && *first == call).ok_or(StoreError::LeaseLost)
    }

    fn next(
        &self,
        id: &CallId,
        journal: &[crate::store::contract::Step],
    ) -> crate::store::contract::HeadCall {
        let call = &self.calls[id];
        head_call(id, call, &call.progress, journal)
    }

    fn ran(&self, call: &CallId, ran: Millis) -> Progress {
        let progress = self.calls[call].progress.clone();
        Progress { ran: progress.ran.max(ran), ..progress }
    }

    fn renewed(&self, now: Millis, limits: &Limits) -> Head {
        Head { until: now + millis(limits.lease), ..self.touched(now, limits) }
    }

    #[expect(clippy::too_many_arguments, reason = "append and renew end alike")]
    fn pulse(
        &self,
        call: &CallId,
        progress: Progress,
        head: Head,
        token: Token,
        events: &[NewEvent],
        messages: &[Blob],
        mut changes: Vec<Change>,
        limits: &Limits,
    ) -> Decision<Pulse> {
        let outcome = Pulse { mark: progress.mark.clone(), stream: progress.stream };
        let events = self.numbered(call, token.fence, events, messages);
        let announce = self.head.watched && !events.is_empty();
        if !events.is_empty() {
            changes.push(Change::Log { call: call.clone(), events, cap: limits.event_log_bytes });
        }
        if progress != self.calls[call].progress {
            changes.push(Change::Progress(call.clone(), progress));
        }
        if head != self.head {
            changes.push(Change::Head(Box::new(head)));
        }
        Decision { outcome, changes, announce }
    }

    /// Finished calls that need not be remembered any more: past their time and not among the latest.
    fn outdated(&self, now: Millis, limits: &Limits) -> Option<Change> {
        let surplus = (self.done.len() + 1).checked_sub(REMEMBERED_CALLS).filter(|surplus| *surplus > 0)?;
        let forgotten = now.saturating_sub(millis(limits.reply_ttl));
        let mut oldest: Vec<_> = self.done.iter().map(|(id, done)| (done.end, id)).collect();
        oldest.sort_unstable();
        oldest.truncate(surplus);
        Some(Change::Forget(
            oldest.into_iter().filter(|(end, _)| *end < forgotten).map(|(_, id)| id.clone()).collect(),
        ))
    }
}
