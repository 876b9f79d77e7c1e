//! Ids of users, sessions and calls: any string of 1 to 512 bytes, compared byte by byte.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest id in bytes.
pub const MAX_ID_BYTES: usize = 512;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("the {what} id is empty; give it 1 to {MAX_ID_BYTES} bytes")]
    Empty { what: &'static str },
    #[error("the {what} id is {len} bytes long; at most {MAX_ID_BYTES} are allowed")]
    TooLong { what: &'static str, len: usize },
}

/// A user or session id. Nothing in it is special: `/`, `*`, `..`, a newline and an emoji are ordinary characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(Arc<str>);

impl Id {
    pub fn new(what: &'static str, text: impl Into<Arc<str>>) -> Result<Self, IdError> {
        let text = text.into();
        match text.len() {
            0 => Err(IdError::Empty { what }),
            len if len > MAX_ID_BYTES => Err(IdError::TooLong { what, len }),
            _ => Ok(Self(text)),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// For logs: no id can begin a line, or end one.
    pub fn shown(&self) -> impl fmt::Display + '_ {
        self.0.escape_debug()
    }
}

impl TryFrom<String> for Id {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, IdError> {
        Self::new("stored", text)
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.0.to_string()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A call id has the form of any other id; within its session it names one call for ever.
pub type CallId = Id;

/// One conversation of one user. `user: None` is the anonymous user, which no id can spell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Slot {
    pub user: Option<Id>,
    pub session: Id,
}

impl Slot {
    pub fn new(user: Option<&str>, session: &str) -> Result<Self, IdError> {
        let user = user.map(|user| Id::new("user", user)).transpose()?;
        Ok(Self { user, session: Id::new("session", session)? })
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "{user:?}/{:?}", self.session),
            None => write!(f, "anonymous/{:?}", self.session),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_string_of_512_bytes_is_an_id() {
        for text in ["a", "/", "*", "..", "a\nb", "😀", &"x".repeat(512)] {
            assert_eq!(Id::new("user", text).expect(text).as_str(), text);
        }
    }

    #[test]
    fn no_id_begins_a_line_of_a_log() {
        let shown = |text: &str| Id::new("call", text).expect("an id").shown().to_string();
        assert_eq!(shown("c-1"), "c-1");
        assert_eq!(shown("c\n2026-11-18 ERROR\u{1b}[31m"), "c\\n2026-11-18 ERROR\\u{1b}[31m");
    }

    #[test]
    fn empty_and_longer_ids_are_refused_with_their_size() {
        assert_eq!(Id::new("user", ""), Err(IdError::Empty { what: "user" }));
        assert_eq!(Id::new("user", "x".repeat(513)), Err(IdError::TooLong { what: "user", len: 513 }));
    }
}
