//! The contract, operation by operation: a request into its script, the outcome out of the answer.

use async_trait::async_trait;
use tokio::sync::broadcast;

use super::RedisStore;
use super::decode::{Answer, Own, letter};
use super::keys::{BUCKETS, Key, parse_slot_name};
use super::log;
use super::record::Writing;
use super::script::Invocation;
use crate::state::{CallId, Id, Slot};
use crate::store::blob::Blob;
use crate::store::contract::*;
use crate::store::error::StoreError;
use crate::store::ids::{Epoch, EventId, Tail, Token};

fn unknown(outcome: &str) -> StoreError {
    StoreError::Corrupt(format!("a script answered {outcome:?}"))
}

/// A request for the lease.
fn asking(claim: &Claim, stream: bool, on_busy: OnBusy, inputs: usize) -> Vec<u8> {
    let on_busy = match on_busy {
        OnBusy::Enqueue => b'E',
        OnBusy::Reject => b'R',
        OnBusy::Interrupt => b'I',
    };
    let known = claim.known.unwrap_or(Known { epoch: Epoch(0), version: 0, len: 0, tail: Tail::default() });
    Writing::of('q')
        .id("nonce", claim.nonce.0)
        .id("epoch", claim.epoch.0)
        .number("leaveFrom", claim.leave.start)
        .number("leaveTo", claim.leave.end)
        .flag("stream", stream)
        .number("onBusy", on_busy)
        .number("inputs", inputs)
        .flag("known", claim.known.is_some())
        .id("knownEpoch", known.epoch.0)
        .number("knownVersion", known.version)
        .number("knownLen", known.len)
        .bytes("knownTail", short(&known.tail))
        .done()
}

/// Enough of it: message ids are random, and epoch, version and length must be right as well.
fn short(tail: &Tail) -> &[u8] {
    &tail.0[..10]
}

/// A sign of life of the holder.
fn holding(token: Token, ran: Millis, at: usize, steps: usize, park: bool) -> Vec<u8> {
    Writing::of('h')
        .number("fence", token.fence)
        .id("nonce", token.nonce.0)
        .number("ran", ran)
        .number("at", at)
        .number("steps", steps)
        .flag("park", park)
        .done()
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

impl RedisStore {
    /// Sends a request without the keys that it can do without most of the time; where it cannot, nothing was written, and it
    /// is sent again with all of them.
    async fn ask_briefly<'a>(
        &'a self,
        brief: bool,
        invocation: impl Fn(bool) -> Invocation<'a>,
    ) -> Result<(String, Answer), StoreError> {
        let (outcome, answer) = self.ask(invocation(!brief)).await?;
        match outcome.as_str() {
            "incomplete" if brief => self.ask(invocation(true)).await,
            _ => Ok((outcome, answer)),
        }
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn begin(&self, slot: &Slot, begin: &Begin) -> Result<Begun, StoreError> {
        let (request, input) =
            (asking(&begin.claim, begin.stream, begin.on_busy, begin.input.len()), log::joined(&begin.input));
        let invocation = |all| {
            let mut invocation = self
                .on(&self.scripts.begin, slot, Some(&begin.call), all)
                .arg("request", &request)
                .arg("call", begin.call.as_str())
                .arg("digest", &begin.digest)
                .arg("context", &begin.context[..])
                .arg("revision", &begin.revision)
                .arg("queued", log::shortened(&begin.queued, &begin.call))
                .arg("holder", &begin.claim.holder);
            if !input.is_empty() {
                invocation.push(&input);
            }
            invocation
        };
        loop {
            // Who knows the session's history knows that there is one.
            let (outcome, mut answer) = self.ask_briefly(begin.claim.known.is_some(), invocation).await?;
            return Ok(match outcome.as_str() {
                "granted" => Begun::Granted(Box::new(answer.grant(&Own::Begin(begin))?)),
                "waiting" => Begun::Waiting { position: answer.number("a position")? },
                // Its reply is under another key. What has become of it meanwhile is as good an answer.
                "finished" => match self.status(slot, &begin.call).await? {
                    CallStatus::Done(reply) => Begun::Done(reply),
                    CallStatus::Expired => Begun::Expired,
                    CallStatus::Deleted => Begun::Deleted,
                    CallStatus::Live(_) | CallStatus::Unknown => continue,
                },
                "conflict" => Begun::Conflict,
                "deleted" => Begun::Deleted,
                "full" => Begun::Full,
                "busy" => Begun::SessionBusy,
                other => return Err(unknown(other)),
            });
        }
    }

    async fn claim(&self, slot: &Slot, claim: &Claim) -> Result<Claimed, StoreError> {
        let invocation = self
            .on(&self.scripts.claim, slot, None, true)
            .arg("request", asking(claim, false, OnBusy::Enqueue, 0))
            .arg("holder", &claim.holder);
        let (outcome, mut answer) = self.ask(invocation).await?;
        Ok(match outcome.as_str() {
            "granted" => Claimed::Granted(Box::new(answer.grant(&Own::Nothing)?)),
            "held" => Claimed::Held { for_ms: answer.number("a time")? },
            "left" => Claimed::Left,
            "nothing" => Claimed::NothingToDo,
            other => return Err(unknown(other)),
        })
    }

    async fn append(&self, slot: &Slot, append: &Append) -> Result<Pulse, StoreError> {
        let mut invocation = self
            .on(&self.scripts.append, slot, Some(&append.call), true)
            .arg("request", holding(append.token, append.ran, append.at, append.steps.len(), false))
            .arg("events", log::written(&append.events, &append.call));
        for step in &append.steps {
            invocation.push([&[letter(step.kind)], &step.bytes[..]].concat());
        }
        let (outcome, mut answer) = self.ask(invocation).await?;
        pulse(&outcome, &mut answer, append.at)
    }

    async fn renew(&self, slot: &Slot, renew: &Renew) -> Result<Pulse, StoreError> {
        let invocation = self
            .on(&self.scripts.renew, slot, Some(&renew.call), true)
            .arg("request", holding(renew.token, renew.ran, 0, 0, false))
            .arg("events", log::written(&renew.events, &renew.call));
        let (outcome, mut answer) = self.ask(invocation).await?;
        pulse(&outcome, &mut answer, 0)
    }

    async fn commit(&self, slot: &Slot, commit: &Commit) -> Result<Committed, StoreError> {
        let ended = match commit.ended {
            Ended::Completed => b'C',
            Ended::Interrupted => b'I',
            Ended::Failed => b'F',
        };
        let weight = log::weight(&commit.events, &commit.messages);
        let request = Writing::of('k')
            .number("fence", commit.token.fence)
            .id("nonce", commit.token.nonce.0)
            .number("version", commit.version)
            .number("turns", commit.turns)
            .number("marksSeen", commit.marks_seen)
            .number("ended", ended)
            .flag("goOn", commit.go_on)
            .flag("meta", commit.meta.is_some())
            .number("messages", commit.messages.len())
            .number("weight", weight)
            // None of a message that Redis has already: whoever asks for the history has it looked at then.
            .bytes(
                "tail",
                short(&commit.messages.last().map_or_else(Tail::default, |last| Tail::of(Some(&**last)))),
            )
            .done();
        let events = log::written(&commit.events, &commit.call);
        let invocation = |all| {
            let mut invocation = self
                .on(&self.scripts.commit, slot, Some(&commit.call), all)
                .arg("request", &request)
                .arg("revision", &commit.revision)
                .arg("reply", &commit.reply[..])
                .arg("events", &events);
            commit.messages.iter().for_each(|message| invocation.push(&message[..]));
            if let Some(meta) = &commit.meta {
                invocation.push(&meta[..]);
            }
            invocation
        };
        // Who tells the first event now has logged none before.
        let first = commit.events.first().is_some_and(|event| event.seq <= 1);
        let (outcome, mut answer) =
            self.ask_briefly(first && weight < self.limits.event_log_bytes / 2, invocation).await?;
        match outcome.as_str() {
            "committed" => {
                let next = answer.optional_list("the next call")?;
                let next = next.map(|mut next| next.head_call()).transpose()?;
                Ok(Committed::Done { next: next.map(Box::new) })
            }
            "marked" => Ok(Committed::Marked(answer.blob("marks")?)),
            "lease-lost" => Err(StoreError::LeaseLost),
            other => Err(unknown(other)),
        }
    }

    async fn suspend(&self, slot: &Slot, suspend: &Suspend) -> Result<(), StoreError> {
        let invocation = self
            .on(&self.scripts.suspend, slot, Some(&suspend.call), true)
            .arg("request", holding(suspend.token, suspend.ran, 0, 0, suspend.park))
            .arg("events", log::written(&suspend.events, &suspend.call));
        match self.ask(invocation).await?.0.as_str() {
            "ok" => Ok(()),
            other => Err(unknown(other)),
        }
    }

    async fn interrupt(&self, slot: &Slot, call: &CallId, mark: &Blob) -> Result<Interrupted, StoreError> {
        let invocation = self
            .on(&self.scripts.interrupt, slot, None, true)
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
            .on(&self.scripts.retry, slot, Some(&retry.call), true)
            .arg("request", asking(&retry.claim, retry.stream, OnBusy::Enqueue, 0))
            .arg("seen", retry.seen)
            .arg("attempts", retry.attempts)
            .arg("context", &retry.context[..])
            .arg("revision", &retry.revision)
            .arg("queued", log::shortened(&retry.queued, &retry.call))
            .arg("holder", &retry.claim.holder);
        let (outcome, mut answer) = self.ask(invocation).await?;
        Ok(match outcome.as_str() {
            "granted" => Retried::Granted(Box::new(answer.grant(&Own::Nothing)?)),
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
            .on(&self.scripts.rewrite, slot, None, true)
            .arg("nonce", rewrite.nonce.to_string())
            .arg("condition", condition)
            .arg("wanted", wanted)
            .arg("epoch", &rewrite.epoch.0.to_be_bytes()[..])
            .arg("turns", rewrite.turns)
            .arg("revision", &rewrite.revision)
            .arg("meta", &rewrite.meta[..]);
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
        let invocation = self.on(&self.scripts.delete, slot, None, true);
        let (outcome, mut answer) = self.ask(invocation).await?;
        match outcome.as_str() {
            "deleted" => self.unlink(slot, answer.list("calls")?).await.map(|()| true),
            "nothing" => Ok(false),
            other => Err(unknown(other)),
        }
    }

    async fn load(&self, slot: &Slot, last: Option<usize>) -> Result<Option<Loaded>, StoreError> {
        let invocation = self
            .on(&self.scripts.load, slot, None, true)
            .arg("last", last.map_or_else(String::new, |last| last.to_string()));
        let (outcome, mut answer) = self.ask(invocation).await?;
        match outcome.as_str() {
            "loaded" => Ok(Some(Loaded {
                head: answer.session()?.head,
                meta: answer.blob("the rest of a state")?,
                messages: answer.blobs("a history")?,
            })),
            "nothing" => Ok(None),
            other => Err(unknown(other)),
        }
    }

    async fn status(&self, slot: &Slot, call: &CallId) -> Result<CallStatus, StoreError> {
        let invocation = self
            .on(&self.scripts.status, slot, Some(call), true)
            .arg("call", call.as_str())
            .flag("events", false)
            .arg("after", "");
        Answer::of(self.run(invocation).await?)?.status()
    }

    async fn live(&self, slot: &Slot) -> Result<Vec<LiveCall>, StoreError> {
        let invocation = self.on(&self.scripts.live, slot, None, true);
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
        let text = after.map_or_else(String::new, |after| after.to_string());
        let invocation = self
            .on(&self.scripts.status, slot, Some(call), true)
            .arg("call", call.as_str())
            .flag("events", true)
            .arg("after", text);
        Answer::of(self.run(invocation).await?)?.event_page(call, after)
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
