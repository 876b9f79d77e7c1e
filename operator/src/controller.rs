//! Which watches there are, and how their events become reconciles.
//!
//! ```text
//! Agents, as text ─────────────────────▶ reflector ──────────────────────────┐
//! Deployments, autoscalers ──▶ Live                                           ├──▶ applier ──▶ reconcile
//! everything else, metadata only ──▶ Live ──▶ the owner, or who mentioned it ─┤
//! stores that changed their mind ─────────────────────────────────────────────┘
//! ```
//! One set of watches for the whole cluster, or one for each namespace the operator is told to look at.

use std::{fmt::Debug, panic::resume_unwind, sync::Arc};

use futures::{
    FutureExt as _, Stream, StreamExt as _, TryStreamExt as _,
    stream::{self, BoxStream},
};
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        apps::v1::StatefulSet,
        core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
};
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt as _, applier,
        controller::{self, Action, ReconcileReason, ReconcileRequest},
        reflector::{self, ObjectRef},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::{
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    watch,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use crate::{
    build::{HTTPRoute, ServiceMonitor},
    context::Context,
    error::Error,
    live::{Follower, Kind, Place},
    names, optional,
    reconcile::{on_error, reconcile},
    seen::{Kept, Seen, SeenAutoscaler, SeenDeployment, Sight},
};

/// Enough to keep the API server busy, few enough to be gentle with it.
const CONCURRENCY: u16 = 32;
/// Watches of each scope besides the Agents' own.
pub const WATCHES: usize = 12;

type Requests = BoxStream<'static, Result<ReconcileRequest<Kept>, watcher::Error>>;

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

/// Whether the cluster has the kinds that not every cluster has.
#[derive(Clone)]
pub struct Optional {
    routes: watch::Receiver<Option<bool>>,
    monitors: watch::Receiver<Option<bool>>,
}

/// Runs every scope until told to stop; a reconcile that has begun is finished.
pub async fn run(context: Arc<Context>, scopes: Vec<Scope>, stop: CancellationToken) {
    let ((routes, see_routes), (monitors, see_monitors)) = (watch::channel(None), watch::channel(None));
    let optional = Optional { routes: see_routes, monitors: see_monitors };
    let (wakes, wakers): (Vec<_>, Vec<_>) = scopes.iter().map(|_| unbounded_channel()).unzip();
    let (changed, mut changes) = unbounded_channel::<Place>();
    let spread = async {
        while let Some(agent) = changes.recv().await {
            for wake in &wakes {
                // Whose it is not does not find it.
                let _ = wake.send(agent.agent());
            }
        }
    };
    let working = scopes.iter().zip(wakers).zip(&wakes).map(|((scope, woken), wake)| {
        run_scope(&context, scope, optional.clone(), woken, wake, stop.clone())
    });
    tokio::select! {
        _ = futures::future::join_all(working) => {}
        () = context.stores.keep_asking(&context.client, &changed) => {}
        () = optional::look::<HTTPRoute>(&context.client, &routes) => {}
        () = optional::look::<ServiceMonitor>(&context.client, &monitors) => {}
        () = spread => {}
    }
}

async fn run_scope(
    context: &Arc<Context>,
    scope: &Scope,
    optional: Optional,
    woken: UnboundedReceiver<ObjectRef<Kept>>,
    wake: &UnboundedSender<ObjectRef<Kept>>,
    stop: CancellationToken,
) {
    let (agents, writer) = reflector::store();
    let mut queue = stream::SelectAll::new();
    queue.push(follow_agents(context, scope, writer));
    queue.push(follow::<SeenDeployment>(context, scope, ours()));
    queue.push(follow::<SeenAutoscaler>(context, scope, ours()));
    queue.push(follow::<Seen<StatefulSet>>(context, scope, ours()));
    queue.push(follow::<Seen<Service>>(context, scope, ours()));
    queue.push(follow::<Seen<ServiceAccount>>(context, scope, ours()));
    queue.push(follow::<Seen<PodDisruptionBudget>>(context, scope, ours()));
    queue.push(follow::<Seen<NetworkPolicy>>(context, scope, ours()));
    // What others make and manifests point at carries no label of ours.
    queue.push(follow::<Seen<Secret>>(context, scope, everything()));
    queue.push(follow::<Seen<ConfigMap>>(context, scope, everything()));
    queue.push(follow::<Seen<PersistentVolumeClaim>>(context, scope, everything()));
    queue.push(requested(woken).boxed());
    let follower = |kind| Follower::new(Arc::clone(&context.live), kind, scope.name());
    let client = &context.client;
    let routes =
        optional::follow::<HTTPRoute>(client, scope, follower(Kind::HttpRoute), optional.routes, wake);
    let monitors = optional::follow::<ServiceMonitor>(
        client,
        scope,
        follower(Kind::ServiceMonitor),
        optional.monitors,
        wake,
    );

    let requests = queue.take_until(stop.cancelled_owned());
    let config = controller::Config::default().concurrency(CONCURRENCY);
    let applied = applier(
        look,
        |agent, error, context| on_error(&agent, error, &context),
        Arc::clone(context),
        agents,
        requests,
        config,
    )
    .for_each(async |result| match result {
        // Gone between the event and the look, or said already where it failed.
        Ok(_) | Err(controller::Error::ObjectNotFound(_) | controller::Error::ReconcilerFailed(..)) => {}
        Err(error) => tracing::warn!(%error, "a watch was interrupted"),
    });
    tokio::select! {
        () = applied => {}
        () = routes => {}
        () = monitors => {}
    }
}

/// In a task of its own: the applier asks all that are under way whenever one of them has got a step further.
fn look(agent: Arc<Kept>, context: Arc<Context>) -> impl Future<Output = Result<Action, Error>> + Unpin {
    // It is cancelled only together with whoever waits for it.
    AbortOnDropHandle::new(tokio::spawn(reconcile(agent, context)))
        .map(|looked| looked.unwrap_or_else(|died| resume_unwind(died.into_panic())))
}

fn follow_agents(context: &Arc<Context>, scope: &Scope, writer: reflector::store::Writer<Kept>) -> Requests {
    let context = Arc::clone(context);
    watcher(scope.api::<Kept>(&context.client), everything())
        .default_backoff()
        .reflect(writer)
        .map_ok(move |event| {
            let touched = match &event {
                watcher::Event::Apply(agent) => (!is_our_own(&context, agent)).then_some(agent),
                watcher::Event::InitApply(agent) => Some(agent),
                watcher::Event::Delete(agent) => {
                    context.forget(agent);
                    None
                }
                watcher::Event::Init | watcher::Event::InitDone => None,
            };
            stream::iter(touched.map(|agent| Ok(request(ObjectRef::from_obj(agent), "the Agent changed"))))
        })
        .try_flatten()
        .boxed()
}

/// Only the status that we have just written.
fn is_our_own(context: &Context, agent: &Kept) -> bool {
    context.memory.saw(&Place::of(agent), &agent.meta().resource_version.as_ref().into())
}

fn follow<S>(context: &Arc<Context>, scope: &Scope, config: watcher::Config) -> Requests
where
    S: Sight + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let api = scope.api::<S>(&context.client);
    let mut follower = Follower::new(Arc::clone(&context.live), S::KIND, scope.name());
    watcher(api, config)
        .default_backoff()
        .map_ok(move |event: watcher::Event<S>| {
            stream::iter(follower.take(&event)).map(|agent| Ok(request(agent, "an object of it changed")))
        })
        .try_flatten()
        .boxed()
}

fn requested(
    woken: UnboundedReceiver<ObjectRef<Kept>>,
) -> impl Stream<Item = Result<ReconcileRequest<Kept>, watcher::Error>> {
    stream::unfold(woken, async |mut woken| Some((woken.recv().await?, woken)))
        .map(|agent| Ok(request(agent, "what it depends on changed")))
}

fn request(obj_ref: ObjectRef<Kept>, reason: &str) -> ReconcileRequest<Kept> {
    ReconcileRequest { obj_ref, reason: ReconcileReason::Custom { reason: reason.to_owned() } }
}

pub fn ours() -> watcher::Config {
    watcher::Config::default().labels(&format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY))
}

fn everything() -> watcher::Config {
    watcher::Config::default()
}
