//! From the command line to a running controller, and to a clean stop.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use holdfast_crds::Agent;
use kube::{Api, Client, api::ListParams};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::{
    cli::{LogFormat, Run},
    context::{Context, Memory, Settings},
    controller::{self, Scope, WATCHES},
    events::Events,
    leader::Election,
    live::Live,
    metrics::Metrics,
    server::{self, Readiness},
    stores::Stores,
    traces::Traces,
};

/// How often the Agent definition is looked for until it is there.
const DEFINITION_RETRY: Duration = Duration::from_secs(2);
/// How long a stopping operator waits for the reconciles that have begun.
const DRAIN: Duration = Duration::from_secs(10);
/// How long it takes for the last spans.
const LAST_SPANS: Duration = Duration::from_secs(1);

pub fn log(format: LogFormat) {
    let wanted = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let wanted = if wanted.is_empty() { "info" } else { &wanted };
    // The controller's runtime opens a span a look, and writes it out for lines that are never written. Whoever wants
    // its own words names it.
    let filter = EnvFilter::new(format!("kube_runtime=warn,{wanted}"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
}

pub async fn run(args: Run) -> anyhow::Result<()> {
    let stop = stop_signal().context("signals cannot be listened to")?;
    let client = Client::try_default().await.context("no Kubernetes API server is configured")?;
    let (metrics, readiness) = (Metrics::default(), Readiness::default());
    let listener =
        TcpListener::bind(args.listen).await.with_context(|| format!("{} is taken", args.listen))?;
    tracing::info!(listen = %listener.local_addr()?, version = env!("CARGO_PKG_VERSION"), "started");
    let served = CancellationToken::new();
    let server = tokio::spawn(server::serve(
        listener,
        metrics.clone(),
        readiness.clone(),
        served.clone().cancelled_owned(),
    ));

    let scopes = Scope::all(&args.watch_namespaces);
    let outcome = tokio::select! {
        () = stop.cancelled() => Ok(()),
        () = definition_is_there(&client, &scopes) => {
            readiness.reached();
            lead(&args, &client, scopes, metrics, &stop).await
        }
    };
    served.cancel();
    // Open connections to the probes are no reason to stay.
    let _ = timeout(Duration::from_secs(1), server).await;
    tracing::info!("stopped");
    outcome
}

/// Wait for the lease where there is one, work, and give it back.
async fn lead(
    args: &Run,
    client: &Client,
    scopes: Vec<Scope>,
    metrics: Metrics,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let Some(name) = args.lease.clone() else {
        work(args, client, scopes, metrics, stop.clone()).await;
        return Ok(());
    };
    let api = Api::namespaced(client.clone(), &args.lease_namespace);
    // A process, not a pod: a container that was restarted must not find itself leading already.
    let identity = format!("{}_{:08x}", args.identity, rand::random::<u32>());
    let election = Election { api, name, identity };
    tokio::select! {
        () = stop.cancelled() => return Ok(()),
        () = election.won() => tracing::info!("leading"),
    }
    metrics.leader.set(1);
    tokio::select! {
        () = work(args, client, scopes, metrics, stop.clone()) => {}
        // Whatever is being written now carries a version or is an apply; nothing more is written after this.
        lost = election.lost() => return Err(lost.into()),
    }
    election.release().await;
    Ok(())
}

async fn work(args: &Run, client: &Client, scopes: Vec<Scope>, metrics: Metrics, stop: CancellationToken) {
    let traces = Traces::from_env(&args.identity);
    let context = Arc::new(Context {
        client: client.clone(),
        settings: Settings {
            sidecar_image: args.sidecar_image.clone(),
            redis_image: args.redis_image.clone(),
            reconcile_timeout: Duration::from_secs(args.reconcile_timeout),
        },
        agents: Arc::default(),
        live: Arc::new(Live::new(WATCHES * scopes.len())),
        stores: Stores::default(),
        events: Events::new(client.clone(), args.identity.clone()),
        metrics,
        traces: traces.clone(),
        memory: Memory::default(),
    });
    let working = controller::run(context, scopes, stop.clone());
    tokio::pin!(working);
    tokio::select! {
        () = &mut working => {}
        () = stop.cancelled() => match timeout(DRAIN, working).await {
            Ok(()) => tracing::info!("every reconcile that had begun is finished"),
            Err(_) => tracing::warn!("a reconcile was left unfinished; the next leader repeats it"),
        },
    }
    traces.finish(LAST_SPANS).await;
}

/// An operator that is installed before its definition waits for it.
async fn definition_is_there(client: &Client, scopes: &[Scope]) {
    let Some(scope) = scopes.first() else { return };
    let agents: Api<Agent> = scope.api(client);
    loop {
        match agents.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => return,
            Err(kube::Error::Api(status)) if status.code == 404 => {
                tracing::warn!("the Agent definition is not installed; waiting for it");
            }
            Err(error) => tracing::warn!(%error, "Agents cannot be listed; trying again"),
        }
        sleep(DEFINITION_RETRY).await;
    }
}

fn stop_signal() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopped = stop.clone();
    tokio::spawn(async move {
        tokio::select! { _ = terminate.recv() => {}, _ = interrupt.recv() => {} }
        tracing::info!("stopping");
        stopped.cancel();
    });
    Ok(stop)
}
