//! A message as it is stored: its bytes first, its meaning on demand.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::message::Message;

/// One message of a history. The bytes are the truth and are never rewritten. What was read in them, and what a model
/// provider makes of them, is kept beside them for as long as a call needs it.
#[derive(Clone)]
pub struct Entry(Arc<Inner>);

struct Inner {
    raw: Bytes,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    parsed: Option<Arc<Message>>,
    rendered: Option<Bytes>,
}

impl Entry {
    /// Takes bytes from a store. Whether they are a message is known when they are first read.
    pub fn from_bytes(raw: Bytes) -> Self {
        Self(Arc::new(Inner { raw, known: Mutex::default() }))
    }

    pub fn new(message: Message) -> Self {
        let raw = serde_json::to_vec(&message).unwrap_or_else(|error| {
            // Messages are maps of strings and JSON values: there is nothing in them that JSON cannot say.
            unreachable!("a message always serialises: {error}")
        });
        let known = Known { parsed: Some(Arc::new(message)), rendered: None };
        Self(Arc::new(Inner { raw: raw.into(), known: Mutex::new(known) }))
    }

    pub fn raw(&self) -> &Bytes {
        &self.0.raw
    }

    /// What it says, read at most once until it is forgotten.
    pub fn message(&self) -> Result<Arc<Message>, serde_json::Error> {
        let mut known = self.known();
        if let Some(message) = &known.parsed {
            return Ok(Arc::clone(message));
        }
        let message: Arc<Message> = Arc::new(serde_json::from_slice(&self.0.raw)?);
        known.parsed = Some(Arc::clone(&message));
        Ok(message)
    }

    /// What it says, for one look: nothing more is kept than before.
    pub fn glance(&self) -> Result<Arc<Message>, serde_json::Error> {
        match &self.known().parsed {
            Some(message) => Ok(Arc::clone(message)),
            None => Ok(Arc::new(serde_json::from_slice(&self.0.raw)?)),
        }
    }

    /// What `render` makes of this message, computed once until it is forgotten.
    pub fn rendered(&self, render: impl FnOnce(&Message) -> Bytes) -> Result<Bytes, serde_json::Error> {
        if let Some(rendered) = &self.known().rendered {
            return Ok(rendered.clone());
        }
        let rendered = render(&*self.message()?);
        self.known().rendered = Some(rendered.clone());
        Ok(rendered)
    }

    /// The same for the last time: from now on whoever asked keeps it.
    pub fn take_rendered(&self, render: impl FnOnce(&Message) -> Bytes) -> Result<Bytes, serde_json::Error> {
        let known = std::mem::take(&mut *self.known());
        match known {
            Known { rendered: Some(rendered), .. } => Ok(rendered),
            Known { parsed: Some(message), .. } => Ok(render(&message)),
            Known { .. } => Ok(render(&serde_json::from_slice(&self.0.raw)?)),
        }
    }

    /// Only the bytes are kept.
    pub fn forget(&self) {
        *self.known() = Known::default();
    }

    /// Whether both are the very same, and not only alike.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // Nothing is ever half-changed under this lock.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
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
