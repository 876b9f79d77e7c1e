//! The names of a slot's keys.
//!
//! ```text
//! hf:{P.b}:<slot>:head      hash    the session: version, lease, queue, … and its meta
//! hf:{P.b}:<slot>:ctx       list    the history, one message an element
//! hf:{P.b}:<slot>:calls     hash    live calls, a field a property: `<property>:<call>`
//! hf:{P.b}:<slot>:wal       list    the journal of the call at the head
//! hf:{P.b}:<slot>:done      zset    finished call → when
//! hf:{P.b}:<slot>:digests   hash    finished call → digest
//! hf:{P.b}:<slot>:tomb      hash    what a delete leaves
//! hf:{P.b}:<slot>:reply:<call>   list     how it ended, the document, the messages
//! hf:{P.b}:<slot>:events:<call>  stream   ids `<fence>-<seq>`
//! hf:{P.b}:due              zset    slot → when somebody must look at it
//! hf:{P.b}:sessions:<user>  zset    session → last change
//! ```
//!
//! `P` is the prefix, `b` the bucket, `<slot>` is `<user>.<session>`, and ids are base64url, so nothing in them can be
//! taken for a part of a name. The anonymous user is `~`, which base64url cannot spell.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::state::{CallId, Id, Slot};

/// Part of every stored name: it can never change.
pub const BUCKETS: u8 = 16;

const ANONYMOUS: &str = "~";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    Head,
    Context,
    Calls,
    Journal,
    Done,
    Digests,
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
            "calls" => Self::Calls,
            "wal" => Self::Journal,
            "done" => Self::Done,
            "digests" => Self::Digests,
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
            Self::Head | Self::Calls | Self::Digests | Self::Tomb => "hash",
            Self::Context | Self::Journal | Self::Reply => "list",
            Self::Done | Self::Due | Self::Sessions => "zset",
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
        format!("hf:{{{}.{}}}:sessions:{}", self.prefix, bucket(user), encode(user))
    }

    pub fn slot(&self, slot: &Slot) -> SlotKeys {
        let bucket = bucket(slot.user.as_ref().unwrap_or(&slot.session));
        let name = slot_name(slot);
        SlotKeys {
            due: self.due(bucket),
            sessions: slot.user.as_ref().map(|user| self.sessions(user)),
            stem: format!("hf:{{{}.{bucket}}}:{name}", self.prefix),
            name,
        }
    }
}

/// The keys of one slot.
#[derive(Debug, Clone)]
pub struct SlotKeys {
    /// The slot as the indexes and the announcements spell it.
    pub name: String,
    stem: String,
    due: String,
    sessions: Option<String>,
}

impl SlotKeys {
    /// `None` only for what an anonymous session or a request without a call does not have.
    pub fn key(&self, key: Key, call: Option<&CallId>) -> Option<String> {
        let stem = &self.stem;
        Some(match key {
            Key::Head => format!("{stem}:head"),
            Key::Context => format!("{stem}:ctx"),
            Key::Calls => format!("{stem}:calls"),
            Key::Journal => format!("{stem}:wal"),
            Key::Done => format!("{stem}:done"),
            Key::Digests => format!("{stem}:digests"),
            Key::Tomb => format!("{stem}:tomb"),
            Key::Due => self.due.clone(),
            Key::Reply => format!("{stem}:reply:{}", encode(call?)),
            Key::Events => format!("{stem}:events:{}", encode(call?)),
            Key::Sessions => self.sessions.clone()?,
        })
    }
}

fn bucket(id: &Id) -> u8 {
    Sha256::digest(id.as_str())[0] % BUCKETS
}

pub(crate) fn encode(id: &Id) -> String {
    URL_SAFE_NO_PAD.encode(id.as_str())
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

fn decode(text: &str) -> Option<String> {
    String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()
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
        for name in
            ["head", "ctx", "calls", "wal", "done", "digests", "tomb", "due", "reply", "live", "sessions"]
        {
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
