//! Who may run what: begin, claim, retry.

use std::time::Duration;

use super::{Call, Change, Decision, Head, KeptEvent, Progress, SlotData};
use crate::mutants::{self, Mutant};
use crate::state::CallId;
use crate::store::blob::Blob;
use crate::store::contract::{
    Begin, Begun, Claim, Claimed, Delta, Ended, EventName, Grant, HeadCall, Known, Limits, Millis, OnBusy,
    Retried, Retry, Step,
};
use crate::store::ids::{Epoch, EventId, Tail, Token};

impl SlotData {
    pub fn begin(&self, now: Millis, limits: &Limits, begin: &Begin) -> Decision<Begun> {
        let call = &begin.call;
        if self.tombstone.as_ref().is_some_and(|tombstone| tombstone.calls.contains(call)) {
            return Decision::nothing(Begun::Deleted);
        }
        let digest = self.calls.get(call).map(|call| &call.digest);
        if digest
            .or(self.done.get(call).map(|done| &done.digest))
            .is_some_and(|digest| *digest != begin.digest)
        {
            return Decision::nothing(Begun::Conflict);
        }
        if self.calls.contains_key(call) {
            return self.attach(now, limits, call, begin.stream, &begin.claim).map(Begun::from);
        }
        if let Some(reply) = self.replies.get(call).filter(|_| !mutants::is(Mutant::ReplyForgotten)) {
            return Decision::nothing(Begun::Done(reply.reply()));
        }
        if self.done.contains_key(call) && !mutants::is(Mutant::ReplyForgotten) {
            return Decision::nothing(Begun::Expired);
        }
        if self.queue.len() > limits.queue_limit {
            return Decision::nothing(Begun::Full);
        }
        if begin.on_busy == OnBusy::Reject && !self.queue.is_empty() && self.held(now) {
            return Decision::nothing(Begun::SessionBusy);
        }

        let mut changes = Vec::with_capacity(6);
        if begin.on_busy == OnBusy::Interrupt {
            for (id, earlier) in &self.calls {
                let mark = marked(earlier.progress.mark.as_ref(), &Blob::from(&b"{}"[..]));
                changes.push(Change::Progress(
                    id.clone(),
                    Progress { mark: Some(mark), ..earlier.progress.clone() },
                ));
            }
        }
        let admitted = Call {
            digest: begin.digest.clone(),
            input: begin.input.clone(),
            context: begin.context.clone(),
            revision: begin.revision.clone(),
            retry: 0,
            prior: 0,
            progress: Progress { stream: begin.stream, ..Progress::default() },
        };
        let interrupts = !changes.is_empty();
        let mut decision =
            self.admit(now, limits, call, admitted, &begin.queued, &begin.claim, changes).map(Begun::from);
        decision.announce |= interrupts;
        decision
    }

    pub fn claim(&self, now: Millis, limits: &Limits, claim: &Claim) -> Decision<Claimed> {
        if self.queue.is_empty() {
            return Decision::nothing(Claimed::NothingToDo);
        }
        let mut head = self.head.clone();
        head.parked = false;
        match self.grant(now, limits, claim, head, &self.calls[&self.queue[0]], &self.journal) {
            Some((grant, changes)) => {
                Decision { outcome: Claimed::Granted(Box::new(grant)), changes, announce: false }
            }
            None if self.held(now) => {
                Decision::nothing(Claimed::Held { for_ms: self.head.until.saturating_sub(now) })
            }
            None => Decision::nothing(Claimed::Left),
        }
    }

    pub fn retry(&self, now: Millis, limits: &Limits, retry: &Retry) -> Decision<Retried> {
        let call = &retry.call;
        if let Some(live) = self.calls.get(call) {
            // A retry of the failure that was seen is under way; any other live call has not failed.
            if live.retry <= retry.seen {
                return Decision::nothing(Retried::SessionBusy);
            }
            return self.attach(now, limits, call, retry.stream, &retry.claim).map(Retried::from);
        }
        let (Some(reply), Some(done)) = (self.replies.get(call), self.done.get(call)) else {
            return Decision::nothing(Retried::Unknown);
        };
        if reply.retry != retry.seen {
            return Decision::nothing(Retried::Done(reply.reply()));
        }
        if reply.ended != Ended::Failed {
            return Decision::nothing(Retried::NotRetryable);
        }
        if !self.queue.is_empty() {
            return Decision::nothing(Retried::SessionBusy);
        }
        if reply.version != self.head.version {
            return Decision::nothing(Retried::NotRetryable);
        }
        let admitted = Call {
            digest: done.digest.clone(),
            input: Vec::new(),
            context: retry.context.clone(),
            revision: retry.revision.clone(),
            retry: reply.retry + 1,
            prior: reply.messages.len(),
            progress: Progress {
                stream: retry.stream,
                attempts: retry.attempts,
                attempts_total: retry.attempts,
                ..Progress::default()
            },
        };
        let changes = vec![Change::Unfinish(call.clone())];
        self.admit(now, limits, call, admitted, &retry.queued, &retry.claim, changes).map(Retried::from)
    }

    /// Puts a call into the queue and then claims. `changes` come first.
    #[expect(clippy::too_many_arguments, reason = "the one place where admission and claim meet")]
    fn admit(
        &self,
        now: Millis,
        limits: &Limits,
        id: &CallId,
        call: Call,
        queued: &Blob,
        claim: &Claim,
        mut changes: Vec<Change>,
    ) -> Decision<Entered> {
        let position = self.queue.len();
        let mut head = self.touched(now, limits);
        head.parked = false;
        if !self.exists() {
            head.created = now;
            head.epoch = fresh_epoch(&self.head, claim.epoch);
            if let Some(tombstone) = &self.tombstone {
                (head.version, head.fence) = (tombstone.version, tombstone.fence);
            }
        }
        changes.push(Change::Admit(id.clone(), Box::new(call.clone())));
        // A grant needs the head call as it will be: the admitted one where the queue was empty.
        let (mut first, journal): (Call, &[Step]) = match self.queue.front() {
            Some(first) => (self.calls[first].clone(), &self.journal),
            None => (call, &[]),
        };
        for change in &changes {
            // Marked by this very request: what is granted, and what a takeover writes, must have the mark.
            if let Change::Progress(marked, progress) = change
                && self.queue.front() == Some(marked)
            {
                first.progress = progress.clone();
            }
        }
        let queued_at = |fence: u64| Change::Log {
            call: id.clone(),
            events: vec![KeptEvent {
                id: EventId { fence, seq: 0 },
                name: EventName::Queued,
                data: with_position(queued, position),
                message: None,
            }],
            cap: limits.event_log_bytes,
        };
        match self.grant_to(
            now,
            limits,
            claim,
            head.clone(),
            self.queue.front().unwrap_or(id),
            &first,
            journal,
        ) {
            Some((grant, granted)) => {
                changes.extend(granted);
                changes.push(queued_at(grant.token.fence));
                Decision { outcome: Entered::Granted(Box::new(grant)), changes, announce: false }
            }
            None => {
                head.watched = true;
                changes.push(queued_at(head.fence));
                changes.push(Change::Head(Box::new(head)));
                Decision { outcome: Entered::Waiting { position }, changes, announce: false }
            }
        }
    }

    /// Joins a call that is live already, and claims where it can.
    fn attach(
        &self,
        now: Millis,
        limits: &Limits,
        id: &CallId,
        stream: bool,
        claim: &Claim,
    ) -> Decision<Entered> {
        let call = &self.calls[id];
        let mut changes = Vec::new();
        if stream && !call.progress.stream {
            changes.push(Change::Progress(id.clone(), Progress { stream: true, ..call.progress.clone() }));
        }
        let mut head = self.touched(now, limits);
        head.parked = false;
        let mut first = self.calls[&self.queue[0]].clone();
        if stream && self.queue[0] == *id {
            first.progress.stream = true;
        }
        match self.grant(now, limits, claim, head.clone(), &first, &self.journal) {
            Some((grant, granted)) => {
                changes.extend(granted);
                Decision { outcome: Entered::Granted(Box::new(grant)), changes, announce: false }
            }
            None => {
                let position = self.queue.iter().position(|queued| queued == id).unwrap_or(0);
                head.watched = true;
                changes.push(Change::Head(Box::new(head)));
                Decision { outcome: Entered::Waiting { position }, changes, announce: false }
            }
        }
    }

    fn grant(
        &self,
        now: Millis,
        limits: &Limits,
        claim: &Claim,
        head: Head,
        first: &Call,
        journal: &[Step],
    ) -> Option<(Grant, Vec<Change>)> {
        self.grant_to(now, limits, claim, head, &self.queue[0], first, journal)
    }

    /// The lease, if it is free or has run out, and the call is not to be left, or if it is this very request's own.
    #[expect(
        clippy::too_many_arguments,
        reason = "begin grants over a head call that is not in the data yet"
    )]
    fn grant_to(
        &self,
        now: Millis,
        limits: &Limits,
        claim: &Claim,
        mut head: Head,
        id: &CallId,
        first: &Call,
        journal: &[Step],
    ) -> Option<(Grant, Vec<Change>)> {
        let mut changes = Vec::new();
        let mut progress = first.progress.clone();
        let mine = head.token.filter(|token| token.nonce == claim.nonce);
        if mine.is_none() {
            if head.token.is_some() && head.until > now && !mutants::is(Mutant::NoLock) {
                return None;
            }
            let died = head.token.is_some();
            if died {
                // Whoever had it did not give it back.
                progress.attempts += 1;
                progress.attempts_total += 1;
            }
            if claim.leave.contains(&progress.attempts) {
                return None;
            }
            if died || head.interrupted {
                progress.resumes += 1;
            }
            head.fence = (head.fence + 1).max(now);
            head.token = Some(Token { fence: head.fence, nonce: claim.nonce });
            head.holder.clone_from(&claim.holder);
            if progress != first.progress {
                changes.push(Change::Progress(id.clone(), progress.clone()));
            }
        }
        head.until = now + millis(limits.lease);
        head.expires = now + millis(limits.session_ttl);
        let grant = Grant {
            token: head.token?,
            session: self.session_head(&head),
            history: self.delta(claim.known.as_ref(), &head),
            call: head_call(id, first, &progress, journal),
        };
        changes.push(Change::Head(Box::new(head)));
        Some((grant, changes))
    }

    /// What the caller lacks. Its copy holds as far as it goes if it is of this epoch and its last element is here, at
    /// the same place: within an epoch a history only grows, and no two messages are the same.
    fn delta(&self, known: Option<&Known>, head: &Head) -> Delta {
        let good = known.filter(|known| {
            known.epoch == head.epoch
                && known.version <= head.version
                && known.len <= self.context.len()
                && known.tail == Tail::of(known.len.checked_sub(1).map(|last| &*self.context[last]))
        });
        let from = good.map_or(0, |known| known.len);
        let meta = good.is_none_or(|known| known.version != head.version).then(|| self.meta.clone());
        Delta { from, messages: self.context[from..].to_vec(), meta }
    }

    /// The head as every writing operation leaves it.
    pub(super) fn touched(&self, now: Millis, limits: &Limits) -> Head {
        Head { updated: now, expires: now + millis(limits.session_ttl), ..self.head.clone() }
    }
}

pub(super) fn head_call(id: &CallId, call: &Call, progress: &Progress, journal: &[Step]) -> HeadCall {
    HeadCall {
        id: id.clone(),
        input: call.input.clone(),
        context: call.context.clone(),
        revision: call.revision.clone(),
        mark: progress.mark.clone(),
        stream: progress.stream,
        steps: journal.to_vec(),
        ran: progress.ran,
        resumes: progress.resumes,
        retry: call.retry,
        prior: call.prior,
        attempts: progress.attempts,
        attempts_total: progress.attempts_total,
    }
}

pub(in crate::store) fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 2)
}

/// A list of marks, one longer.
pub(super) fn marked(old: Option<&Blob>, mark: &Blob) -> Blob {
    let mut list = match old {
        Some(old) => [&old[..old.len() - 1], b","].concat(),
        None => b"[".to_vec(),
    };
    list.extend_from_slice(mark);
    list.push(b']');
    list.into()
}

fn with_position(queued: &Blob, position: usize) -> Blob {
    let mut data = queued[..queued.len().saturating_sub(1)].to_vec();
    data.extend_from_slice(format!(",\"position\":{position}}}").as_bytes());
    data.into()
}

pub(super) fn fresh_epoch(old: &Head, random: Epoch) -> Epoch {
    if mutants::is(Mutant::EpochAsCounter) { Epoch(old.epoch.0 + 1) } else { random }
}

/// How a call came in: the common part of begin and retry.
enum Entered {
    Granted(Box<Grant>),
    Waiting { position: usize },
}

impl From<Entered> for Begun {
    fn from(entered: Entered) -> Self {
        match entered {
            Entered::Granted(grant) => Self::Granted(grant),
            Entered::Waiting { position } => Self::Waiting { position },
        }
    }
}

impl From<Entered> for Retried {
    fn from(entered: Entered) -> Self {
        match entered {
            Entered::Granted(grant) => Self::Granted(grant),
            Entered::Waiting { position } => Self::Waiting { position },
        }
    }
}
