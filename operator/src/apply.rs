//! The fourth step: make the cluster look like what was built. One field manager, server-side apply, and no
//! request at all for what is as it was left.

use std::{
    fmt::Debug,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use holdfast_crds::Agent;
use k8s_openapi::{
    NamespaceResourceScope, api::autoscaling::v2::HorizontalPodAutoscaler,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    build::{ManagedRedis, Resources},
    context::Context,
    error::Error,
    live::{Entry, Key, Kind, Tracked},
    names::FIELD_MANAGER,
};

/// In this order: what the pods need before the pods, and the autoscaler only once there is something to scale.
/// The claims of a managed Redis are its StatefulSet's.
pub async fn apply(context: &Context, agent: &Agent, resources: Resources) -> Result<(), Error> {
    let Resources {
        service_account,
        config_map,
        service,
        disruption_budget,
        network_policy,
        claim,
        redis,
        deployment,
        autoscaler,
    } = resources;
    let to = Applier { context, agent };
    to.apply(service_account).await?;
    to.apply(service).await?;
    to.apply(network_policy).await?;
    to.apply(disruption_budget).await?;
    if let Some(claim) = claim {
        to.apply(claim).await?;
    }
    if let Some(ManagedRedis { secret, service, network_policy, stateful_set }) = redis {
        if let Some(secret) = secret {
            // The pods carry its version, so they wait for it: that it was written wakes us again.
            return to.create_or_apply(secret).await;
        }
        to.apply(service).await?;
        to.apply(network_policy).await?;
        to.apply(stateful_set).await?;
    }
    to.apply(config_map).await?;
    to.apply(deployment).await?;
    match autoscaler {
        Some(autoscaler) => to.apply(autoscaler).await?,
        None => to.remove::<HorizontalPodAutoscaler>(Kind::Autoscaler).await?,
    }
    Ok(())
}

struct Applier<'a> {
    context: &'a Context,
    agent: &'a Agent,
}

impl Applier<'_> {
    async fn apply<K>(&self, object: K) -> Result<(), Error>
    where
        K: Tracked + Resource<Scope = NamespaceResourceScope> + Serialize + DeserializeOwned + Clone + Debug,
    {
        let (key, hash) = (self.key::<K>(&object.name_any()), hash(&object));
        let live = self.context.live.get(&key);
        if live.as_ref().is_some_and(|live| self.context.memory.is_applied(&key, hash, &live.version)) {
            return Ok(());
        }
        self.must_be_ours(&key, live.as_ref(), &object).await?;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let applied =
            self.api::<K>().patch_metadata(&object.name_any(), &params, &Patch::Apply(&object)).await;
        let applied =
            applied.map_err(|source| Error::Apply { object: called(&object), source: Box::new(source) })?;
        self.remember(key, hash, &applied.metadata);
        Ok(())
    }

    /// A Secret with a password of our making: two writers must not make two.
    async fn create_or_apply<K>(&self, object: K) -> Result<(), Error>
    where
        K: Tracked + Resource<Scope = NamespaceResourceScope> + Serialize + DeserializeOwned + Clone + Debug,
    {
        let key = self.key::<K>(&object.name_any());
        if self.context.live.get(&key).is_some() {
            return self.apply(object).await;
        }
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let created = self.api::<K>().create(&params, &object).await;
        let created =
            created.map_err(|source| Error::Apply { object: called(&object), source: Box::new(source) })?;
        self.context.live.wrote(key, created.meta());
        self.context.metrics.writes.inc();
        Ok(())
    }

    /// Whatever bears the name already must be this Agent's. Objects of others carry none of our labels, so a watch
    /// does not show them: the first time, the API server is asked.
    async fn must_be_ours<K>(&self, key: &Key, live: Option<&Entry>, object: &K) -> Result<(), Error>
    where
        K: Tracked + Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let asked;
        let live = match live {
            Some(live) => Some(live),
            None if self.context.memory.was_ever_applied(key) => None,
            None => {
                let found = self.api::<K>().get_metadata_opt(&object.name_any()).await;
                let found = found
                    .map_err(|source| Error::Apply { object: called(object), source: Box::new(source) })?;
                asked = found.map(|found| Entry::of(&found.metadata, None));
                asked.as_ref()
            }
        };
        // A claim has no owner: it is found again by an Agent of the same name, and so are its conversations.
        match live {
            Some(live) if !live.is_owned_by(self.agent) && K::KIND != Kind::Claim => {
                Err(Error::NameTaken { object: called(object) })
            }
            _ => Ok(()),
        }
    }

    /// What the manifest no longer asks for, if it is there and ours.
    async fn remove<K>(&self, kind: Kind) -> Result<(), Error>
    where
        K: Tracked + Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        let name = self.agent.name_any();
        let key = Key::new(kind, &self.agent.namespace().unwrap_or_default(), &name);
        let Some(live) = self.context.live.get(&key).filter(|live| live.is_owned_by(self.agent)) else {
            return Ok(());
        };
        let exactly_this = Preconditions { uid: Some(live.uid.into()), resource_version: None };
        let params = DeleteParams { preconditions: Some(exactly_this), ..DeleteParams::default() };
        match self.api::<K>().delete(&name, &params).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(source) => {
                let object = format!("{} {name}", K::kind(&()));
                return Err(Error::Delete { object, source: Box::new(source) });
            }
        }
        self.context.live.removed(&key);
        self.context.memory.forget_applied(&key);
        self.context.metrics.writes.inc();
        Ok(())
    }

    fn remember(&self, key: Key, hash: u64, meta: &ObjectMeta) {
        let version = meta.resource_version.as_deref().unwrap_or_default();
        self.context.memory.applied(key.clone(), hash, version);
        self.context.live.wrote(key, meta);
        self.context.metrics.writes.inc();
    }

    fn key<K: Tracked>(&self, name: &str) -> Key {
        Key::new(K::KIND, &self.agent.namespace().unwrap_or_default(), name)
    }

    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.context.client.clone(), &self.agent.namespace().unwrap_or_default())
    }
}

fn called<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{} {}", K::kind(&()), object.name_any())
}

/// Of what we ask for, without the version a number of replicas was read at.
fn hash<K: Resource + Serialize + Clone>(object: &K) -> u64 {
    let mut object = object.clone();
    object.meta_mut().resource_version = None;
    let mut hasher = DefaultHasher::new();
    // An object that cannot be serialised cannot be applied either; the request will say so.
    serde_json::to_vec(&object).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}
