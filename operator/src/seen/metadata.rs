//! The metadata of an object, read without building what nobody asks about: managedFields alone are often larger than
//! everything that is asked.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher as _},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

use crate::names::OWN_PREFIX;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "M: Deserialize<'de>")]
pub(super) struct Metadata<M = IgnoredAny> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    pub(super) generation: Option<i64>,
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    annotations: Annotations,
    #[serde(default)]
    labels: Labels,
    owner_references: Option<Vec<OwnerReference>>,
    #[serde(default = "Vec::new")]
    pub(super) managed_fields: Vec<M>,
}

impl<M> Metadata<M> {
    /// By the generation, which a status leaves alone; where there is none, by the version.
    pub(super) fn mark(&self) -> u64 {
        match self.generation {
            Some(generation) => self.mark_by(&generation),
            None => self.mark_by(&self.resource_version),
        }
    }

    pub(super) fn mark_by(&self, by: &impl Hash) -> u64 {
        let owners = self.owner_references.iter().flatten();
        hash(&(by, self.labels.0, owners.map(|owner| (&owner.uid, owner.controller)).collect::<Vec<_>>()))
    }
}

/// For as long as the process lives.
fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

impl<M> From<Metadata<M>> for ObjectMeta {
    fn from(metadata: Metadata<M>) -> Self {
        let annotations = metadata.annotations.0;
        Self {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            deletion_timestamp: metadata.deletion_timestamp,
            annotations: (!annotations.is_empty()).then_some(annotations),
            owner_references: metadata.owner_references,
            ..Self::default()
        }
    }
}

/// Only those we give a meaning to: what kubectl leaves there is as large as the whole object.
#[derive(Default)]
struct Annotations(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut found = BTreeMap::new();
        deserializer.deserialize_map(Pairs(|name: &str, value: &str| {
            if name.starts_with(OWN_PREFIX) {
                found.insert(name.to_owned(), value.to_owned());
            }
        }))?;
        Ok(Self(found))
    }
}

/// All of them in one number, in whatever order they come.
#[derive(Default)]
struct Labels(u64);

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut sum = 0_u64;
        deserializer.deserialize_map(Pairs(|name: &str, value: &str| {
            sum = sum.wrapping_add(hash(&(name, value)));
        }))?;
        Ok(Self(sum))
    }
}

/// Shows every pair of a map to a function, and keeps none.
struct Pairs<F>(F);

impl<'de, F: FnMut(&str, &str)> Visitor<'de> for Pairs<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((name, value)) = map.next_entry::<Text<'de>, Text<'de>>()? {
            self.0(&name.0, &value.0);
        }
        Ok(())
    }
}

/// Borrowed where it stands in the answer as it is.
#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
