//! Reading what the scripts answer. Anything unexpected is damage, never a default.

use redis::Value;

use crate::state::{CallId, Id};
use crate::store::blob::Blob;
use crate::store::contract::{
    Begin, CallStatus, Delta, Ended, EventName, Grant, HeadCall, LiveCall, LoggedEvent, Reply, Retry,
    SessionHead, Step, StepKind,
};
use crate::store::error::StoreError;
use crate::store::ids::{EventId, Token};

/// An answer, read from its front.
pub struct Answer {
    rest: std::vec::IntoIter<Value>,
}

fn unreadable(what: &str) -> StoreError {
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

    fn next(&mut self, what: &str) -> Result<Value, StoreError> {
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

    pub fn session_head(&mut self) -> Result<SessionHead, StoreError> {
        Ok(SessionHead {
            created: self.number("a time")?,
            version: self.number("a version")?,
            epoch: self.parsed("an epoch")?,
            turns: self.number("a count of turns")?,
            revision: self.text("a revision")?,
            interrupted: self.flag("a flag")?,
        })
    }

    pub fn grant(&mut self, own: &Own<'_>) -> Result<Grant, StoreError> {
        let token = parse_token(&self.text("a token")?)?;
        let session = self.session_head()?;
        let history = Delta {
            from: self.number("a length")?,
            messages: self.blobs("a history")?,
            meta: self.optional_blob("the rest of a state")?,
        };
        Ok(Grant { token, session, history, call: self.list("a call")?.head_call(own)? })
    }

    pub fn head_call(&mut self, own: &Own<'_>) -> Result<HeadCall, StoreError> {
        let id = self.call_id()?;
        let input = self.optional_list("an input")?;
        let context = self.optional_blob("a context")?;
        let revision = self.optional_blob("a revision")?;
        let (input, context, revision) = match (input, context, revision) {
            (Some(input), Some(context), Some(revision)) => {
                let mut list = Answer { rest: vec![Value::Array(input.rest.collect())].into_iter() };
                let revision = String::from_utf8(revision.to_vec()).map_err(|_| unreadable("a revision"))?;
                (list.blobs("an input")?, context, revision)
            }
            _ => (own.input.to_vec(), own.context.clone(), own.revision.to_owned()),
        };
        Ok(HeadCall {
            id,
            input,
            context,
            revision,
            mark: self.optional_blob("a mark")?,
            stream: self.flag("a flag")?,
            steps: self.blobs("a journal")?.into_iter().map(step).collect::<Result<_, _>>()?,
            ran: self.number("a time")?,
            resumes: self.number("a count")?,
            retry: self.number("a count")?,
            prior: self.number("a count")?,
            attempts: self.number("a count")?,
            attempts_total: self.number("a count")?,
        })
    }

    pub fn reply(&mut self) -> Result<Reply, StoreError> {
        let mut list = self.list("a reply")?;
        let header = list.text("how a call ended")?;
        let mut words = header.split(' ');
        let ended = match words.next() {
            Some("completed") => Ended::Completed,
            Some("interrupted") => Ended::Interrupted,
            Some("failed") => Ended::Failed,
            _ => return Err(unreadable("how a call ended")),
        };
        let retry = words.next().and_then(|word| word.parse().ok()).ok_or_else(|| unreadable("a retry"))?;
        let document = list.blob("a document")?;
        let mut messages = Vec::with_capacity(list.rest.len());
        while !list.is_empty() {
            messages.push(list.blob("a message")?);
        }
        Ok(Reply { ended, document, messages, retry })
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

    /// An entry of a stream: its id, then fields and values in turn.
    pub fn event(&mut self) -> Result<LoggedEvent, StoreError> {
        let mut entry = self.list("an event")?;
        let id: EventId = entry.parsed("an event id")?;
        let mut fields = entry.list("the fields of an event")?;
        let (mut name, mut data, mut message) = (None, None, None);
        while !fields.is_empty() {
            match fields.text("a field")?.as_str() {
                "name" => name = EventName::parse(&fields.text("an event name")?),
                "data" => data = Some(fields.blob("an event")?),
                "message" => message = Some(fields.blob("a message")?),
                _ => drop(fields.next("a field")?),
            }
        }
        match (name, data) {
            (Some(name), Some(data)) => Ok(LoggedEvent { id, name, data, message }),
            _ => Err(unreadable("an event")),
        }
    }
}

/// What a request brought of its call: it is not sent back.
pub struct Own<'a> {
    pub input: &'a [Blob],
    pub context: &'a Blob,
    pub revision: &'a str,
}

static NOTHING: Blob = Blob::empty();

impl Own<'_> {
    pub const NOTHING: Own<'static> = Own { input: &[], context: &NOTHING, revision: "" };
}

impl<'a> From<&'a Begin> for Own<'a> {
    fn from(begin: &'a Begin) -> Self {
        Self { input: &begin.input, context: &begin.context, revision: &begin.revision }
    }
}

impl<'a> From<&'a Retry> for Own<'a> {
    fn from(retry: &'a Retry) -> Self {
        Self { input: &[], context: &retry.context, revision: &retry.revision }
    }
}

fn parse_token(text: &str) -> Result<Token, StoreError> {
    let parsed = text
        .split_once('.')
        .and_then(|(fence, nonce)| Some(Token { fence: fence.parse().ok()?, nonce: nonce.parse().ok()? }));
    parsed.ok_or_else(|| unreadable("a token"))
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
