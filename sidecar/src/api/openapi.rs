//! The interface, described: made from the handlers' own annotations, served, and committed as `docs/openapi.json`.

use std::sync::OnceLock;

use axum::response::IntoResponse;
use http::header::CONTENT_TYPE;
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem, Paths};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{RefOr, Required};

use super::address::{SESSION_HEADER, USER_HEADER};
use super::problem::ProblemDocument;
use super::routes::{PROVEN_LIST, SESSION_PREFIXES, USER_LIST};
use super::{calls, schema, sessions};
use crate::state::MAX_ID_BYTES;

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
        sessions::put_state, sessions::delete, sessions::clear, sessions::fork, sessions::list, serve
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

/// The description of this interface.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, description = "This document")))]
pub async fn serve() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], document())
}

/// Paths below a session are annotated once and stand below each way to name one.
fn in_every_form(annotated: Paths) -> Paths {
    let mut paths = Paths::new();
    for (path, item) in annotated.paths {
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
        let named = ["user", "session", "call"].into_iter().filter(|id| path.contains(&format!("{{{id}}}")));
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
    let schema =
        ObjectBuilder::new().schema_type(Type::String).min_length(Some(1)).max_length(Some(MAX_ID_BYTES));
    let parameter = ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(required)
        .description(Some("Any string, percent-encoded."))
        .schema(Some(schema));
    RefOr::T(parameter.build())
}
