//! Which watches there are, and how their events become looks at Agents.
//!
//! ```text
//! Agents ──▶ Agents (as text) ─────────────────────────────────────────────────┐
//! Deployments, autoscalers ──▶ Live                                            ├──▶ queue ──▶ reconcile
//! everything else, metadata only ──▶ Live ──▶ the owner, or who mentioned it ──┤
//! stores that changed their mind ──────────────────────────────────────────────┘
//! ```
//! One set of watches for the whole cluster, or one for each namespace the operator is told to look at. Each watch is a
//! task of its own: what is no news ends there.

use std::{fmt::Debug, panic::resume_unwind, sync::Arc};

use futures::TryStreamExt as _;
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
    runtime::{WatchStreamExt as _, watcher},
};
use serde::de::DeserializeOwned;
use tokio::{
    pin,
    sync::{
        mpsc::{UnboundedSender, unbounded_channel},
        watch,
    },
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    agents::{self, Heard},
    build::{HTTPRoute, ServiceMonitor},
    context::Context,
    live::{Follower, Kind, Place},
    names, optional, queue,
    reconcile::reconcile,
    seen::{Seen, SeenAgent, SeenAutoscaler, SeenDeployment, Sight},
};

/// Watches of each scope.
pub const WATCHES: usize = 13;
/// Of each list so much at a time: a page is in memory several times over while it is read.
const PAGE: u32 = 250;

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
struct Optional {
    routes: watch::Receiver<Option<bool>>,
    monitors: watch::Receiver<Option<bool>>,
}

/// Runs every scope until told to stop; a look that has begun is finished.
pub async fn run(context: Arc<Context>, scopes: Vec<Scope>, stop: CancellationToken) {
    let ((routes, see_routes), (monitors, see_monitors)) = (watch::channel(None), watch::channel(None));
    let optional = Optional { routes: see_routes, monitors: see_monitors };
    let (wake, woken) = unbounded_channel::<Place>();
    // Dropped, and with them their connections, when the last look is over.
    let mut watches = JoinSet::new();
    for scope in &scopes {
        watch_scope(&mut watches, &context, scope, &optional, &wake);
    }
    let look = |place: Place| {
        let context = Arc::clone(&context);
        async move { reconcile(&place, &context).await }
    };
    let looking = async {
        tokio::select! {
            () = context.live.completed() => queue::run(woken, look, stop.clone()).await,
            () = stop.cancelled() => {}
        }
    };
    tokio::select! {
        () = looking => {}
        () = all_ended(&mut watches) => {}
        () = context.stores.keep_asking(&context.client, &wake) => {}
        () = optional::look::<HTTPRoute>(&context.client, &routes) => {}
        () = optional::look::<ServiceMonitor>(&context.client, &monitors) => {}
    }
}

fn watch_scope(
    watches: &mut JoinSet<()>,
    context: &Arc<Context>,
    scope: &Scope,
    optional: &Optional,
    wake: &UnboundedSender<Place>,
) {
    watches.spawn(follow_agents(Arc::clone(context), scope.clone(), wake.clone()));
    let mut follow = Follow { watches, context, scope, wake };
    follow.these::<SeenDeployment>(ours());
    follow.these::<SeenAutoscaler>(ours());
    follow.these::<Seen<StatefulSet>>(ours());
    follow.these::<Seen<Service>>(ours());
    follow.these::<Seen<ServiceAccount>>(ours());
    follow.these::<Seen<PodDisruptionBudget>>(ours());
    follow.these::<Seen<NetworkPolicy>>(ours());
    // What others make and manifests point at carries no label of ours.
    follow.these::<Seen<Secret>>(everything());
    follow.these::<Seen<ConfigMap>>(everything());
    follow.these::<Seen<PersistentVolumeClaim>>(everything());
    let follower = |kind| Follower::new(Arc::clone(&context.live), kind, scope.name());
    let client = &context.client;
    let (routes, monitors) = (follower(Kind::HttpRoute), follower(Kind::ServiceMonitor));
    let there = optional.clone();
    watches.spawn(optional::follow::<HTTPRoute>(
        client.clone(),
        scope.clone(),
        routes,
        there.routes,
        wake.clone(),
    ));
    watches.spawn(optional::follow::<ServiceMonitor>(
        client.clone(),
        scope.clone(),
        monitors,
        there.monitors,
        wake.clone(),
    ));
}

/// They never end, unless one of them dies.
async fn all_ended(watches: &mut JoinSet<()>) {
    while let Some(ended) = watches.join_next().await {
        ended.unwrap_or_else(|died| resume_unwind(died.into_panic()));
    }
}

struct Follow<'a> {
    watches: &'a mut JoinSet<()>,
    context: &'a Context,
    scope: &'a Scope,
    wake: &'a UnboundedSender<Place>,
}

impl Follow<'_> {
    fn these<S>(&mut self, config: watcher::Config)
    where
        S: Sight + Clone + DeserializeOwned + Debug + Send + 'static,
    {
        let api = self.scope.api::<S>(&self.context.client);
        let mut follower = Follower::new(Arc::clone(&self.context.live), S::KIND, self.scope.name());
        let wake = self.wake.clone();
        self.watches.spawn(events(api, config, move |event| wake_all(&wake, follower.take(&event))));
    }
}

async fn follow_agents(context: Arc<Context>, scope: Scope, wake: UnboundedSender<Place>) {
    let mut follower = agents::Follower::new(Arc::clone(&context.agents), scope.name());
    let mut complete = false;
    events(scope.api::<SeenAgent>(&context.client), everything(), |event| match follower.take(&event) {
        Heard::Nothing => {}
        Heard::Changed(agent) => wake_all(&wake, [agent]),
        Heard::Gone(agents) => agents.iter().for_each(|agent| context.forget(agent)),
        Heard::Listed(gone) => {
            gone.iter().for_each(|agent| context.forget(agent));
            if !std::mem::replace(&mut complete, true) {
                context.live.listed_once();
            }
        }
    })
    .await;
}

/// For ever: every event of a watch, which is taken up again where it breaks.
pub async fn events<S>(api: Api<S>, config: watcher::Config, mut take: impl FnMut(watcher::Event<S>))
where
    S: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher(api, config).default_backoff();
    pin!(events);
    loop {
        match events.try_next().await {
            Ok(Some(event)) => take(event),
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, kind = %S::kind(&()), "a watch was interrupted");
            }
        }
    }
}

pub fn wake_all(wake: &UnboundedSender<Place>, agents: impl IntoIterator<Item = Place>) {
    for agent in agents {
        // Nobody listens any more only when the operator stops.
        let _ = wake.send(agent);
    }
}

pub fn ours() -> watcher::Config {
    everything().labels(&format!("{}={}", names::MANAGED_BY_LABEL, names::MANAGED_BY))
}

fn everything() -> watcher::Config {
    watcher::Config::default().page_size(PAGE)
}
