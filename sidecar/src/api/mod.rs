//! HTTP in and out: requests into calls of the session layer, its news into answers. Decides nothing about a session.
//!
//! ```text
//! request ─▶ routes ─▶ auth, address ─▶ body ─▶ calls ─────▶ session layer
//!                                         ├───▶ files ────▶ workspace
//!                                         └───▶ sessions        │
//! answer ◀─ problem ◀──────────────────────── sse, JSON ◀───────┘
//! ```
//!
//! One file a concern; the platform's own port is `admin`. What may be seen from outside, and its names, is `openapi`.

mod address;
pub mod admin;
pub mod auth;
pub mod body;
mod calls;
mod conditions;
mod context;
mod files;
mod media_type;
pub mod openapi;
mod problem;
mod range;
mod routes;
pub mod schema;
mod sessions;
mod sse;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use http::StatusCode;
use tower::ServiceExt;

pub use address::encode;
pub use problem::Problem;
pub use routes::{SESSION_PREFIXES, paths};

use auth::Auth;

use crate::model::CallContext;
use crate::session::Sessions;
use crate::telemetry::traces::Span;

/// What every handler knows. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Shared>);

struct Shared {
    sessions: Sessions,
    auth: Auth,
}

impl App {
    pub fn new(sessions: Sessions, auth: Auth) -> Self {
        Self(Arc::new(Shared { sessions, auth }))
    }

    pub fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// A span for a request that begins work, which from now on is inside it.
    fn trace(&self, route: &'static str, context: &mut CallContext) -> Span {
        let span = self.0.sessions.settings().traces.request(route, context);
        context.traceparent = span.traceparent().or(context.traceparent.take());
        span
    }

    fn auth(&self) -> &Auth {
        &self.0.auth
    }
}

/// The whole interface for clients, as one function from request to answer.
#[derive(Clone)]
pub struct Api {
    router: Router,
}

impl Api {
    pub fn new(app: App) -> Self {
        Self { router: routes::router().with_state(app) }
    }

    pub async fn answer(&self, request: Request) -> Response {
        let uri = request.uri().clone();
        let mut response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if response.status().is_success() {
            return response;
        }
        if let Some(problem) = response.extensions_mut().remove::<Box<Problem>>() {
            return problem.render(uri.path());
        }
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            return problem::method_not_allowed(&response).render(uri.path());
        }
        response
    }
}
