//! Every path there is, and who answers it.

use axum::Router;
use axum::routing::{MethodRouter, delete, get, post};

use super::problem::Problem;
use super::{App, calls, files, openapi, sessions};

/// The three ways to name a session; each of [`session_routes`] hangs below each of them.
pub const SESSION_PREFIXES: [&str; 3] =
    ["/v1/users/{user}/sessions/{session}", "/v1/sessions/{session}", "/v1"];

/// A user's sessions, and those of the user who is proven or named by a header.
pub const USER_LIST: &str = "/v1/users/{user}/sessions";
pub const PROVEN_LIST: &str = "/v1/sessions";

fn session_routes() -> Vec<(&'static str, MethodRouter<App>)> {
    vec![
        ("", delete(sessions::delete)),
        ("/calls", post(calls::start).get(calls::live)),
        ("/calls/{call}", get(calls::one)),
        ("/calls/{call}/events", get(calls::events)),
        ("/calls/{call}/retry", post(calls::retry)),
        ("/interrupt", post(sessions::interrupt)),
        ("/state", get(sessions::state).put(sessions::put_state)),
        ("/clear", post(sessions::clear)),
        ("/fork", post(sessions::fork)),
        ("/files", get(files::list)),
        ("/files/{*path}", get(files::get).put(files::put).delete(files::delete)),
    ]
}

fn other_routes() -> Vec<(&'static str, MethodRouter<App>)> {
    vec![
        (USER_LIST, get(sessions::list)),
        (PROVEN_LIST, get(sessions::list)),
        ("/openapi.json", get(openapi::serve)),
    ]
}

fn all() -> impl Iterator<Item = (String, MethodRouter<App>)> {
    let below = |prefix: &'static str| {
        session_routes().into_iter().map(move |(path, handler)| (format!("{prefix}{path}"), handler))
    };
    let others = other_routes().into_iter().map(|(path, handler)| (path.to_owned(), handler));
    SESSION_PREFIXES.into_iter().flat_map(below).chain(others)
}

/// The paths of the router, with their parameters in braces: that of a file's path takes slashes too.
pub fn paths() -> Vec<String> {
    all().map(|(path, _)| path.replace("{*", "{")).collect()
}

pub fn router() -> Router<App> {
    let router = all().fold(Router::new(), |router, (path, handler)| router.route(&path, handler));
    router.fallback(|| async { Problem::no_route() })
}
