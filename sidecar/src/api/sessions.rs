//! Everything about a session but its calls: its state, its interruption, its end, its copies, its siblings.

use axum::Json;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::App;
use super::address::{Address, UserAddress, encode};
use super::body;
use super::conditions::{is_known, one};
use super::problem::Problem;
use super::schema;
use crate::session::{StateChangeError, StateDocument};
use crate::state::{AgentState, CallId, Id, SCHEMA_VERSION, Share, Slot};
use crate::store::{Condition, SessionRow};

/// Sessions in one page of a list, if the client does not say, and at most.
const PAGE: usize = 50;
const MAX_PAGE: usize = 1000;
/// What every client and every store can count to.
const MAX_TURNS: u64 = 1 << 53;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct InterruptBody {
    /// Which call; the running one if absent.
    #[schema(min_length = 1, max_length = 512)]
    call_id: Option<String>,
    /// Said to the agent before its next turn.
    message: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InterruptedCall {
    #[schema(value_type = String)]
    call_id: CallId,
}

/// Stops one call: the named one, or the running one. What it has said is kept.
#[utoipa::path(post, path = "/S/interrupt", operation_id = "interrupt", request_body = Option<InterruptBody>,
    responses(
        (status = 202, description = "The call it reached", body = InterruptedCall),
        (status = 404, description = "`no-running-call`"),
    ))]
pub async fn interrupt(
    State(app): State<App>,
    Address(slot): Address,
    request: Request,
) -> Result<(StatusCode, Json<InterruptedCall>), Problem> {
    let (parts, body) = request.into_parts();
    let asked: InterruptBody = body::json_or_default(&parts, body, body::MAX_SMALL_BYTES).await?;
    let call = asked.call_id.map(|id| Id::new("call", id)).transpose()?;
    let call_id = app.sessions().interrupt(&slot, call, asked.message).await?;
    Ok((StatusCode::ACCEPTED, Json(InterruptedCall { call_id })))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateQuery {
    last: Option<usize>,
}

/// The committed state of a session.
#[utoipa::path(get, path = "/S/state", operation_id = "get_state",
    params(("last" = Option<usize>, Query, description = "Only the last so many messages")),
    responses(
        (status = 200, description = "The state", body = schema::AgentState, headers(("etag" = String, description = "The version, quoted"))),
        (status = 304, description = "Still the version in `if-none-match`"),
        (status = 400, description = "`bad-query`, `bad-id`, `bad-encoding`"),
        (status = 404, description = "`no-such-session`: never used"),
    ))]
pub async fn state(
    State(app): State<App>,
    Address(slot): Address,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let StateQuery { last } = query(&uri)?;
    let document = app.sessions().document(&slot, last).await?.ok_or_else(Problem::no_session)?;
    if is_known(&headers, &etag(document.version)) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, etag(document.version))]).into_response());
    }
    Ok(state_response(StatusCode::OK, document))
}

/// Replaces the state of a session, or creates one.
#[utoipa::path(put, path = "/S/state", operation_id = "put_state", request_body = schema::AgentState,
    params(("if-match" = Option<String>, Header, description = "The version that is replaced, or `*`"),
           ("if-none-match" = Option<String>, Header, pattern = r"^\*$", description = "`*` to create")),
    responses(
        (status = 200, description = "The state", body = schema::AgentState, headers(("etag" = String, description = "The version, quoted"))),
        (status = 409, description = "`session-busy`: a call is live"),
        (status = 412, description = "`version-mismatch`"),
        (status = 428, description = "`condition-required`"),
    ))]
pub async fn put_state(
    State(app): State<App>,
    Address(slot): Address,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let condition = condition(&parts.headers)?;
    let mut state: AgentState = body::json(&parts, body, body::MAX_STATE_BYTES).await?;
    if state.meta.schema_version > SCHEMA_VERSION + 1 {
        let detail =
            format!("schemaVersion is newer than {}; upgrade this replica first", SCHEMA_VERSION + 1);
        return Err(Problem::unprocessable(detail));
    }
    if state.turn_count > MAX_TURNS {
        return Err(Problem::unprocessable(format!("turnCount is beyond {MAX_TURNS}; count from 0")));
    }
    state.version = app.sessions().put_state(&slot, &state, condition).await?;
    state.revision.clone_from(&app.sessions().settings().revision);
    state.shutdown_interrupted = false;
    Ok(state_response(StatusCode::OK, StateDocument::from(&state)))
}

/// Deletes a session. A running call is ended and cannot bring it back.
#[utoipa::path(delete, path = "/S", operation_id = "delete_session",
    responses(
        (status = 204, description = "It is gone"),
    ))]
pub async fn delete(State(app): State<App>, Address(slot): Address) -> Result<StatusCode, Problem> {
    app.sessions().delete(&slot).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Forgets history and state; the session's id stays.
#[utoipa::path(post, path = "/S/clear", operation_id = "clear_session",
    responses(
        (status = 200, description = "The fresh state", body = schema::AgentState, headers(("etag" = String, description = "The version, quoted"))),
        (status = 404, description = "`no-such-session`"),
        (status = 409, description = "`session-busy`: a call is live"),
    ))]
pub async fn clear(State(app): State<App>, Address(slot): Address) -> Result<Response, Problem> {
    let fresh = app.sessions().clear(&slot).await?;
    Ok(state_response(StatusCode::OK, StateDocument::from(&fresh)))
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkBody {
    /// The new session's id.
    #[schema(min_length = 1, max_length = 512)]
    session: String,
    #[serde(default = "yes")]
    share_history: bool,
    #[serde(default = "yes")]
    share_state: bool,
}

fn yes() -> bool {
    true
}

/// Copies the last committed version into a new session.
#[utoipa::path(post, path = "/S/fork", operation_id = "fork_session", request_body = ForkBody,
    responses(
        (status = 201, description = "The new session's state", body = schema::AgentState, headers(("etag" = String, description = "The version, quoted"))),
        (status = 404, description = "`no-such-session`"),
        (status = 409, description = "`session-exists`"),
    ))]
pub async fn fork(
    State(app): State<App>,
    Address(slot): Address,
    request: Request,
) -> Result<Response, Problem> {
    let (parts, body) = request.into_parts();
    let asked: ForkBody = body::json(&parts, body, body::MAX_SMALL_BYTES).await?;
    let into = Slot { user: slot.user.clone(), session: Id::new("session", asked.session)? };
    let share = Share { history: asked.share_history, state: asked.share_state };
    let fork = app.sessions().fork(&slot, &into, share).await.map_err(|error| match error {
        StateChangeError::Mismatch { .. } | StateChangeError::SessionBusy => Problem::new(
            StatusCode::CONFLICT,
            "session-exists",
            "The session exists",
            "a fork never replaces a session; name one that does not exist",
        ),
        error => error.into(),
    })?;
    let mut response = state_response(StatusCode::CREATED, StateDocument::from(&fork));
    if let Ok(location) = HeaderValue::try_from(state_path(&into)) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SessionList {
    sessions: Vec<SessionSummary>,
    /// The cursor of the next page; null on the last.
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionSummary {
    #[schema(value_type = String)]
    session: Id,
    #[schema(value_type = String)]
    updated_at: Timestamp,
    version: u64,
}

/// The sessions of a user, latest change first.
#[utoipa::path(get, path = "/v1/users/{user}/sessions", operation_id = "list_sessions",
    params(("limit" = Option<usize>, Query, minimum = 1, description = "At most so many; 50 if absent, 1000 at most"),
           ("cursor" = Option<String>, Query, description = "The `next` of the page before")),
    responses(
        (status = 200, description = "A page of sessions", body = SessionList),
        (status = 400, description = "`bad-query`, `no-user`, `bad-id`, `bad-encoding`"),
    ))]
pub async fn list(
    State(app): State<App>,
    UserAddress(user): UserAddress,
    uri: Uri,
) -> Result<Json<SessionList>, Problem> {
    let ListQuery { limit, cursor } = query(&uri)?;
    let limit = match limit {
        Some(0) => return Err(Problem::bad_request("bad-query", "limit is 0; ask for at least one session")),
        Some(limit) => limit.min(MAX_PAGE),
        None => PAGE,
    };
    if cursor.as_deref().is_some_and(|cursor| SessionRow::from_cursor(cursor).is_none()) {
        return Err(Problem::bad_request("bad-query", "cursor is not one that a list's next has given"));
    }
    let page = app.sessions().sessions(&user, limit, cursor.as_deref()).await?;
    let sessions = page.sessions.into_iter().map(SessionSummary::from).collect();
    Ok(Json(SessionList { sessions, next: page.next }))
}

impl From<SessionRow> for SessionSummary {
    fn from(row: SessionRow) -> Self {
        let millis = i64::try_from(row.updated).unwrap_or(i64::MAX);
        let updated_at = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
        Self { session: row.session, updated_at, version: row.version }
    }
}

pub(super) fn query<T: serde::de::DeserializeOwned>(uri: &Uri) -> Result<T, Problem> {
    Query::try_from_uri(uri)
        .map(|Query(query)| query)
        .map_err(|error| Problem::bad_request("bad-query", error.body_text()))
}

fn etag(version: u64) -> HeaderValue {
    let mut quoted = String::with_capacity(22);
    // Writing to a string cannot fail, and digits in quotes are a header value.
    let _ = std::fmt::Write::write_fmt(&mut quoted, format_args!("\"{version}\""));
    HeaderValue::try_from(quoted).unwrap_or(HeaderValue::from_static("\"\""))
}

fn state_response(status: StatusCode, document: StateDocument) -> Response {
    let headers =
        [(CONTENT_TYPE, HeaderValue::from_static("application/json")), (ETAG, etag(document.version))];
    (status, headers, Body::from(document.json)).into_response()
}

fn state_path(slot: &Slot) -> String {
    let session = encode(slot.session.as_str());
    match &slot.user {
        Some(user) => format!("/v1/users/{}/sessions/{session}/state", encode(user.as_str())),
        None => format!("/v1/sessions/{session}/state"),
    }
}

/// What must be true of the session before its state is replaced: a PUT that does not say is refused.
fn condition(headers: &HeaderMap) -> Result<Condition, Problem> {
    match (one(headers, &IF_MATCH)?, one(headers, &IF_NONE_MATCH)?) {
        (Some("*"), None) => Ok(Condition::Exists),
        (None, Some("*")) => Ok(Condition::Absent),
        (Some(version), None) => match version.trim_matches('"').parse() {
            Ok(version) => Ok(Condition::Version(version)),
            Err(_) => Err(Problem::new(
                StatusCode::PRECONDITION_FAILED,
                "version-mismatch",
                "The session changed",
                "if-match is not a version this session ever had; give back the ETag of a GET",
            )),
        },
        (None, None) => Err(Problem::new(
            StatusCode::PRECONDITION_REQUIRED,
            "condition-required",
            "Say what you replace",
            "send if-match with the ETag you have read (or *), or if-none-match: * to create the session",
        )),
        _ => Err(Problem::bad_request(
            "bad-condition",
            "send either if-match, or if-none-match: *, and not both",
        )),
    }
}
