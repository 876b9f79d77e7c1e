//! An Agent as the API server shows it: what it says is text still, so that one that cannot be read does not keep the
//! others from being listed.

use holdfast_crds::Agent;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{metadata::Metadata, same_resource};

#[derive(Debug, Clone)]
pub struct SeenAgent {
    pub meta: ObjectMeta,
    pub spec: Box<RawValue>,
    pub status: Option<Box<RawValue>>,
}

impl<'de> Deserialize<'de> for SeenAgent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object { metadata, spec, status } = Object::deserialize(deserializer)?;
        Ok(Self { meta: metadata.into(), spec, status })
    }
}

same_resource!([] SeenAgent => Agent, false);

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
    spec: Box<RawValue>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}
