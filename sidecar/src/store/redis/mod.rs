//! The contract on Redis: one Lua script an operation, the same decisions as the machine of `slot/`.
//!
//! ```text
//! mod.rs       RedisStore: requests into scripts, answers out of them
//! script.rs    the scripts and their signatures        scripts/*.lua
//! keys.rs      the names of a slot's keys
//! decode.rs    reading answers
//! link.rs      the connection, and the seam for clusters and sentinels
//! fault.rs     what Redis' errors mean
//! list.rs      a user's sessions, a page at a time
//! announce.rs  hints from other replicas
//! ```

mod announce;
mod decode;
mod fault;
mod keys;
mod link;
mod list;
mod script;

use std::sync::Arc;

use async_trait::async_trait;
use redis::Value;
use tokio::sync::broadcast;

use self::announce::Subscriber;
use self::decode::{Answer, Own, letter};
use self::keys::{BUCKETS, Key, Namespace, parse_slot_name};
use self::script::{Invocation, SCRIPTS, Script, Scripts};
use super::blob::Blob;
use super::contract::*;
use super::error::StoreError;
use super::ids::EventId;
use super::slot::millis;
use crate::state::{CallId, Id, Slot};

pub use self::fault::Fault;
pub use self::link::{Credentials, CredentialsSource, Link, RedisConfig, Standalone};
pub use self::script::commands;

pub struct RedisStore {
    link: Arc<dyn Link>,
    names: Namespace,
    limits: Limits,
    scripts: &'static Scripts,
    announcements: broadcast::Sender<Announcement>,
    _subscriber: Subscriber,
    #[cfg(feature = "mutants")]
    clock: Option<Arc<std::sync::atomic::AtomicU64>>,
}

impl RedisStore {
    /// Connects when it is first used. `prefix` names the agent among all that share the server.
    pub fn open(config: RedisConfig, prefix: &str, limits: Limits) -> Result<Self, StoreError> {
        Self::over(Arc::new(Standalone::new(config)?), prefix, limits)
    }

    pub fn over(link: Arc<dyn Link>, prefix: &str, limits: Limits) -> Result<Self, StoreError> {
        let names = Namespace::new(prefix).ok_or_else(|| {
            StoreError::Failed(format!(
                "the prefix {prefix:?} cannot be used: it must not be empty or have braces"
            ))
        })?;
        let (announcements, _) = broadcast::channel(1024);
        let subscriber = Subscriber::start(Arc::clone(&link), names.channel(), announcements.clone());
        Ok(Self {
            link,
            names,
            limits,
            scripts: &SCRIPTS,
            announcements,
            _subscriber: subscriber,
            #[cfg(feature = "mutants")]
            clock: None,
        })
    }

    /// Goes by a test's clock instead of the server's.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn on_clock(mut self, clock: Arc<std::sync::atomic::AtomicU64>) -> Self {
        self.scripts = &script::SCRIPTS_ON_CALLERS_TIME;
        self.clock = Some(clock);
        self
    }

    /// A call of a script with the arguments that nearly all of them start with.
    fn on<'a>(&self, script: &'a Script, slot: &Slot, call: Option<&CallId>) -> Invocation<'a> {
        let keys = self.names.slot(slot);
        let mut invocation = Invocation::of_slot(script, &keys, call);
        if invocation.wants("channel") {
            invocation = invocation.arg("channel", self.names.channel());
        }
        invocation.arg("slot", keys.name).arg("session", slot.session.as_str())
    }

    fn about(&self, slot: &Slot, call: &CallId) -> Invocation<'_> {
        Invocation::of_slot(&self.scripts.status, &self.names.slot(slot), Some(call))
            .arg("sessionTtl", millis(self.limits.session_ttl))
            .arg("replyTtl", millis(self.limits.reply_ttl))
            .arg("eventTtl", millis(self.limits.event_ttl))
            .arg("call", call.as_str())
    }

    async fn run(&self, invocation: Invocation<'_>) -> Result<Value, StoreError> {
        #[cfg(feature = "mutants")]
        let invocation = match &self.clock {
            Some(clock) => invocation.at(clock.load(std::sync::atomic::Ordering::SeqCst)),
            None => invocation,
        };
        let key = invocation.keys.first().map_or("", |(_, key)| key.as_str()).to_owned();
        let answer = match self.link.send(&key, invocation.command()).await {
            Err(Fault::NoScript) => self.link.send(&key, &invocation.with_source()).await,
            answer => answer,
        };
        match answer {
            Err(Fault::WrongType) => Err(self.culprit(&key, &invocation.keys).await),
            answer => Ok(answer?),
        }
    }

    async fn ask(&self, invocation: Invocation<'_>) -> Result<(String, Answer), StoreError> {
        let mut answer = Answer::of(self.run(invocation).await?)?;
        Ok((answer.text("an outcome")?, answer))
    }

    /// Which of these keys holds something else than it should.
    async fn culprit(&self, route: &str, keys: &[(Key, String)]) -> StoreError {
        let mut types = redis::pipe();
        for (_, key) in keys {
            types.cmd("TYPE").arg(key);
        }
        let found = self.link.send_all(route, &types).await.unwrap_or_default();
        let wrong = keys.iter().zip(found).find_map(|((kind, key), found)| match found {
            Value::SimpleString(found) if found != "none" && found != kind.kind() => {
                Some(format!("{key} is a {found}, not a {}", kind.kind()))
            }
            _ => None,
        });
        StoreError::Corrupt(wrong.unwrap_or_else(|| "a key is of another type".to_owned()))
    }

    /// The replies and event logs of a deleted session. Nobody can reach them and each runs out by itself, so a
    /// failure here is only memory kept a while longer.
    async fn unlink(&self, slot: &Slot, mut calls: Answer) -> Result<(), StoreError> {
        let keys = self.names.slot(slot);
        let mut names = Vec::new();
        while !calls.is_empty() {
            let call = calls.call_id()?;
            names.extend([Key::Reply, Key::Events].iter().filter_map(|key| keys.key(*key, Some(&call))));
        }
        for some in names.chunks(500) {
            let mut unlink = redis::cmd("UNLINK");
            unlink.arg(some);
            if let Err(fault) = self.link.send(&some[0], &unlink).await {
                tracing::debug!(error = %StoreError::from(fault), "what a deleted session leaves is kept until it expires");
                break;
            }
        }
        Ok(())
    }
}

fn unknown(outcome: &str) -> StoreError {
    StoreError::Corrupt(format!("a script answered {outcome:?}"))
}

fn claiming<'a>(invocation: Invocation<'a>, claim: &Claim, creates: bool) -> Invocation<'a> {
    let mut invocation = invocation.arg("holder", &claim.holder).arg("nonce", claim.nonce.to_string());
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
                Ok(Committed { next: next.map(Box::new) })
            }
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
        let due = vec![(Key::Due, self.names.due(bucket))];
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
