//! The fourth step: make the cluster look like what was built. One field manager, server-side apply, and no
//! request at all for what is as it was left.

use std::{
    fmt::Debug,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use holdfast_crds::Agent;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{apps::v1::Deployment, core::v1::Secret},
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
    live::{Entry, Key, Kind},
    names::FIELD_MANAGER,
    seen::Tracked,
};

/// A version no object ever has: an apply that names it makes the object, or is refused because there is one.
const MUST_BE_NEW: &str = "1";

/// In this order: what the pods need before the pods, and the autoscaler only once there is something to scale.
/// The claims of a managed Redis are its StatefulSet's.
/// Says whether more has happened to one of them than what we did, so that another look is due.
pub async fn apply(context: &Context, agent: &Agent, resources: Resources) -> Result<bool, Error> {
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
        http_route,
        service_monitor,
    } = resources;
    let mut to = Applier { context, agent, again: false };
    to.apply(service_account).await?;
    to.apply(service).await?;
    to.apply(network_policy).await?;
    to.apply(disruption_budget).await?;
    if let Some(claim) = claim {
        to.apply(claim).await?;
    }
    if let Some(ManagedRedis { secret, service, network_policy, stateful_set }) = redis {
        if let Some(secret) = secret {
            // The pods carry its version, so they wait for it: a new one wakes us by its event.
            return to.create_or_apply(secret).await;
        }
        to.apply(service).await?;
        to.apply(network_policy).await?;
        to.apply(stateful_set).await?;
    }
    to.apply(config_map).await?;
    Box::pin(to.apply_deployment(deployment)).await?;
    to.apply_or_remove(autoscaler).await?;
    to.apply_or_remove(http_route).await?;
    to.apply_or_remove(service_monitor).await?;
    Ok(to.again)
}

struct Applier<'a> {
    context: &'a Context,
    agent: &'a Agent,
    again: bool,
}

impl Applier<'_> {
    async fn apply<K: Tracked + Serialize + Clone + Debug>(&mut self, object: K) -> Result<(), Error> {
        self.apply_with(object, None).await
    }

    async fn apply_deployment(&mut self, deployment: Deployment) -> Result<(), Error> {
        let replicas = deployment.spec.as_ref().and_then(|spec| spec.replicas);
        self.apply_with(deployment, replicas).await
    }

    /// What the manifest may or may not ask for, in a cluster that knows such a thing.
    async fn apply_or_remove<K>(&mut self, object: Option<K>) -> Result<(), Error>
    where
        K: Tracked + Serialize + DeserializeOwned + Clone + Debug,
    {
        match object {
            _ if !self.context.live.knows(K::KIND) => Ok(()),
            Some(object) => self.apply(object).await,
            None => self.remove::<K>().await,
        }
    }

    async fn apply_with<K>(&mut self, mut object: K, replicas: Option<i32>) -> Result<(), Error>
    where
        K: Tracked + Serialize + Clone + Debug,
    {
        // The version a number of replicas was read at is not part of what we ask for.
        let version = object.meta_mut().resource_version.take();
        let (key, hash) = (self.key(K::KIND, &object.name_any()), hash(&object));
        object.meta_mut().resource_version = version;
        match self.context.live.get(&key) {
            Some(live) if live.is_as_applied(hash) => Ok(()),
            Some(live) => {
                self.must_be_ours(&live, &object)?;
                self.send(&key, &object, hash, replicas).await
            }
            None => self.make(&key, object, hash, replicas).await,
        }
    }

    /// Whatever bears the name already must be this Agent's. Objects of others carry none of our labels, so a watch
    /// does not show them: the API server says whether there is one.
    async fn make<K>(
        &mut self,
        key: &Key,
        mut object: K,
        hash: u64,
        replicas: Option<i32>,
    ) -> Result<(), Error>
    where
        K: Tracked + Serialize + Clone + Debug,
    {
        object.meta_mut().resource_version = Some(MUST_BE_NEW.to_owned());
        match self.send(key, &object, hash, replicas).await {
            Err(Error::Apply { source, .. }) if is_conflict(&source) => {}
            done => return done,
        }
        let found = self.api::<K::Sight>().get_opt(&object.name_any()).await;
        let found = found.map_err(|source| not_applied(&object, source))?;
        if let Some(found) = found {
            self.must_be_ours(&Entry::of(&found), &object)?;
        }
        object.meta_mut().resource_version = None;
        self.send(key, &object, hash, replicas).await
    }

    async fn send<K>(&mut self, key: &Key, object: &K, hash: u64, replicas: Option<i32>) -> Result<(), Error>
    where
        K: Tracked + Serialize + Debug,
    {
        let live = &self.context.live;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let _awaited = live.awaits(key);
        let applied = self.api::<K::Sight>().patch(&object.name_any(), &params, &Patch::Apply(object)).await;
        let applied = applied.map_err(|source| not_applied(object, source))?;
        self.again |= live.wrote(key, &applied, Some(hash), replicas);
        self.context.metrics.writes.inc();
        Ok(())
    }

    /// A Secret with a password of our making: two writers must not make two.
    async fn create_or_apply(&mut self, secret: Secret) -> Result<bool, Error> {
        let key = self.key(Kind::Secret, &secret.name_any());
        if self.context.live.get(&key).is_some() {
            self.apply(secret).await?;
            return Ok(true);
        }
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let created = self.api::<Secret>().create(&params, &secret).await;
        created.map_err(|source| not_applied(&secret, source))?;
        self.context.metrics.writes.inc();
        Ok(false)
    }

    /// A claim has no owner: it is found again by an Agent of the same name, and so are its conversations.
    fn must_be_ours<K: Tracked>(&self, live: &Entry, object: &K) -> Result<(), Error> {
        if live.is_owned_by(self.agent) || K::KIND == Kind::Claim {
            Ok(())
        } else {
            Err(Error::NameTaken { object: called(object) })
        }
    }

    /// What the manifest no longer asks for, if it is there and ours.
    async fn remove<K: Tracked + Clone + DeserializeOwned + Debug>(&self) -> Result<(), Error> {
        let name = self.agent.name_any();
        let key = self.key(K::KIND, &name);
        let Some(live) = self.context.live.get(&key).filter(|live| live.is_owned_by(self.agent)) else {
            return Ok(());
        };
        let exactly_this = Preconditions { uid: Some(live.uid.to_string()), resource_version: None };
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
        self.context.metrics.writes.inc();
        Ok(())
    }

    fn key(&self, kind: Kind, name: &str) -> Key {
        Key::new(kind, self.agent.metadata.namespace.as_deref().unwrap_or_default(), name)
    }

    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        let namespace = self.agent.metadata.namespace.as_deref().unwrap_or_default();
        Api::namespaced(self.context.client.clone(), namespace)
    }
}

fn called<K: Resource<DynamicType = ()>>(object: &K) -> String {
    format!("{} {}", K::kind(&()), object.name_any())
}

fn not_applied<K: Resource<DynamicType = ()>>(object: &K, source: kube::Error) -> Error {
    Error::Apply { object: called(object), source: Box::new(source) }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

fn hash(object: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    // An object that cannot be serialised cannot be applied either; the request will say so.
    serde_json::to_vec(object).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}
