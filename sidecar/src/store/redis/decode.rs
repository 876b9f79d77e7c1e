//! Reading what the scripts answer. Anything unexpected is damage, never a default.

use bytes::Bytes;
use redis::Value;

use super::log;
use super::record::{Reading, Record};
use crate::state::{CallId, Id};
use crate::store::blob::Blob;
use crate::store::contract::{
    Begin, CallStatus, Delta, Ended, EventPage, Grant, HeadCall, LiveCall, LoggedEvent, Millis, Reply,
    SessionHead, Step, StepKind,
};
use crate::store::error::StoreError;
use crate::store::ids::{Epoch, EventId, Nonce, Token};

/// An answer, read from its front.
pub struct Answer {
    rest: std::vec::IntoIter<Value>,
}

pub fn unreadable(what: &str) -> StoreError {
    StoreError::Corrupt(format!("Redis answered something else where {what} was expected"))
}

impl Answer {
    pub fn of(value: Value) -> Result<Self, StoreError> {
        match value {
            Value::Array(values) => Ok(Self { rest: values.into_iter() }),
            _ => Err(unreadable("a list")),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.len() == 0
    }

    pub fn next(&mut self, what: &str) -> Result<Value, StoreError> {
        self.rest.next().ok_or_else(|| unreadable(what))
    }

    pub fn list(&mut self, what: &str) -> Result<Self, StoreError> {
        Self::of(self.next(what)?)
    }

    pub fn optional_list(&mut self, what: &str) -> Result<Option<Self>, StoreError> {
        match self.next(what)? {
            Value::Nil | Value::Boolean(false) => Ok(None),
            value => Self::of(value).map(Some),
        }
    }

    pub fn optional_blob(&mut self, what: &str) -> Result<Option<Blob>, StoreError> {
        match self.next(what)? {
            Value::Nil | Value::Boolean(false) => Ok(None),
            Value::BulkString(bytes) => Ok(Some(bytes.into())),
            _ => Err(unreadable(what)),
        }
    }

    pub fn blob(&mut self, what: &str) -> Result<Blob, StoreError> {
        self.optional_blob(what)?.ok_or_else(|| unreadable(what))
    }

    pub fn text(&mut self, what: &str) -> Result<String, StoreError> {
        match self.next(what)? {
            Value::BulkString(bytes) => String::from_utf8(bytes).map_err(|_| unreadable(what)),
            Value::SimpleString(text) => Ok(text),
            _ => Err(unreadable(what)),
        }
    }

    pub fn parsed<T: std::str::FromStr>(&mut self, what: &str) -> Result<T, StoreError> {
        self.text(what)?.parse().map_err(|_| unreadable(what))
    }

    pub fn number<T: TryFrom<i64> + std::str::FromStr>(&mut self, what: &str) -> Result<T, StoreError> {
        match self.next(what)? {
            Value::Int(number) => T::try_from(number).map_err(|_| unreadable(what)),
            Value::BulkString(bytes) => std::str::from_utf8(&bytes)
                .ok()
                .and_then(|text| text.parse().ok())
                .ok_or_else(|| unreadable(what)),
            _ => Err(unreadable(what)),
        }
    }

    pub fn optional_number(&mut self, what: &str) -> Result<Option<u64>, StoreError> {
        match self.rest.as_slice().first() {
            Some(Value::Nil | Value::Boolean(false)) => self.next(what).map(|_| None),
            _ => self.number(what).map(Some),
        }
    }

    pub fn flag(&mut self, what: &str) -> Result<bool, StoreError> {
        Ok(self.number::<i64>(what)? != 0)
    }

    pub fn call_id(&mut self) -> Result<CallId, StoreError> {
        Id::new("call", self.text("a call id")?).map_err(|_| unreadable("a call id"))
    }

    pub fn blobs(&mut self, what: &str) -> Result<Vec<Blob>, StoreError> {
        let mut list = self.list(what)?;
        let mut blobs = Vec::with_capacity(list.rest.len());
        while !list.is_empty() {
            blobs.push(list.blob(what)?);
        }
        Ok(blobs)
    }

    pub fn session(&mut self) -> Result<SessionRecord, StoreError> {
        SessionRecord::read(&self.blob("a session")?)
    }

    pub fn grant(&mut self, own: &Own<'_>) -> Result<Grant, StoreError> {
        let session = self.session()?;
        let history = Delta {
            from: self.number("a length")?,
            messages: self.blobs("a history")?,
            meta: self.optional_blob("the rest of a state")?,
        };
        let call = match self.optional_list("a call")? {
            Some(mut call) => call.head_call()?,
            None => own.head_call()?,
        };
        Ok(Grant { token: session.token, session: session.head, history, call })
    }

    pub fn head_call(&mut self) -> Result<HeadCall, StoreError> {
        let id = self.call_id()?;
        let begun = BegunRecord::read(self.blob("a call")?)?;
        let progress = self.blob("a call")?;
        let read = record('p').read(&progress, "a call")?;
        let mark = progress.bytes().slice(record('p').size..);
        let input = self.optional_blob("an input")?.unwrap_or_default().into_bytes();
        let (input, _) = parted(input, begun.inputs)?;
        Ok(HeadCall {
            id,
            input,
            context: begun.context,
            revision: begun.revision,
            mark: (!mark.is_empty()).then(|| mark.into()),
            stream: read.flag("stream"),
            steps: self.blobs("a journal")?.into_iter().map(step).collect::<Result<_, _>>()?,
            ran: read.number("ran"),
            resumes: small(&read, "resumes"),
            retry: begun.retry,
            prior: begun.prior,
            attempts: small(&read, "attempts"),
            attempts_total: small(&read, "total"),
        })
    }

    pub fn reply(&mut self) -> Result<Reply, StoreError> {
        Ok(ReplyRecord::read(self.blob("a reply")?)?.reply)
    }

    pub fn live_call(&mut self) -> Result<LiveCall, StoreError> {
        Ok(LiveCall {
            id: self.call_id()?,
            position: self.number("a position")?,
            running: self.flag("a flag")?,
            suspended: self.flag("a flag")?,
            resumes: self.number("a count")?,
            messages: self.blobs("messages")?,
            fence: self.number("a fence")?,
        })
    }

    pub fn status(&mut self) -> Result<CallStatus, StoreError> {
        let mut status = self.list("a status")?;
        Ok(match status.text("a status")?.as_str() {
            "live" => CallStatus::Live(status.list("a live call")?.live_call()?),
            "done" => CallStatus::Done(status.reply()?),
            "expired" => CallStatus::Expired,
            "deleted" => CallStatus::Deleted,
            "unknown" => CallStatus::Unknown,
            _ => return Err(unreadable("a status")),
        })
    }

    /// A log, or what a call or its reply has to tell where there is none.
    pub fn event_page(&mut self, call: &CallId, after: Option<EventId>) -> Result<EventPage, StoreError> {
        let (status, gap) = (self.status()?, self.flag("a flag")?);
        let mut entries = self.list("events")?;
        let mut events = Vec::new();
        while !entries.is_empty() {
            events.push(log::logged(&mut entries.list("an event")?, call)?);
        }
        if !self.is_empty() {
            let kept = self.blob("a call")?;
            events = match &status {
                CallStatus::Live(_) => vec![BegunRecord::read(kept)?.queued(call)?],
                _ => ReplyRecord::read(kept)?.events(call)?,
            };
            events.retain(|event| after.is_none_or(|after| event.id > after));
        }
        Ok(EventPage { events, gap, status })
    }
}

fn record(letter: char) -> &'static Record {
    // Every letter in the code is in the table.
    Record::named(letter).unwrap_or_else(|| unreachable!("no record {letter}"))
}

fn small<T: TryFrom<u64> + Default>(read: &Reading<'_>, name: &str) -> T {
    T::try_from(read.number(name)).unwrap_or_default()
}

/// A session, as its head has it.
pub struct SessionRecord {
    pub head: SessionHead,
    pub token: Token,
    pub expires: Millis,
}

impl SessionRecord {
    pub fn read(bytes: &[u8]) -> Result<Self, StoreError> {
        let read = record('s').read(bytes, "a session")?;
        let revision = bytes[record('s').size..].get(..small(&read, "revisionSize"));
        let revision = revision.and_then(|revision| std::str::from_utf8(revision).ok());
        Ok(Self {
            head: SessionHead {
                created: read.number("created"),
                version: read.number("version"),
                epoch: Epoch(read.id("epoch")),
                turns: read.number("turns"),
                revision: revision.ok_or_else(|| unreadable("a revision"))?.to_owned(),
                interrupted: read.flag("interrupted"),
            },
            token: Token { fence: read.number("fence"), nonce: Nonce(read.id("nonce")) },
            expires: read.number("expires"),
        })
    }
}

/// What a live call was begun with.
struct BegunRecord {
    fence: u64,
    position: u64,
    retry: u32,
    prior: usize,
    inputs: usize,
    context: Blob,
    revision: String,
    queued: Bytes,
}

impl BegunRecord {
    fn read(blob: Blob) -> Result<Self, StoreError> {
        let bytes = blob.into_bytes();
        let read = record('c').read(&bytes, "a call")?;
        let mut rest = bytes.slice(record('c').size..);
        let mut part = |name| {
            let size: usize = small(&read, name);
            if size > rest.len() {
                return Err(unreadable("a call"));
            }
            Ok(rest.split_to(size))
        };
        let _digest = part("digestSize")?;
        let (context, revision) = (part("contextSize")?, part("revisionSize")?);
        Ok(Self {
            fence: read.number("fence"),
            position: read.number("position"),
            retry: small(&read, "retry"),
            prior: small(&read, "prior"),
            inputs: small(&read, "inputs"),
            context: context.into(),
            revision: String::from_utf8(revision.to_vec()).map_err(|_| unreadable("a revision"))?,
            queued: rest,
        })
    }

    fn queued(&self, call: &CallId) -> Result<LoggedEvent, StoreError> {
        log::queued(&self.queued, self.position, self.fence, call)
    }
}

/// A stored reply.
struct ReplyRecord {
    reply: Reply,
    fence: u64,
    queued_fence: u64,
    position: u64,
    queued: Bytes,
    events: Bytes,
    /// How many of the messages came with the commit.
    own: usize,
}

impl ReplyRecord {
    fn read(blob: Blob) -> Result<Self, StoreError> {
        let bytes = blob.into_bytes();
        let read = record('r').read(&bytes, "a reply")?;
        let mut rest = bytes.slice(record('r').size..);
        let mut part = |name| {
            let size: usize = small(&read, name);
            if size > rest.len() {
                return Err(unreadable("a reply"));
            }
            Ok(rest.split_to(size))
        };
        let (document, queued, events) = (part("documentSize")?, part("queuedSize")?, part("eventsSize")?);
        let (messages, _) = parted(rest, small(&read, "messages"))?;
        let ended = match u8::try_from(read.number("ended")) {
            Ok(b'C') => Ended::Completed,
            Ok(b'I') => Ended::Interrupted,
            Ok(b'F') => Ended::Failed,
            _ => return Err(unreadable("how a call ended")),
        };
        Ok(Self {
            reply: Reply { ended, document: document.into(), messages, retry: small(&read, "retry") },
            fence: read.number("fence"),
            queued_fence: read.number("queuedFence"),
            position: read.number("position"),
            queued,
            events,
            own: small(&read, "own"),
        })
    }

    /// What was told of a call that has no log.
    fn events(&self, call: &CallId) -> Result<Vec<LoggedEvent>, StoreError> {
        let first = log::queued(&self.queued, self.position, self.queued_fence, call)?;
        let messages = &self.reply.messages;
        log::kept(first, &self.events, self.fence, &messages[messages.len().saturating_sub(self.own)..], call)
    }
}

/// So many messages, each after its length; and what follows them.
fn parted(mut rest: Bytes, count: usize) -> Result<(Vec<Blob>, Bytes), StoreError> {
    let mut messages = Vec::new();
    for _ in 0..count {
        if rest.len() < 4 {
            return Err(unreadable("a message"));
        }
        let size = usize::try_from(super::record::number(&rest.split_to(4))).unwrap_or(usize::MAX);
        if rest.len() < size {
            return Err(unreadable("a message"));
        }
        messages.push(rest.split_to(size).into());
    }
    Ok((messages, rest))
}

/// What a request brought of its call: it is not sent back.
pub enum Own<'a> {
    Begin(&'a Begin),
    /// All of it comes back.
    Nothing,
}

impl Own<'_> {
    fn head_call(&self) -> Result<HeadCall, StoreError> {
        let Self::Begin(begin) = self else { return Err(unreadable("a call")) };
        Ok(HeadCall {
            id: begin.call.clone(),
            input: begin.input.clone(),
            context: begin.context.clone(),
            revision: begin.revision.clone(),
            mark: None,
            stream: begin.stream,
            steps: Vec::new(),
            ran: 0,
            resumes: 0,
            retry: 0,
            prior: 0,
            attempts: 0,
            attempts_total: 0,
        })
    }
}

/// The letter before a journal entry's bytes.
pub const fn letter(kind: StepKind) -> u8 {
    match kind {
        StepKind::Message => b'M',
        StepKind::Intent => b'I',
        StepKind::Result => b'R',
    }
}

fn step(entry: Blob) -> Result<Step, StoreError> {
    let kind = match entry.first() {
        Some(b'M') => StepKind::Message,
        Some(b'I') => StepKind::Intent,
        Some(b'R') => StepKind::Result,
        _ => return Err(unreadable("a journal entry")),
    };
    Ok(Step { kind, bytes: entry.into_bytes().slice(1..).into() })
}
