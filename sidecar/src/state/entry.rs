//! A message as it is stored: its bytes first, its meaning on demand.

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::message::Message;

/// One message of a history. The bytes are the truth and are never rewritten; parsing happens at most once, and what a
/// model provider makes of the message is kept beside it, so that a long history costs nothing when it is sent again.
#[derive(Clone)]
pub struct Entry(Arc<Inner>);

struct Inner {
    raw: Bytes,
    parsed: OnceLock<Arc<Message>>,
    rendered: OnceLock<Bytes>,
}

impl Entry {
    /// Takes bytes from a store. `Err` says why they are not a message.
    pub fn from_bytes(raw: Bytes) -> Self {
        Self(Arc::new(Inner { raw, parsed: OnceLock::new(), rendered: OnceLock::new() }))
    }

    pub fn new(message: Message) -> Self {
        let raw = serde_json::to_vec(&message).unwrap_or_else(|error| {
            // Messages are maps of strings and JSON values: there is nothing in them that JSON cannot say.
            unreachable!("a message always serialises: {error}")
        });
        let parsed = OnceLock::from(Arc::new(message));
        Self(Arc::new(Inner { raw: raw.into(), parsed, rendered: OnceLock::new() }))
    }

    pub fn raw(&self) -> &Bytes {
        &self.0.raw
    }

    pub fn message(&self) -> Result<&Arc<Message>, serde_json::Error> {
        if let Some(message) = self.0.parsed.get() {
            return Ok(message);
        }
        let message = Arc::new(serde_json::from_slice(&self.0.raw)?);
        Ok(self.0.parsed.get_or_init(|| message))
    }

    /// What `render` makes of this message, computed once for the life of the entry.
    pub fn rendered(&self, render: impl FnOnce(&Message) -> Bytes) -> Result<&Bytes, serde_json::Error> {
        if let Some(rendered) = self.0.rendered.get() {
            return Ok(rendered);
        }
        let rendered = render(self.message()?);
        Ok(self.0.rendered.get_or_init(|| rendered))
    }

    /// What it holds in memory, for the cache's bound.
    pub fn weight(&self) -> usize {
        let parsed = if self.0.parsed.get().is_some() { self.0.raw.len() } else { 0 };
        self.0.raw.len() + parsed + self.0.rendered.get().map_or(0, Bytes::len) + 128
    }
}

impl From<Message> for Entry {
    fn from(message: Message) -> Self {
        Self::new(message)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0.raw == other.0.raw
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0.raw))
    }
}
