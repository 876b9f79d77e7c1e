//! A call's news as server-sent events.
//!
//! What a client sees is whole in itself, wherever it joined: for each message, the deltas since its last reset are its
//! text. Where the log cannot give that (it was cut, it has expired, nobody streamed when the text was made), what is
//! missing is made from the messages. Such an event has the id of the logged one before it with a count behind a dot,
//! so that it is as good a `Last-Event-ID` as any other.

use std::borrow::Cow;
use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::session::{CallError, CallView, Follower, News, Sessions, with_message};
use crate::state::{CallId, Entry, Slot};
use crate::store::{Blob, Ended, EventId, EventName, LoggedEvent, Reply, StoreError};

/// Proxies cut connections that are silent for longer.
pub const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The events of a call, after the given one if any.
pub fn response(sessions: &Sessions, slot: Slot, call: &CallId, after: Option<EventId>) -> Response {
    let follower = sessions.follow(&slot, call, after);
    let mut teller = Teller::new(sessions, slot, follower);
    teller.resumed = after.is_some();
    teller.last = after.unwrap_or_default();
    teller.into_response()
}

/// The events of a call that has just been taken, from its first on.
pub fn following(sessions: &Sessions, slot: Slot, follower: Follower) -> Response {
    Teller::new(sessions, slot, follower).into_response()
}

/// An id that an `id:` line carried.
pub fn parse_id(text: &str) -> Result<EventId, impl std::error::Error + use<>> {
    text.split('.').next().unwrap_or_default().parse::<EventId>()
}

/// What one client has been told of a message.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Told {
    /// Some of its text, from the first delta on.
    Text,
    /// The beginning of its text is lost: the rest waits for the whole.
    Headless,
    Completed,
}

struct Teller {
    sessions: Sessions,
    slot: Slot,
    follower: Follower,
    /// The client has seen events before; which, is not known here.
    resumed: bool,
    last: EventId,
    /// Events made here since `last`.
    made: u32,
    messages: HashMap<String, Told>,
    /// The event that ends the call was met; its data is the reply.
    end: Option<EventId>,
    over: bool,
    frames: String,
}

impl Teller {
    fn new(sessions: &Sessions, slot: Slot, follower: Follower) -> Self {
        Self {
            sessions: sessions.clone(),
            slot,
            follower,
            resumed: false,
            last: EventId::default(),
            made: 0,
            messages: HashMap::new(),
            end: None,
            over: false,
            frames: String::new(),
        }
    }

    fn into_response(self) -> Response {
        // Pulled, never pushed: a client that does not read makes nobody buffer for it.
        let frames = stream::unfold(self, |mut teller| async move {
            teller.tell().await.map(|frames| (Ok::<_, Infallible>(frames), teller))
        });
        let mut response = Response::new(Body::from_stream(frames));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
        // Its end may be the end of a drain, and then the connection's too. Said now, or the client's next request, sent in
        // the moment it hears the end of this one, goes into a connection that closes.
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        response
    }

    /// The next piece of the stream; `None` at its end.
    async fn tell(&mut self) -> Option<Bytes> {
        while !self.over {
            match timeout(KEEP_ALIVE, self.follower.next()).await {
                Err(_) => return Some(Bytes::from_static(b": still here\n\n")),
                Ok(Ok(News::Events(events))) => self.pass_on(events),
                Ok(Ok(News::Gap(rest))) => self.bridge(rest).await,
                Ok(Ok(News::Ended(reply))) => self.finish(&reply),
                Ok(Ok(News::LetGo)) => self.over = true,
                Ok(Err(error)) => self.give_up(&error),
            }
            if !self.frames.is_empty() {
                return Some(std::mem::take(&mut self.frames).into());
            }
        }
        None
    }

    fn pass_on(&mut self, events: Vec<LoggedEvent>) {
        for event in events {
            (self.last, self.made) = (event.id, 0);
            if event.name.ends_the_call() {
                self.end = Some(event.id);
                continue;
            }
            match event.name {
                EventName::Delta | EventName::Reset | EventName::MessageCompleted => {
                    self.pass_on_message(&event);
                }
                _ => self.logged(&event, &event.data),
            }
        }
    }

    fn pass_on_message(&mut self, event: &LoggedEvent) {
        let Ok(MessageId { message_id }) = serde_json::from_slice::<MessageId<'_>>(&event.data) else {
            tracing::error!(call = %self.follower.call().shown(), event = %event.id, "an event is not readable and is left out");
            return;
        };
        let told = self.messages.get(&*message_id).copied();
        match (event.name, told) {
            (_, Some(Told::Completed)) | (EventName::Delta, Some(Told::Headless)) => {}
            (EventName::Delta, _) => {
                self.messages.insert(message_id.into_owned(), Told::Text);
                self.logged(event, &event.data);
            }
            (EventName::Reset, _) => {
                self.messages.remove(&*message_id);
                self.logged(event, &event.data);
            }
            (_, told) => {
                let whole = match &event.message {
                    Some(message) => with_message(&event.data, message.bytes()),
                    None => event.data.clone(),
                };
                if told != Some(Told::Text) {
                    let lost = self.resumed || told == Some(Told::Headless);
                    self.say_whole_text(&message_id, &message_in(&whole), lost);
                }
                self.messages.insert(message_id.into_owned(), Told::Completed);
                self.logged(event, &whole);
            }
        }
    }

    /// What came after the client's last event is gone: all that is known is said anew, then what is left of the log.
    async fn bridge(&mut self, rest: Vec<LoggedEvent>) {
        let call = self.follower.call().clone();
        match self.sessions.status(&self.slot, &call).await {
            Ok(view) => {
                for message in &view.messages {
                    self.say_completed(message, true);
                }
            }
            Err(error) => return self.give_up(&error),
        }
        let first = rest.iter().find(|event| {
            matches!(event.name, EventName::Delta | EventName::Reset | EventName::MessageCompleted)
        });
        if let Some(first) = first.filter(|first| first.name == EventName::Delta)
            && let Ok(MessageId { message_id }) = serde_json::from_slice::<MessageId<'_>>(&first.data)
            && !self.messages.contains_key(&*message_id)
        {
            self.made(EventName::Reset, &MessageEvent::new(&call, &message_id));
            self.messages.insert(message_id.into_owned(), Told::Headless);
        }
        self.pass_on(rest);
    }

    /// The last event. Where the log is gone, everything is made from the reply first.
    fn finish(&mut self, reply: &Reply) {
        self.over = true;
        if self.end.is_none() {
            for message in &reply.messages {
                self.say_completed(message, self.resumed);
            }
        }
        let name = match reply.ended {
            Ended::Completed => EventName::Completed,
            Ended::Interrupted => EventName::Interrupted,
            Ended::Failed => EventName::Failed,
        };
        let view = match CallView::done(self.follower.call(), reply) {
            Ok(view) => Blob::json(&view),
            Err(error) => return self.give_up(&CallError::from(error)),
        };
        match self.end {
            Some(id) => self.frame(format_args!("{id}"), name, &view),
            None => self.made_of(name, &view),
        }
    }

    fn give_up(&mut self, error: &CallError) {
        tracing::warn!(call = %self.follower.call().shown(), "a stream of events ends early: {error}");
        self.over = true;
    }

    /// A whole message, unless the client has it already.
    fn say_completed(&mut self, message: &[u8], void_first: bool) {
        let entry = Entry::from_bytes(Bytes::copy_from_slice(message));
        let id = match entry.message() {
            Ok(message) => message.id.clone(),
            Err(error) => return self.give_up(&StoreError::Corrupt(error.to_string()).into()),
        };
        if self.messages.get(&id) == Some(&Told::Completed) {
            return;
        }
        self.say_whole_text(&id, &entry, void_first || self.messages.contains_key(&id));
        let call = self.follower.call().clone();
        let head = Blob::json(&MessageEvent::new(&call, &id));
        self.made_of(EventName::MessageCompleted, &with_message(&head, entry.raw()));
        self.messages.insert(id, Told::Completed);
    }

    fn say_whole_text(&mut self, id: &str, entry: &Entry, void_first: bool) {
        let call = self.follower.call().clone();
        if void_first {
            self.made(EventName::Reset, &MessageEvent::new(&call, id));
        }
        let text = entry.message().map(|message| message.text()).unwrap_or_default();
        if !text.is_empty() {
            let event = MessageEvent { text: Some(&text), ..MessageEvent::new(&call, id) };
            self.made(EventName::Delta, &event);
        }
    }

    fn logged(&mut self, event: &LoggedEvent, data: &Blob) {
        self.frame(format_args!("{}", event.id), event.name, data);
    }

    fn made(&mut self, name: EventName, event: &MessageEvent<'_>) {
        self.made_of(name, &Blob::json(event));
    }

    fn made_of(&mut self, name: EventName, data: &Blob) {
        self.made += 1;
        let (last, made) = (self.last, self.made);
        self.frame(format_args!("{last}.{made}"), name, data);
    }

    fn frame(&mut self, id: std::fmt::Arguments<'_>, name: EventName, data: &Blob) {
        // Writing to a string cannot fail.
        let _ = write!(self.frames, "id: {id}\nevent: {}\n", name.as_str());
        let text = String::from_utf8_lossy(data);
        for line in text.split('\n') {
            let _ = writeln!(self.frames, "data: {line}");
        }
        self.frames.push('\n');
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageId<'a> {
    #[serde(borrow)]
    message_id: Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageEvent<'a> {
    call_id: &'a str,
    message_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
}

impl<'a> MessageEvent<'a> {
    fn new(call: &'a CallId, message_id: &'a str) -> Self {
        Self { call_id: call.as_str(), message_id, text: None }
    }
}

/// The message that a `message.completed` carries.
fn message_in(data: &Blob) -> Entry {
    #[derive(Deserialize)]
    struct Carries<'a> {
        #[serde(borrow)]
        message: Option<&'a serde_json::value::RawValue>,
    }
    let carried = serde_json::from_slice::<Carries<'_>>(data).ok().and_then(|data| data.message);
    let message = carried.map(|message| Bytes::copy_from_slice(message.get().as_bytes()));
    Entry::from_bytes(message.unwrap_or_default())
}
