//! Objects as the API server's answers and watches bring them: of each only what a reconcile asks about, read without
//! building the rest. managedFields alone are often larger than everything that is asked.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher as _},
    marker::PhantomData,
};

use holdfast_crds::{Agent, AgentStatus};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, StatefulSet},
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube::Resource;
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    build::{HTTPRoute, ServiceMonitor},
    live::Kind,
    names::{FIELD_MANAGER, OWN_PREFIX},
    rollout::Rollout,
};

/// A type the operator makes or looks at.
pub trait Tracked: Resource<DynamicType = (), Scope = NamespaceResourceScope> {
    const KIND: Kind;
    /// What is read of it in an answer.
    type Sight: Sight + DeserializeOwned + Clone + fmt::Debug;
}

macro_rules! tracked {
    ($($type:ty => $kind:ident as $sight:ty),* $(,)?) => {
        $(impl Tracked for $type {
            const KIND: Kind = Kind::$kind;
            type Sight = $sight;
        })*
    };
}

tracked! {
    ServiceAccount => ServiceAccount as Seen<Self>,
    ConfigMap => ConfigMap as Seen<Self>,
    Secret => Secret as Seen<Self>,
    Service => Service as Seen<Self>,
    PodDisruptionBudget => DisruptionBudget as Seen<Self>,
    NetworkPolicy => NetworkPolicy as Seen<Self>,
    PersistentVolumeClaim => Claim as Seen<Self>,
    StatefulSet => StatefulSet as Seen<Self>,
    Deployment => Deployment as Seen<Self>,
    HorizontalPodAutoscaler => Autoscaler as SeenAutoscaler,
    HTTPRoute => HttpRoute as Seen<Self>,
    ServiceMonitor => ServiceMonitor as Seen<Self>,
}

/// What is common to everything that is watched.
pub trait Sight: Resource<DynamicType = (), Scope = NamespaceResourceScope> {
    const KIND: Kind;

    /// Changes when anything changes that we might have set; not with a status, as far as that can be told apart.
    fn mark(&self) -> u64;

    fn rollout(&self) -> Option<Rollout> {
        None
    }
}

/// An object's metadata, and no more is asked for.
pub struct Seen<K> {
    meta: ObjectMeta,
    mark: u64,
    _type: PhantomData<fn() -> K>,
}

impl<K: Tracked> Sight for Seen<K> {
    const KIND: Kind = K::KIND;

    fn mark(&self) -> u64 {
        self.mark
    }
}

impl<K> Clone for Seen<K> {
    fn clone(&self) -> Self {
        Self { meta: self.meta.clone(), mark: self.mark, _type: PhantomData }
    }
}

impl<K> fmt::Debug for Seen<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Seen").field(&self.meta.name).finish()
    }
}

impl<'de, K> Deserialize<'de> for Seen<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Object { metadata } = Object::deserialize(deserializer)?;
        Ok(Self { mark: metadata.mark(), meta: metadata.into(), _type: PhantomData })
    }
}

#[cfg(test)]
impl<K> Seen<K> {
    pub fn of(meta: ObjectMeta, mark: u64) -> Self {
        Self { meta, mark, _type: PhantomData }
    }
}

/// A Deployment: its metadata and how far it has come.
#[derive(Debug, Clone)]
pub struct SeenDeployment {
    meta: ObjectMeta,
    mark: u64,
    rollout: Rollout,
}

impl Sight for SeenDeployment {
    const KIND: Kind = Kind::Deployment;

    fn mark(&self) -> u64 {
        self.mark
    }

    fn rollout(&self) -> Option<Rollout> {
        Some(self.rollout.clone())
    }
}

impl<'de> Deserialize<'de> for SeenDeployment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let DeploymentObject { mut metadata, spec, status } = DeploymentObject::deserialize(deserializer)?;
        let others = std::mem::take(&mut metadata.managed_fields);
        let stuck = status.conditions.into_iter().find(|condition| {
            condition.kind == "Progressing" && condition.reason == "ProgressDeadlineExceeded"
        });
        let rollout = Rollout {
            generation: metadata.generation.unwrap_or_default(),
            observed_generation: status.observed_generation,
            desired: spec.replicas.unwrap_or(1),
            replicas: status.replicas,
            updated: status.updated_replicas,
            ready: status.ready_replicas,
            available: status.available_replicas,
            stuck: stuck.map(|condition| condition.message),
            replicas_owned_by_other: others.iter().any(ManagedFields::others_replicas),
        };
        Ok(Self { mark: metadata.mark(), meta: metadata.into(), rollout })
    }
}

/// An autoscaler: its status changes all the time, and no generation says that its spec has not.
#[derive(Debug, Clone)]
pub struct SeenAutoscaler {
    meta: ObjectMeta,
    mark: u64,
}

impl Sight for SeenAutoscaler {
    const KIND: Kind = Kind::Autoscaler;

    fn mark(&self) -> u64 {
        self.mark
    }
}

impl<'de> Deserialize<'de> for SeenAutoscaler {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let AutoscalerObject { metadata, spec } = AutoscalerObject::deserialize(deserializer)?;
        let mark = metadata.mark_by(&spec.as_deref().map(RawValue::get));
        Ok(Self { mark, meta: metadata.into() })
    }
}

/// An Agent as it is kept between two looks: its text, which is a third of what it is once it is read, and which one
/// Agent that cannot be read does not keep the others from.
#[derive(Debug, Clone)]
pub struct Kept {
    meta: ObjectMeta,
    spec: Box<RawValue>,
    status: Option<Box<RawValue>>,
}

impl Kept {
    pub fn read(&self) -> Result<Agent, serde_json::Error> {
        let mut agent = Agent::new("", serde_json::from_str(self.spec.get())?);
        agent.status = self.status.as_ref().map(|status| serde_json::from_str(status.get())).transpose()?;
        agent.metadata = self.meta.clone();
        Ok(agent)
    }

    /// What its status says, as far as it can be read.
    pub fn status(&self) -> AgentStatus {
        let status = self.status.as_ref().and_then(|status| serde_json::from_str(status.get()).ok());
        status.unwrap_or_default()
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let AgentObject { metadata, spec, status } = AgentObject::deserialize(deserializer)?;
        Ok(Self { meta: metadata.into(), spec, status })
    }
}

macro_rules! same_resource {
    ([$($generics:tt)*] $type:ty => $as:ty, $metadata_only:literal) => {
        impl<$($generics)*> Resource for $type {
            type DynamicType = ();
            type Scope = NamespaceResourceScope;

            fn kind(_: &()) -> Cow<'_, str> {
                <$as>::kind(&())
            }

            fn group(_: &()) -> Cow<'_, str> {
                <$as>::group(&())
            }

            fn version(_: &()) -> Cow<'_, str> {
                <$as>::version(&())
            }

            fn plural(_: &()) -> Cow<'_, str> {
                <$as>::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.meta
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.meta
            }

            fn metadata_api() -> bool {
                $metadata_only
            }
        }
    };
}

same_resource!([K: Tracked] Seen<K> => K, true);
same_resource!([] SeenDeployment => Deployment, false);
same_resource!([] SeenAutoscaler => HorizontalPodAutoscaler, false);
same_resource!([] Kept => Agent, false);

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct AgentObject {
    metadata: Metadata,
    spec: Box<RawValue>,
    #[serde(default)]
    status: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct AutoscalerObject {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct DeploymentObject {
    metadata: Metadata<ManagedFields>,
    #[serde(default)]
    spec: DeploymentSpec,
    #[serde(default)]
    status: DeploymentStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound = "M: Deserialize<'de>")]
struct Metadata<M = IgnoredAny> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    annotations: Annotations,
    #[serde(default)]
    labels: Labels,
    owner_references: Option<Vec<OwnerReference>>,
    #[serde(default = "Vec::new")]
    managed_fields: Vec<M>,
}

impl<M> Metadata<M> {
    /// By the generation, which a status leaves alone; where there is none, by the version.
    fn mark(&self) -> u64 {
        match self.generation {
            Some(generation) => self.mark_by(&generation),
            None => self.mark_by(&self.resource_version),
        }
    }

    fn mark_by(&self, by: &impl Hash) -> u64 {
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

/// Who set the number of replicas.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedFields {
    #[serde(default)]
    manager: String,
    #[serde(default, rename = "fieldsV1")]
    fields: Fields,
}

impl ManagedFields {
    fn others_replicas(&self) -> bool {
        self.manager != FIELD_MANAGER && self.fields.spec.as_ref().is_some_and(|spec| spec.replicas.is_some())
    }
}

#[derive(Default, Deserialize)]
struct Fields {
    #[serde(rename = "f:spec")]
    spec: Option<SpecFields>,
}

#[derive(Deserialize)]
struct SpecFields {
    #[serde(rename = "f:replicas")]
    replicas: Option<IgnoredAny>,
}

#[derive(Default, Deserialize)]
struct DeploymentSpec {
    replicas: Option<i32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeploymentStatus {
    observed_generation: i64,
    replicas: i32,
    updated_replicas: i32,
    ready_replicas: i32,
    available_replicas: i32,
    conditions: Vec<DeploymentCondition>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeploymentCondition {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}
