//! The names of a slot's keys.
//!
//! ```text
//! hf:{P.b}:<slot>:h         hash    the session, its live and its finished calls, the journal, its meta
//! hf:{P.b}:<slot>:c         list    the history, one message an element
//! hf:{P.b}:<slot>:t         hash    what a delete leaves
//! hf:{P.b}:<slot>:r:<call>  string  how it ended, the document, the messages, what events are in no log
//! hf:{P.b}:<slot>:e:<call>  stream  ids `<fence>-<seq>`
//! hf:{P.b}:due              zset    slot → when somebody must look at it
//! hf:{P.b}:s:<user>         zset    session → last change
//! ```
//!
//! `P` is the prefix, `b` the bucket, `<slot>` is `<user>.<session>`. In ids all but letters, digits and `_-@+=` is a `%` and
//! two hex digits, so nothing in them can be taken for a part of a name. The anonymous user is `~`, which no id spells.
//! Scripts find the slot, the session and the call in the names of their keys.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::state::{CallId, Id, Slot};

/// Part of every stored name: it can never change.
pub const BUCKETS: u8 = 16;

const ANONYMOUS: &str = "~";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Head,
    Context,
    Tomb,
    Due,
    Reply,
    Events,
    Sessions,
}

impl Key {
    /// By its name in the scripts.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "head" => Self::Head,
            "ctx" => Self::Context,
            "tomb" => Self::Tomb,
            "due" => Self::Due,
            "reply" => Self::Reply,
            "live" => Self::Events,
            "sessions" => Self::Sessions,
            _ => return None,
        })
    }

    /// What Redis' `TYPE` must say.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Head | Self::Tomb => "hash",
            Self::Context => "list",
            Self::Reply => "string",
            Self::Due | Self::Sessions => "zset",
            Self::Events => "stream",
        }
    }
}

/// All keys of one agent.
#[derive(Debug, Clone)]
pub struct Namespace {
    prefix: String,
}

impl Namespace {
    /// Braces would end the hash tag, and with it the promise that a slot's keys live on one node.
    pub fn new(prefix: &str) -> Option<Self> {
        let valid = !prefix.is_empty() && !prefix.contains(['{', '}']);
        valid.then(|| Self { prefix: prefix.to_owned() })
    }

    pub fn channel(&self) -> String {
        format!("hf:{}:announce", self.prefix)
    }

    pub fn due(&self, bucket: u8) -> String {
        format!("hf:{{{}.{bucket}}}:due", self.prefix)
    }

    pub fn sessions(&self, user: &Id) -> String {
        format!("hf:{{{}.{}}}:s:{}", self.prefix, bucket(user), encode(user))
    }

    pub fn slot(&self, slot: &Slot) -> SlotKeys {
        let bucket = bucket(slot.user.as_ref().unwrap_or(&slot.session));
        SlotKeys {
            due: self.due(bucket),
            sessions: slot.user.as_ref().map(|user| self.sessions(user)),
            stem: format!("hf:{{{}.{bucket}}}:{}", self.prefix, slot_name(slot)),
        }
    }
}

/// The keys of one slot.
#[derive(Debug, Clone)]
pub struct SlotKeys {
    stem: String,
    due: String,
    sessions: Option<String>,
}

impl SlotKeys {
    /// `None` only for what a request without a call does not have. An anonymous session is in no list; its place is taken by
    /// a key that is there anyway.
    pub fn key(&self, key: Key, call: Option<&CallId>) -> Option<String> {
        let stem = &self.stem;
        Some(match key {
            Key::Head => format!("{stem}:h"),
            Key::Context => format!("{stem}:c"),
            Key::Tomb => format!("{stem}:t"),
            Key::Due => self.due.clone(),
            Key::Reply => format!("{stem}:r:{}", encode(call?)),
            Key::Events => format!("{stem}:e:{}", encode(call?)),
            Key::Sessions => self.sessions.as_ref().unwrap_or(&self.due).clone(),
        })
    }
}

fn bucket(id: &Id) -> u8 {
    Sha256::digest(id.as_str())[0] % BUCKETS
}

/// An id as a part of a name.
pub(crate) fn encode(id: &Id) -> String {
    let mut name = String::with_capacity(id.as_str().len());
    for byte in id.as_str().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'@' | b'+' | b'=' => {
                name.push(char::from(byte));
            }
            other => drop(write!(name, "%{other:02x}")),
        }
    }
    name
}

pub(crate) fn slot_name(slot: &Slot) -> String {
    let user = slot.user.as_ref().map_or_else(|| ANONYMOUS.to_owned(), encode);
    format!("{user}.{}", encode(&slot.session))
}

/// The slot that a name in an index or an announcement stands for.
pub fn parse_slot_name(name: &[u8]) -> Option<Slot> {
    let (user, session) = std::str::from_utf8(name).ok()?.split_once('.')?;
    let user = if user == ANONYMOUS { None } else { Some(decode(user)?) };
    Slot::new(user.as_deref(), &decode(session)?).ok()
}

fn decode(name: &str) -> Option<String> {
    let mut parts = name.split('%');
    let mut id = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let code = part.get(..2).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()))?;
        id.push(u8::from_str_radix(code, 16).ok()?);
        id.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(user: Option<&str>, session: &str) -> Slot {
        Slot::new(user, session).expect("a slot")
    }

    #[test]
    fn a_slot_name_reads_back_and_no_two_are_alike() {
        let ids = ["a", "a.b", "~", "/", "*", "..", "a\nb", "😀", "{x}", &"é".repeat(256)];
        let users = ids.iter().map(|id| Some(*id)).chain([None]);
        let slots: Vec<_> =
            users.flat_map(|user| ids.iter().map(move |session| slot(user, session))).collect();
        let names: std::collections::BTreeSet<_> = slots.iter().map(slot_name).collect();
        assert_eq!(names.len(), slots.len());
        for slot in slots {
            assert_eq!(parse_slot_name(slot_name(&slot).as_bytes()), Some(slot));
        }
    }

    #[test]
    fn every_key_of_a_slot_carries_its_bucket_as_the_hash_tag() {
        let keys = Namespace::new("ns.agent").expect("a prefix").slot(&slot(Some("u"), "s"));
        let call = CallId::new("call", "c").expect("an id");
        for name in ["head", "ctx", "tomb", "due", "reply", "live", "sessions"] {
            let key = keys.key(Key::named(name).expect(name), Some(&call)).expect(name);
            // SHA-256("u") starts with 0x0b.
            assert!(key.starts_with("hf:{ns.agent.11}:"), "{key}");
        }
    }

    #[test]
    fn a_prefix_with_braces_or_none_at_all_is_refused() {
        for prefix in ["", "{", "a}b"] {
            assert!(Namespace::new(prefix).is_none(), "{prefix:?}");
        }
    }
}
