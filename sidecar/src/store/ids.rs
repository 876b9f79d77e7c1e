//! The small proofs that travel with every operation: who asks, under which lease, about which history.

use std::fmt;
use std::str::FromStr;

use rand::Rng;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};

macro_rules! random_128 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(pub u128);

        impl $name {
            pub fn random() -> Self {
                Self(rand::rng().random())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = std::num::ParseIntError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                u128::from_str_radix(text, 16).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = std::num::ParseIntError;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    };
}

random_128! {
    /// Made by the caller of a request, so that the same request sent again is known as the same.
    Nonce
}

random_128! {
    /// Names one unbroken, append-only history. Every rewrite makes a new one; none is ever used twice.
    Epoch
}

/// Proof of a lease: the fence it was granted under and the nonce of whoever asked. Compared whole, for equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    pub fence: u64,
    pub nonce: Nonce,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.fence, self.nonce)
    }
}

/// The SHA-1 of a history's last element, or zeros where there is none. Not a secret and not a signature: message ids
/// are random, so two histories that end in the same bytes are the same history.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tail(pub [u8; 20]);

impl Tail {
    pub fn of(last: Option<&[u8]>) -> Self {
        last.map_or_else(Self::default, |bytes| Self(Sha1::digest(bytes).into()))
    }
}

impl fmt::Display for Tail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The place of an event in its call's log. Ordered: a later fence is a later run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EventId {
    pub fence: u64,
    pub seq: u64,
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.fence, self.seq)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an event id; give back one that an `id:` line of this call carried")]
pub struct EventIdError(String);

impl FromStr for EventId {
    type Err = EventIdError;
    fn from_str(text: &str) -> Result<Self, EventIdError> {
        let error = || EventIdError(text.to_owned());
        let (fence, seq) = text.split_once('-').ok_or_else(error)?;
        Ok(Self { fence: fence.parse().map_err(|_| error())?, seq: seq.parse().map_err(|_| error())? })
    }
}

impl TryFrom<String> for EventId {
    type Error = EventIdError;
    fn try_from(text: String) -> Result<Self, EventIdError> {
        text.parse()
    }
}

impl From<EventId> for String {
    fn from(id: EventId) -> Self {
        id.to_string()
    }
}
