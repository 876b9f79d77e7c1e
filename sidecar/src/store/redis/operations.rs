//! The contract, operation by operation: a request into its script, the outcome out of the answer.

use async_trait::async_trait;
use tokio::sync::broadcast;

use super::RedisStore;
use super::decode::{Answer, Own, letter};
use super::keys::{BUCKETS, Key, parse_slot_name};
use super::script::Invocation;
use crate::state::{CallId, Id, Slot};
use crate::store::blob::Blob;
use crate::store::contract::*;
use crate::store::error::StoreError;
use crate::store::ids::EventId;
use crate::store::slot::millis;

fn unknown(outcome: &str) -> StoreError {
    StoreError::Corrupt(format!("a script answered {outcome:?}"))
}

fn claiming<'a>(invocation: Invocation<'a>, claim: &Claim, creates: bool) -> Invocation<'a> {
    let mut invocation = invocation
        .arg("holder", &claim.holder)
        .arg("nonce", claim.nonce.to_string())
        .arg("leaveFrom", claim.leave.start)
        .arg("leaveTo", claim.leave.end);
    if creates {
        invocation = invocation.arg("epoch", claim.epoch.to_string());
    }
    match &claim.known {
        Some(known) => invocation
            .arg("knownEpoch", known.epoch.to_string())
            .arg("knownVersion", known.version)
            .arg("knownLen", known.len)
            .arg("knownTail", known.tail.to_string()),
        None => {
            invocation.arg("knownEpoch", "").arg("knownVersion", "").arg("knownLen", "").arg("knownTail", "")
        }
    }
}

fn pulse(outcome: &str, answer: &mut Answer, expected: usize) -> Result<Pulse, StoreError> {
    match outcome {
        "ok" => Ok(Pulse { mark: answer.optional_blob("a mark")?, stream: answer.flag("a flag")? }),
        "journal" => {
            let have: usize = answer.number("a length")?;
            Err(StoreError::Corrupt(format!("its journal has {have} entries where {expected} were expected")))
        }
        "lease-lost" => Err(StoreError::LeaseLost),
        other => Err(unknown(other)),
    }
}

fn push_events(invocation: &mut Invocation<'_>, events: &[NewEvent]) {
    for event in events {
        invocation.push(event.seq);
        invocation.push(event.name.as_str());
        invocation.push(&event.data[..]);
        match event.message {
            Some(place) => invocation.push(place),
            None => invocation.push(""),
        }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn begin(&self, slot: &Slot, begin: &Begin) -> Result<Begun, StoreError> {
        let on_busy = match begin.on_busy {
            OnBusy::Enqueue => "enqueue",
            OnBusy::Reject => "reject",
            OnBusy::Interrupt => "interrupt",
        };
        let invocation = self
            .on(&self.scripts.begin, slot, Some(&begin.call))
            .arg("lease", millis(self.limits.lease))
            .arg("sessionTtl", millis(self.limits.session_ttl))
            .arg("replyTtl", millis(self.limits.reply_ttl))
            .arg("queueLimit", self.limits.queue_limit)
            .arg("call", begin.call.as_str())
            .arg("digest", &begin.digest)
            .arg("context", &begin.context[..])
            .arg("revision", &begin.revision)
            .flag("stream", begin.stream)
            .arg("onBusy", on_busy)
            .arg("queued", &begin.queued[..]);
        let mut invocation = claiming(invocation, &begin.claim, true).arg("inputs", begin.input.len());
        begin.input.iter().for_each(|message| invocation.push(&message[..]));
        let (outcome, mut answer) = self.ask(invocation).await?;
        Ok(match outcome.as_str() {
            "granted" => Begun::Granted(Box::new(answer.grant(&begin.into())?)),
            "waiting" => Begun::Waiting { position: answer.number("a position")? },
            "done" => Begun::Done(answer.reply()?),
            "expired" => Begun::Expired,
            "conflict" => Begun::Conflict,
            "deleted" => Begun::Deleted,
            "full" => Begun::Full,
            "busy" => Begun::SessionBusy,
            other => return Err(unknown(other)),
        })
    }

    async fn claim(&self, slot: &Slot, claim: &Claim) -> Result<Claimed, StoreError> {
        let invocation = self
            .on(&self.scripts.claim, slot, None)
            .arg("lease", millis(self.limits.lease))
            .arg("sessionTtl", millis(self.limits.session_ttl));
        let (outcome, mut answer) = self.ask(claiming(invocation, claim, false)).await?;
        Ok(match outcome.as_str() {
            "granted" => Claimed::Granted(Box::new(answer.grant(&Own::NOTHING)?)),
            "held" => Claimed::Held { for_ms: answer.number("a time")? },
            "left" => Claimed::Left,
            "nothing" => Claimed::NothingToDo,
            other => return Err(unknown(other)),
        })
    }

    async fn append(&self, slot: &Slot, append: &Append) -> Result<Pulse, StoreError> {
        let mut invocation = self
            .on(&self.scripts.append, slot, Some(&append.call))
            .arg("lease", millis(self.limits.lease))
            .arg("sessionTtl", millis(self.limits.session_ttl))
            .arg("eventBytes", self.limits.event_log_bytes)
            .arg("token", append.token.to_string())
            .arg("call", append.call.as_str())
            .arg("ran", append.ran)
            .arg("at", append.at)
            .arg("steps", append.steps.len())
            .arg("events", append.events.len());
        for step in &append.steps {
            invocation.push([&[letter(step.kind)], &step.bytes[..]].concat());
        }
        push_events(&mut invocation, &append.events);
        let (outcome, mut answer) = self.ask(invocation).await?;
        pulse(&outcome, &mut answer, append.at)
    }

    async fn renew(&self, slot: &Slot, renew: &Renew) -> Result<Pulse, StoreError> {
        let mut invocation = self
            .on(&self.scripts.renew, slot, Some(&renew.call))
            .arg("lease", millis(self.limits.lease))
            .arg("sessionTtl", millis(self.limits.session_ttl))
            .arg("eventBytes", self.limits.event_log_bytes)
            .arg("token", renew.token.to_string())
            .arg("call", renew.call.as_str())
            .arg("ran", renew.ran)
            .arg("events", renew.events.len());
        push_events(&mut invocation, &renew.events);
        let (outcome, mut answer) = self.ask(invocation).await?;
        pulse(&outcome, &mut answer, 0)
    }

    async fn commit(&self, slot: &Slot, commit: &Commit) -> Result<Committed, StoreError> {
        let ended = match commit.ended {
            Ended::Completed => "completed",
            Ended::Interrupted => "interrupted",
            Ended::Failed => "failed",
        };
        let mut invocation = self
            .on(&self.scripts.commit, slot, Some(&commit.call))
            .arg("lease", millis(self.limits.lease))
            .arg("sessionTtl", millis(self.limits.session_ttl))
            .arg("replyTtl", millis(self.limits.reply_ttl))
            .arg("eventTtl", millis(self.limits.event_ttl))
            .arg("eventBytes", self.limits.event_log_bytes)
            .arg("remembered", REMEMBERED_CALLS)
            .arg("token", commit.token.to_string())
            .arg("version", commit.version)
            .arg("call", commit.call.as_str())
            .arg("turns", commit.turns)
            .flag("hasMeta", commit.meta.is_some())
            .arg("meta", commit.meta.as_deref().unwrap_or_default())
            .arg("revision", &commit.revision)
            .arg("ended", ended)
            .arg("reply", &commit.reply[..])
            .arg("marksSeen", commit.marks_seen)
            .flag("goOn", commit.go_on)
            .arg("messages", commit.messages.len())
            .arg("events", commit.events.len());
        commit.messages.iter().for_each(|message| invocation.push(&message[..]));
        push_events(&mut invocation, &commit.events);
        let (outcome, mut answer) = self.ask(invocation).await?;
        match outcome.as_str() {
            "committed" => {
                let next = answer.optional_list("the next call")?;
                let next = next.map(|mut next| next.head_call(&Own::NOTHING)).transpose()?;
                Ok(Committed::Done { next: next.map(Box::new) })
            }
            "marked" => Ok(Committed::Marked(answer.blob("marks")?)),
            "lease-lost" => Err(StoreError::LeaseLost),
            other => Err(unknown(other)),
        }
    }

    async fn suspend(&self, slot: &Slot, suspend: &Suspend) -> Result<(), StoreError> {
        let mut invocation = self
            .on(&self.scripts.suspend, slot, Some(&suspend.call))
            .arg("sessionTtl", millis(self.limits.session_ttl))
            .arg("eventBytes", self.limits.event_log_bytes)
            .arg("token", suspend.token.to_string())
            .arg("call", suspend.call.as_str())
            .arg("ran", suspend.ran)
            .flag("park", suspend.park)
            .arg("events", suspend.events.len());
        push_events(&mut invocation, &suspend.events);
        match self.ask(invocation).await?.0.as_str() {
            "ok" => Ok(()),
            other => Err(unknown(other)),
        }
    }

    async fn interrupt(&self, slot: &Slot, call: &CallId, mark: &Blob) -> Result<Interrupted, StoreError> {
        let invocation = self
            .on(&self.scripts.interrupt, slot, None)
            .arg("sessionTtl", millis(self.limits.session_ttl))
            .arg("call", call.as_str())
            .arg("mark", &mark[..]);
        match self.ask(invocation).await?.0.as_str() {
            "marked" => Ok(Interrupted::Marked),
            "no-running-call" => Ok(Interrupted::NoRunningCall),
            other => Err(unknown(other)),
        }
    }

    async fn retry(&self, slot: &Slot, retry: &Retry) -> Result<Retried, StoreError> {
        let invocation = self
            .on(&self.scripts.retry, slot, Some(&retry.call))
            .arg("lease", millis(self.limits.lease))
            .arg("sessionTtl", millis(self.limits.session_ttl))
            .arg("replyTtl", millis(self.limits.reply_ttl))
            .arg("call", retry.call.as_str())
            .arg("seen", retry.seen)
            .arg("attempts", retry.attempts)
            .arg("context", &retry.context[..])
            .arg("revision", &retry.revision)
            .flag("stream", retry.stream)
            .arg("queued", &retry.queued[..]);
        let (outcome, mut answer) = self.ask(claiming(invocation, &retry.claim, true)).await?;
        Ok(match outcome.as_str() {
            "granted" => Retried::Granted(Box::new(answer.grant(&retry.into())?)),
            "waiting" => Retried::Waiting { position: answer.number("a position")? },
            "done" => Retried::Done(answer.reply()?),
            "not-retryable" => Retried::NotRetryable,
            "busy" => Retried::SessionBusy,
            "unknown" => Retried::Unknown,
            other => return Err(unknown(other)),
        })
    }

    async fn rewrite(&self, slot: &Slot, rewrite: &Rewrite) -> Result<Rewritten, StoreError> {
        let (condition, wanted) = match rewrite.condition {
            Condition::Exists => ("exists", 0),
            Condition::Version(version) => ("version", version),
            Condition::Absent => ("absent", 0),
        };
        let mut invocation = self
            .on(&self.scripts.rewrite, slot, None)
            .arg("sessionTtl", millis(self.limits.session_ttl))
            .arg("nonce", rewrite.nonce.to_string())
            .arg("condition", condition)
            .arg("wanted", wanted)
            .arg("epoch", rewrite.epoch.to_string())
            .arg("turns", rewrite.turns)
            .arg("revision", &rewrite.revision)
            .arg("meta", &rewrite.meta[..])
            .arg("messages", rewrite.messages.len());
        rewrite.messages.iter().for_each(|message| invocation.push(&message[..]));
        let (outcome, mut answer) = self.ask(invocation).await?;
        Ok(match outcome.as_str() {
            "rewritten" => Rewritten::Done { version: answer.number("a version")? },
            "mismatch" => Rewritten::Mismatch { version: answer.optional_number("a version")? },
            "busy" => Rewritten::SessionBusy,
            other => return Err(unknown(other)),
        })
    }

    async fn delete(&self, slot: &Slot) -> Result<bool, StoreError> {
        let invocation = self
            .on(&self.scripts.delete, slot, None)
            .arg("sessionTtl", millis(self.limits.session_ttl))
            .arg("replyTtl", millis(self.limits.reply_ttl))
            .arg("eventTtl", millis(self.limits.event_ttl));
        let (outcome, mut answer) = self.ask(invocation).await?;
        match outcome.as_str() {
            "deleted" => self.unlink(slot, answer.list("calls")?).await.map(|()| true),
            "nothing" => Ok(false),
            other => Err(unknown(other)),
        }
    }

    async fn load(&self, slot: &Slot, last: Option<usize>) -> Result<Option<Loaded>, StoreError> {
        let invocation = Invocation::of_slot(&self.scripts.load, &self.names.slot(slot), None)
            .arg("last", last.map_or_else(String::new, |last| last.to_string()));
        let (outcome, mut answer) = self.ask(invocation).await?;
        match outcome.as_str() {
            "loaded" => Ok(Some(Loaded {
                head: answer.session_head()?,
                meta: answer.blob("the rest of a state")?,
                messages: answer.blobs("a history")?,
            })),
            "nothing" => Ok(None),
            other => Err(unknown(other)),
        }
    }

    async fn status(&self, slot: &Slot, call: &CallId) -> Result<CallStatus, StoreError> {
        let invocation = self.about(slot, call).flag("events", false).arg("after", "");
        Answer::of(self.run(invocation).await?)?.status()
    }

    async fn live(&self, slot: &Slot) -> Result<Vec<LiveCall>, StoreError> {
        let invocation = Invocation::of_slot(&self.scripts.live, &self.names.slot(slot), None);
        let mut answer = Answer::of(self.run(invocation).await?)?;
        let mut calls = Vec::new();
        while !answer.is_empty() {
            calls.push(answer.list("a live call")?.live_call()?);
        }
        Ok(calls)
    }

    async fn events(
        &self,
        slot: &Slot,
        call: &CallId,
        after: Option<EventId>,
    ) -> Result<EventPage, StoreError> {
        let after = after.map_or_else(String::new, |after| after.to_string());
        let invocation = self.about(slot, call).flag("events", true).arg("after", after);
        let mut answer = Answer::of(self.run(invocation).await?)?;
        let (status, gap) = (answer.status()?, answer.flag("a flag")?);
        let mut entries = answer.list("events")?;
        let mut events = Vec::new();
        while !entries.is_empty() {
            events.push(entries.event()?);
        }
        Ok(EventPage { events, gap, status })
    }

    async fn list(&self, user: &Id, limit: usize, cursor: Option<&str>) -> Result<SessionPage, StoreError> {
        self.page(user, limit, cursor.and_then(SessionRow::from_cursor)).await
    }

    async fn overdue(&self, bucket: u8, limit: usize) -> Result<Vec<Slot>, StoreError> {
        let due = vec![(Key::Due.kind(), self.names.due(bucket))];
        let invocation = Invocation::with_keys(&self.scripts.overdue, due).arg("limit", limit);
        let mut answer = Answer::of(self.run(invocation).await?)?;
        let mut slots = Vec::new();
        while !answer.is_empty() {
            let name = answer.blob("a slot")?;
            slots.push(parse_slot_name(&name).ok_or_else(|| {
                StoreError::Corrupt(format!("{} names a slot that cannot be read", self.names.due(bucket)))
            })?);
        }
        Ok(slots)
    }

    fn buckets(&self) -> u8 {
        BUCKETS
    }

    fn announcements(&self) -> broadcast::Receiver<Announcement> {
        self.announcements.subscribe()
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.link.send("", &redis::cmd("PING")).await?;
        Ok(())
    }

    fn is_local(&self) -> bool {
        false
    }
}
