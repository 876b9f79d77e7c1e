//! Objects as the API server's answers and watches bring them: of each only what a reconcile asks about, read without
//! building the rest. managedFields alone are often larger than everything that is asked.

mod agent;
mod deployment;
mod metadata;

use std::{fmt, marker::PhantomData};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, StatefulSet},
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

use crate::{
    build::{HTTPRoute, ServiceMonitor},
    live::Kind,
    rollout::Rollout,
};
use metadata::Metadata;

pub use agent::SeenAgent;
pub use deployment::SeenDeployment;

/// What is seen of a type is an object of that type.
macro_rules! same_resource {
    ([$($generics:tt)*] $type:ty => $as:ty, $metadata_only:literal) => {
        impl<$($generics)*> kube::Resource for $type {
            type DynamicType = ();
            type Scope = k8s_openapi::NamespaceResourceScope;

            fn kind(_: &()) -> std::borrow::Cow<'_, str> {
                <$as as kube::Resource>::kind(&())
            }

            fn group(_: &()) -> std::borrow::Cow<'_, str> {
                <$as as kube::Resource>::group(&())
            }

            fn version(_: &()) -> std::borrow::Cow<'_, str> {
                <$as as kube::Resource>::version(&())
            }

            fn plural(_: &()) -> std::borrow::Cow<'_, str> {
                <$as as kube::Resource>::plural(&())
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.meta
            }

            fn meta_mut(&mut self) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.meta
            }

            fn metadata_api() -> bool {
                $metadata_only
            }
        }
    };
}

use same_resource;

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

same_resource!([K: Tracked] Seen<K> => K, true);
same_resource!([] SeenAutoscaler => HorizontalPodAutoscaler, false);

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct AutoscalerObject {
    metadata: Metadata,
    #[serde(default)]
    spec: Option<Box<RawValue>>,
}
