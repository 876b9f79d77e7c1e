//! Which watches there are, and how their events become reconciles.
//!
//! ```text
//! Agents ────────────────────────────▶ reflector (without managedFields) ──┐
//! Deployments ──▶ Live                                                     ├──▶ applier ──▶ reconcile
//! everything else, metadata only ──▶ Live ──▶ the owner, or who mentioned it ┘
//! ```
//! One set of watches for the whole cluster, or one for each namespace the operator is told to look at.

use std::{fmt::Debug, sync::Arc};

use futures::{
    FutureExt as _, Stream, StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use holdfast_crds::Agent;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::{Deployment, StatefulSet},
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
};
use kube::{
    Api, Client, Resource, ResourceExt as _,
    core::PartialObjectMeta,
    runtime::{
        WatchStreamExt as _, applier,
        controller::{self, ReconcileReason, ReconcileRequest},
        reflector, watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    live::{Follower, Tracked},
    names,
    reconcile::{on_error, reconcile},
};

/// Enough to keep the API server busy, few enough to be gentle with it.
const CONCURRENCY: u16 = 32;
/// Watches of each scope besides the Agents' own.
pub const WATCHES: usize = 10;

type Requests = BoxStream<'static, Result<ReconcileRequest<Agent>, watcher::Error>>;

/// The whole cluster, or one namespace of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    Namespace(String),
}

impl Scope {
    pub fn all(namespaces: &[String]) -> Vec<Self> {
        match namespaces {
            [] => vec![Self::Cluster],
            some => some.iter().cloned().map(Self::Namespace).collect(),
        }
    }

    pub fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(
        &self,
        client: &Client,
    ) -> Api<K> {
        match self {
            Self::Cluster => Api::all(client.clone()),
            Self::Namespace(namespace) => Api::namespaced(client.clone(), namespace),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Cluster => "",
            Self::Namespace(namespace) => namespace,
        }
    }
}

/// Runs until told to stop; a reconcile that has begun is finished.
pub async fn run(context: Arc<Context>, scope: Scope, stop: CancellationToken) {
    let (agents, writer) = reflector::store();
    let mut queue = stream::SelectAll::new();
    queue.push(follow_agents(&context, &scope, writer));
    queue.push(follow::<Deployment>(&context, &scope, ours()));
    queue.push(follow::<PartialObjectMeta<StatefulSet>>(&context, &scope, ours()));
    queue.push(follow::<PartialObjectMeta<Service>>(&context, &scope, ours()));
    queue.push(follow::<PartialObjectMeta<ServiceAccount>>(&context, &scope, ours()));
    queue.push(follow::<PartialObjectMeta<PodDisruptionBudget>>(&context, &scope, ours()));
    queue.push(follow::<PartialObjectMeta<NetworkPolicy>>(&context, &scope, ours()));
    queue.push(follow::<PartialObjectMeta<HorizontalPodAutoscaler>>(&context, &scope, ours()));
    // What others make and manifests point at carries no label of ours.
    queue.push(follow::<PartialObjectMeta<Secret>>(&context, &scope, everything()));
    queue.push(follow::<PartialObjectMeta<ConfigMap>>(&context, &scope, everything()));
    queue.push(follow::<PartialObjectMeta<PersistentVolumeClaim>>(&context, &scope, everything()));

    let requests = queue.take_until(stop.cancelled_owned());
    let config = controller::Config::default().concurrency(CONCURRENCY);
    applier(
        |agent, context| reconcile(agent, context).boxed(),
        |agent, error, context| on_error(&agent, error, &context),
        context,
        agents,
        requests,
        config,
    )
    .for_each(async |result| match result {
        // Gone between the event and the look, or said already where it failed.
        Ok(_) | Err(controller::Error::ObjectNotFound(_) | controller::Error::ReconcilerFailed(..)) => {}
        Err(error) => tracing::warn!(%error, "a watch was interrupted"),
    })
    .await;
}

fn follow_agents(context: &Arc<Context>, scope: &Scope, writer: reflector::store::Writer<Agent>) -> Requests {
    let context = Arc::clone(context);
    watcher(scope.api::<Agent>(&context.client), everything())
        .default_backoff()
        .modify(|agent| agent.managed_fields_mut().clear())
        .reflect(writer)
        .map_ok(move |event| {
            if let watcher::Event::Delete(agent) = &event {
                context.memory.forget(agent);
                context.live.mention(&agent.namespace().unwrap_or_default(), &agent.name_any(), Vec::new());
            }
            let touched = match event {
                watcher::Event::Apply(agent) | watcher::Event::InitApply(agent) => Some(agent),
                watcher::Event::Delete(_) | watcher::Event::Init | watcher::Event::InitDone => None,
            };
            stream::iter(touched.map(|agent| {
                Ok(ReconcileRequest {
                    obj_ref: reflector::ObjectRef::from_obj(&agent),
                    reason: ReconcileReason::ObjectUpdated,
                })
            }))
        })
        .try_flatten()
        .boxed()
}

fn follow<K>(context: &Arc<Context>, scope: &Scope, config: watcher::Config) -> Requests
where
    K: Tracked + Resource<Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let api = scope.api::<K>(&context.client);
    let follower = Follower::new(Arc::clone(&context.live), K::KIND, scope.name());
    requests(follower, watcher(api, config).default_backoff()).boxed()
}

fn requests<K: Tracked>(
    mut follower: Follower,
    events: impl Stream<Item = watcher::Result<watcher::Event<K>>>,
) -> impl Stream<Item = Result<ReconcileRequest<Agent>, watcher::Error>> {
    events
        .map_ok(move |event| {
            let concerned = follower.take(&event);
            stream::iter(concerned.into_iter().map(|obj_ref| {
                let reason = ReconcileReason::Custom { reason: format!("{:?} changed", K::KIND) };
                Ok(ReconcileRequest { obj_ref, reason })
            }))
        })
        .try_flatten()
}

fn ours() -> watcher::Config {
    watcher::Config::default().labels(&format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY))
}

fn everything() -> watcher::Config {
    watcher::Config::default()
}
