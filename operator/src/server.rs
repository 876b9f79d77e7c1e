//! Probes and metrics. Alive means that the process runs; ready, that it knows Agents and could lead.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use axum::{Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use tokio::net::TcpListener;

use crate::metrics::Metrics;

/// Whether the Agent definition has been seen. A standby is as ready as a leader.
#[derive(Clone, Default)]
pub struct Readiness(Arc<AtomicBool>);

impl Readiness {
    pub fn reached(&self) {
        self.0.store(true, Ordering::Release);
    }
}

pub async fn serve(
    listener: TcpListener,
    metrics: Metrics,
    readiness: Readiness,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(async || "ok"))
        .route("/readyz", get(ready).with_state(readiness))
        .route("/metrics", get(exposition).with_state(metrics));
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}

async fn ready(State(readiness): State<Readiness>) -> impl IntoResponse {
    if readiness.0.load(Ordering::Acquire) {
        (StatusCode::OK, "ok")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "waiting for the Agent definition: install the holdfast-crds chart")
    }
}

async fn exposition(State(metrics): State<Metrics>) -> impl IntoResponse {
    ([("content-type", "application/openmetrics-text; version=1.0.0; charset=utf-8")], metrics.text())
}
