//! The interface, described: made from the handlers' own annotations, served, and committed as `docs/openapi.json`.

use std::sync::OnceLock;

use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem, Paths};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Content, Ref, RefOr, Required, Response};

use super::address::{SESSION_HEADER, USER_HEADER};
use super::problem::ProblemDocument;
use super::routes::{PROVEN_LIST, SESSION_PREFIXES, USER_LIST};
use super::{calls, files, schema, sessions};
use crate::state::MAX_ID_BYTES;
use crate::workspace::MAX_PATH_BYTES;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Holdfast agent",
        description = "Calls of an agent that never loses a conversation. Every path below a session exists in three \
                       forms: with user and session, with the session alone, and short for the session `default`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0")
    ),
    paths(
        calls::start, calls::live, calls::one, calls::events, calls::retry, sessions::interrupt, sessions::state,
        sessions::put_state, sessions::delete, sessions::clear, sessions::fork, sessions::list, files::list, files::get,
        files::put, files::delete, serve
    ),
    components(schemas(schema::Call, schema::AgentState, schema::Message, ProblemDocument<'static>)),
    security((), ("token" = []))
)]
struct Annotations;

/// The whole description, as JSON.
pub fn document() -> &'static str {
    static DOCUMENT: OnceLock<String> = OnceLock::new();
    DOCUMENT.get_or_init(|| {
        let mut description = Annotations::openapi();
        description.paths = in_every_form(std::mem::take(&mut description.paths));
        let token = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        description.components.get_or_insert_default().add_security_scheme("token", token);
        let text = description.to_pretty_json();
        text.unwrap_or_else(|error| unreachable!("a description is JSON: {error}")) + "\n"
    })
}

/// What may be wrong with any request about a session.
const WITH_ANY: [(&str, &str); 4] = [
    ("400", "`bad-id`, `bad-encoding`"),
    ("401", "`unauthenticated`"),
    ("403", "`forbidden`: another user's session"),
    (
        "503",
        "`store-unavailable`, `draining`, with `Retry-After`; `admitted` says whether the call was taken",
    ),
];
/// And with any that brings JSON.
const WITH_JSON: [(&str, &str); 5] = [
    ("400", "`not-json`, `bad-id`, `bad-encoding`"),
    ("408", "`body-too-slow`"),
    ("413", "`too-large`"),
    ("415", "`not-json`"),
    ("422", "`wrong-shape`"),
];

/// Handlers name only the problems that are their own. The usual ones are added here, and each is a problem document.
fn add_problems(operation: &mut Operation) {
    let takes_json = match &operation.request_body {
        Some(RefOr::T(body)) => body.content.contains_key("application/json"),
        _ => false,
    };
    let with_a_body: &[_] = if takes_json { &WITH_JSON } else { &[] };
    let responses = &mut operation.responses.responses;
    for (status, description) in with_a_body.iter().chain(&WITH_ANY) {
        let usual = || RefOr::T(Response::new(*description));
        responses.entry((*status).to_owned()).or_insert_with(usual);
    }
    for (_, response) in responses.iter_mut().filter(|(status, _)| status.as_str() >= "400") {
        if let RefOr::T(response) = response {
            let document = Content::new(Some(Ref::from_schema_name("Problem")));
            response.content.insert("application/problem+json".to_owned(), RefOr::T(document));
        }
    }
}

/// The description of this interface.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "This document")))]
pub async fn serve() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], document())
}

/// Paths below a session are annotated once and stand below each way to name one.
fn in_every_form(annotated: Paths) -> Paths {
    let mut paths = Paths::new();
    for (path, mut item) in annotated.paths {
        if path != "/openapi.json" {
            operations(&mut item).for_each(add_problems);
        }
        match path.strip_prefix("/S") {
            None => {
                paths.paths.insert(path, item);
            }
            Some(below) => {
                for prefix in SESSION_PREFIXES {
                    paths.paths.insert(format!("{prefix}{below}"), in_form(prefix, item.clone()));
                }
            }
        }
    }
    if let Some(by_user) = paths.paths.get(USER_LIST).cloned() {
        // The same list, for a user who is proven or named by a header.
        paths.paths.insert(PROVEN_LIST.to_owned(), in_form(PROVEN_LIST, by_user));
    }
    for (path, item) in &mut paths.paths {
        let named =
            ["user", "session", "call", "path"].into_iter().filter(|id| path.contains(&format!("{{{id}}}")));
        item.parameters.get_or_insert_default().extend(named.map(|id| parameter(id, ParameterIn::Path)));
    }
    paths
}

fn in_form(prefix: &str, mut item: PathItem) -> PathItem {
    let (user, session) = (prefix.contains("{user}"), prefix.contains("{session}"));
    let suffix = match (user, session) {
        (true, _) => "",
        _ if prefix == PROVEN_LIST => "_of_caller",
        (false, true) => "_in_session",
        (false, false) => "_in_default_session",
    };
    for operation in operations(&mut item) {
        if let Some(id) = &mut operation.operation_id {
            id.push_str(suffix);
        }
    }
    let headers = [(user, USER_HEADER), (session || prefix == PROVEN_LIST, SESSION_HEADER)];
    let headers = headers.into_iter().filter(|(in_path, _)| !in_path);
    item.parameters
        .get_or_insert_default()
        .extend(headers.map(|(_, name)| parameter(name, ParameterIn::Header)));
    item
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten()
}

fn parameter(name: &str, place: ParameterIn) -> RefOr<Parameter> {
    let required = if place == ParameterIn::Path { Required::True } else { Required::False };
    let (longest, description) = match name {
        "path" => (MAX_PATH_BYTES, "A file's path: names separated by `/`, percent-encoded."),
        _ => (MAX_ID_BYTES, "Any string, percent-encoded."),
    };
    let schema = ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(longest));
    let parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some(description))
        .schema(Some(schema));
    RefOr::T(parameter.build())
}
