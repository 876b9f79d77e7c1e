//! The platform's port: whether the process lives, whether it is ready, what it counts, and the drain.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use tokio::sync::mpsc;

use crate::serve::{OpenRequests, Peers};
use crate::session::Sessions;
use crate::telemetry::{Metrics, metrics};

/// Whether calls should be sent here.
pub struct Readiness {
    sessions: Sessions,
    /// Why the store has not answered yet; `None` once it has, for ever.
    waiting_for_store: Mutex<Option<&'static str>>,
}

impl Readiness {
    pub fn new(sessions: Sessions) -> Self {
        Self { sessions, waiting_for_store: Mutex::new(Some("starting")) }
    }

    pub fn store_failed(&self, reason: &'static str) {
        *self.waiting_for_store.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
    }

    pub fn store_answered(&self) {
        *self.waiting_for_store.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn reason_against(&self) -> Option<String> {
        if !self.sessions.accepting() {
            return Some("draining: no more calls are taken".to_owned());
        }
        let waiting = *self.waiting_for_store.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.map(|reason| format!("the state store has not answered yet: {reason}"))
    }
}

#[derive(Clone)]
pub struct Admin {
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
    open: Arc<OpenRequests>,
    drain: mpsc::Sender<()>,
}

impl Admin {
    pub fn new(
        readiness: Arc<Readiness>,
        metrics: Arc<Metrics>,
        open: Arc<OpenRequests>,
        drain: mpsc::Sender<()>,
    ) -> Self {
        Self { readiness, metrics, open, drain }
    }

    pub async fn answer(&self, request: Request, peers: Peers) -> Response {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/livez") => "ok\n".into_response(),
            (&Method::GET, "/readyz") => match self.readiness.reason_against() {
                None => "ok\n".into_response(),
                Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
            },
            (&Method::GET, "/metrics") => {
                let text = self.metrics.render(&self.readiness.sessions, self.open.count());
                ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response()
            }
            (&Method::POST, "/drain") if !is_inside(peers) => {
                (StatusCode::FORBIDDEN, "only from inside the pod\n").into_response()
            }
            (&Method::POST, "/drain") => {
                // Asked twice, it drains once.
                let _ = self.drain.try_send(());
                (StatusCode::ACCEPTED, "draining\n").into_response()
            }
            (_, "/livez" | "/readyz" | "/metrics" | "/drain") => {
                StatusCode::METHOD_NOT_ALLOWED.into_response()
            }
            _ => (StatusCode::NOT_FOUND, "see /livez, /readyz, /metrics and /drain\n").into_response(),
        }
    }
}

/// From this machine, or from this pod's own address.
fn is_inside(Peers { remote, local }: Peers) -> bool {
    let plain = |address: IpAddr| address.to_canonical();
    plain(remote.ip()).is_loopback() || plain(remote.ip()) == plain(local.ip())
}
