//! The life of a replica: from listening, over a drain, to the end of its last answer.
//!
//! ```text
//! serving ─ told to stop ─▶ draining ─ drainTimeout, or nobody left ─▶ stopping ─▶ relaying ─▶ gone
//!           responses close       calls go on and start      tools end, calls    a pipe to those
//!           their connections                                are given back      who took them over
//! ```
//! The second request to stop ends whatever it meets. Nothing here waits without a deadline.

mod connection;
mod open;
mod stop;

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::api::admin::{Admin, Readiness};
use crate::api::auth::Auth;
use crate::api::{Api, App};
use crate::config::StopTimes;
use crate::session::Sessions;
use crate::telemetry::Metrics;

use connection::Port;
pub use connection::{Peers, STALLED};
pub use open::OpenRequests;
use stop::Orders;
pub use stop::Stop;

/// How long between two tries to reach a store that has not answered yet.
const FIRST_CONTACT: Duration = Duration::from_millis(500);

pub struct Listeners {
    pub clients: TcpListener,
    /// The platform's: probes, metrics, drain.
    pub platform: TcpListener,
}

/// An agent, ready to be served.
pub struct Service {
    pub sessions: Sessions,
    pub auth: Auth,
    pub metrics: Arc<Metrics>,
    pub times: StopTimes,
    /// How long a client may take no byte of its answer before it is given up: [`STALLED`].
    pub stalled: Duration,
}

/// Serves until it is told to stop, and then until nobody is left or its time is over. Each request to stop after the
/// first hurries it.
pub async fn run(service: Service, listeners: Listeners, stops: mpsc::Receiver<Stop>) {
    let Service { sessions, auth, metrics, times, stalled } = service;
    let open = Arc::new(OpenRequests::default());
    let closing = CancellationToken::new();
    let readiness = Arc::new(Readiness::new(sessions.clone()));
    let (drain, mut asked_to_drain) = mpsc::channel(1);

    let api = Api::new(App::new(sessions.clone(), auth));
    let clients = Port::new(listeners.clients, Arc::clone(&open), closing.clone(), stalled);
    let clients = tokio::spawn(clients.serve(move |request, _| {
        let api = api.clone();
        async move { api.answer(request).await }
    }));
    let admin = Admin::new(Arc::clone(&readiness), Arc::clone(&metrics), Arc::clone(&open), drain);
    let platform = Port::new(listeners.platform, Arc::default(), closing.clone(), stalled);
    let platform = tokio::spawn(platform.serve(move |request, peers| {
        let admin = admin.clone();
        async move { admin.answer(request, peers).await }
    }));
    let attending = tokio::spawn({
        let sessions = sessions.clone();
        async move { sessions.attend().await }
    });
    let contact = tokio::spawn(first_contact(sessions.clone(), Arc::clone(&readiness)));

    let draining = stop::Drain { sessions: &sessions, open: &open, metrics: &metrics, times };
    let mut orders = Orders::new(stops);
    while !orders.exit {
        tokio::select! {
            how = orders.first() => draining.run(how, &mut orders).await,
            // As SIGTERM, but the process stays: whoever asked will end it.
            Some(()) = asked_to_drain.recv() => draining.run(Stop::Terminate, &mut orders).await,
        }
    }
    closing.cancel();
    // The last bytes are on their way once the connections have closed; those that do not are cut.
    let _ = tokio::time::timeout(stop::CLOSE, clients).await;
    for task in [platform, attending, contact] {
        task.abort();
    }
    sessions.settings().traces.finish(stop::LAST_SPANS).await;
    tracing::info!("stopped");
}

/// A replica is ready once its store has answered; a later outage is told to each call, not to the platform.
async fn first_contact(sessions: Sessions, readiness: Arc<Readiness>) {
    while let Err(error) = sessions.store().ping().await {
        tracing::warn!(error = error.label(), "the store has not answered yet: {error}");
        readiness.store_failed(error.label());
        sleep(FIRST_CONTACT).await;
    }
    readiness.store_answered();
}
