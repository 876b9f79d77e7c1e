//! JSON that the store carries and does not read.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

/// Opaque JSON text, or nothing. Serialised as the JSON it is, so that a file of them can be read by a person.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Blob(Bytes);

impl Blob {
    pub const fn empty() -> Self {
        Self(Bytes::new())
    }

    pub fn json<T: Serialize>(value: &T) -> Self {
        let text = serde_json::to_vec(value)
            .unwrap_or_else(|error| unreachable!("what the sidecar stores is a JSON tree: {error}"));
        Self(text.into())
    }

    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl<T: Into<Bytes>> From<T> for Blob {
    fn from(bytes: T) -> Self {
        Self(bytes.into())
    }
}

impl Deref for Blob {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Blob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_empty() {
            return serializer.serialize_none();
        }
        let text = std::str::from_utf8(&self.0).map_err(serde::ser::Error::custom)?;
        serde_json::from_str::<&RawValue>(text).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Ok(if raw.get() == "null" {
            Self::empty()
        } else {
            Self(Bytes::copy_from_slice(raw.get().as_bytes()))
        })
    }
}
