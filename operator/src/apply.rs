//! The fourth step: make the cluster look like what was built. One field manager, server-side apply, and no
//! request at all for what is as it was left. Objects are written out once: what is sent is what is compared.

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
use serde_json::value::{RawValue, to_raw_value};

use crate::{
    build::{ManagedRedis, Resources},
    context::Context,
    error::Error,
    live::{Entry, Key, Kind, Place},
    names::FIELD_MANAGER,
    seen::Tracked,
};

/// A version no object ever has: an apply that names it makes the object, or is refused because there is one.
const MUST_BE_NEW: &str = "1";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// There is no more to be heard of it.
    Done,
    /// Something was changed, and an event will tell what comes of it.
    MoreFollows,
    /// More has happened to one of the objects than what we did, so that another look is due.
    Overtaken,
}

/// In this order: what the pods need before the pods, and the autoscaler only once there is something to scale.
/// The claims of a managed Redis are its StatefulSet's.
/// `made_of` is a hash of all that they were made of: until one of them changes, nobody needs to make them again.
pub async fn apply(
    context: &Context,
    place: &Place,
    agent: &Agent,
    resources: Resources,
    made_of: u64,
) -> Result<Applied, Error> {
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
    let mut to = Applier { context, place, agent, applied: Applied::Done, keys: Vec::new() };
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
            to.create_or_apply(secret).await?;
            return Ok(to.applied);
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
    context.live.settle(place, made_of, &to.keys);
    Ok(to.applied)
}

struct Applier<'a> {
    context: &'a Context,
    place: &'a Place,
    agent: &'a Agent,
    applied: Applied,
    keys: Vec<Key>,
}

/// What is sent, and a hash of it by which it is known again.
struct Written {
    body: Box<RawValue>,
    hash: u64,
}

impl Written {
    /// The version, which only says when a number of replicas was read, is not part of what we ask for.
    fn as_new<K: Resource<DynamicType = ()> + Serialize>(object: &mut K) -> Result<Self, Error> {
        let version = object.meta_mut().resource_version.replace(MUST_BE_NEW.to_owned());
        let body = written(object);
        object.meta_mut().resource_version = version;
        let body = body?;
        let mut hasher = DefaultHasher::new();
        body.get().hash(&mut hasher);
        Ok(Self { hash: hasher.finish(), body })
    }
}

fn written<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Result<Box<RawValue>, Error> {
    to_raw_value(object).map_err(|error| not_applied(object, kube::Error::SerdeError(error)))
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
        let (key, as_new) = (self.key(K::KIND, &object.name_any()), Written::as_new(&mut object)?);
        match self.context.live.get(&key) {
            Some(live) if live.is_as_applied(as_new.hash) => {}
            Some(live) => {
                self.must_be_ours(&live, &object)?;
                self.send(&key, &object, &written(&object)?, as_new.hash, replicas).await?;
            }
            None => self.make(&key, &object, as_new, replicas).await?,
        }
        self.keys.push(key);
        Ok(())
    }

    /// Whatever bears the name already must be this Agent's. Objects of others carry none of our labels, so a watch
    /// does not show them: the API server says whether there is one.
    async fn make<K>(
        &mut self,
        key: &Key,
        object: &K,
        as_new: Written,
        replicas: Option<i32>,
    ) -> Result<(), Error>
    where
        K: Tracked + Serialize + Clone + Debug,
    {
        match self.send(key, object, &as_new.body, as_new.hash, replicas).await {
            Err(Error::Apply { source, .. }) if is_conflict(&source) => {}
            done => return done,
        }
        let found = self.api::<K::Sight>().get_opt(&object.name_any()).await;
        let found = found.map_err(|source| not_applied(object, source))?;
        if let Some(found) = found {
            self.must_be_ours(&Entry::of(&found), object)?;
        }
        self.send(key, object, &written(object)?, as_new.hash, replicas).await
    }

    async fn send<K>(
        &mut self,
        key: &Key,
        object: &K,
        body: &RawValue,
        hash: u64,
        replicas: Option<i32>,
    ) -> Result<(), Error>
    where
        K: Tracked + Serialize + Debug,
    {
        let live = &self.context.live;
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let _awaited = live.awaits(key);
        let applied = self.api::<K::Sight>().patch(&object.name_any(), &params, &Patch::Apply(body)).await;
        let applied = applied.map_err(|source| not_applied(object, source))?;
        if live.wrote(key, &applied, hash, replicas) {
            self.applied = Applied::Overtaken;
        } else if self.applied == Applied::Done && K::KIND == Kind::Deployment {
            self.applied = Applied::MoreFollows;
        }
        self.context.metrics.writes.inc();
        Ok(())
    }

    /// A Secret with a password of our making: two writers must not make two.
    async fn create_or_apply(&mut self, secret: Secret) -> Result<(), Error> {
        let key = self.key(Kind::Secret, &secret.name_any());
        if self.context.live.get(&key).is_some() {
            self.apply(secret).await?;
            self.applied = Applied::Overtaken;
            return Ok(());
        }
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let created = self.api::<Secret>().create(&params, &secret).await;
        created.map_err(|source| not_applied(&secret, source))?;
        self.applied = Applied::MoreFollows;
        self.context.metrics.writes.inc();
        Ok(())
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
        let (name, key) = (self.place.name(), Key::of(K::KIND, self.place));
        let Some(live) = self.context.live.get(&key).filter(|live| live.is_owned_by(self.agent)) else {
            return Ok(());
        };
        let exactly_this = Preconditions { uid: Some(live.uid.to_string()), resource_version: None };
        let params = DeleteParams { preconditions: Some(exactly_this), ..DeleteParams::default() };
        match self.api::<K>().delete(name, &params).await {
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
        match name == self.place.name() {
            true => Key::of(kind, self.place),
            false => Key::new(kind, self.place.namespace(), name),
        }
    }

    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.context.client.clone(), self.place.namespace())
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
