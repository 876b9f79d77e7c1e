//! What a client is told when it does not get what it asked for: RFC 9457 problem documents.
//!
//! A `type` never changes its meaning: clients branch on it. `detail` is for people and says what to do. What went wrong
//! inside is in the log, under the same call id; a document never carries a message's text, a secret or an address.

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::session::{CallError, StateChangeError};
use crate::state::{CallId, IdError};
use crate::store::StoreError;
use crate::workspace::FileError;

/// Where the names of problems live.
const TYPES: &str = "https://holdfast.dev/problems/";

/// Seconds after which the same request may go through: a turn's time, and an outage's.
const SOON: u32 = 1;
const AFTER_AN_OUTAGE: u32 = 2;

/// A refusal or a failure, before it is known which request it answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub status: StatusCode,
    pub name: &'static str,
    pub title: &'static str,
    pub detail: String,
    /// The call it is about, and whether that call was taken: absent, known, or not known.
    pub call: Option<CallId>,
    pub admitted: Option<Option<bool>>,
    pub retry_after: Option<u32>,
    pub header: Option<Box<(HeaderName, HeaderValue)>>,
}

/// An RFC 9457 problem document.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Problem)]
pub struct ProblemDocument<'a> {
    /// `https://holdfast.dev/problems/<name>`; clients branch on it.
    #[schema(example = "https://holdfast.dev/problems/queue-full")]
    r#type: String,
    title: &'a str,
    status: u16,
    /// What was wrong, and what to do.
    detail: &'a str,
    /// The path of the request.
    instance: &'a str,
    /// The call it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a str>,
    /// On a 503: true, the same callId finds the call; false, it was not taken; null, not known: send it again.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<bool>)]
    admitted: Option<Option<bool>>,
}

impl Problem {
    pub fn new(
        status: StatusCode,
        name: &'static str,
        title: &'static str,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            status,
            name,
            title,
            detail: detail.into(),
            call: None,
            admitted: None,
            retry_after: None,
            header: None,
        }
    }

    pub fn bad_request(name: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, name, "The request cannot be understood", detail)
    }

    pub fn unprocessable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "wrong-shape", "The request does not fit", detail)
    }

    pub fn no_route() -> Self {
        let detail = "there is nothing at this path; see GET /openapi.json";
        Self::new(StatusCode::NOT_FOUND, "no-such-path", "Not found", detail)
    }

    pub fn no_session() -> Self {
        let detail = "this session has never been used, or was deleted or has expired; send it a call first";
        Self::new(StatusCode::NOT_FOUND, "no-such-session", "No such session", detail)
    }

    pub fn unauthenticated(detail: impl Into<String>) -> Self {
        let problem = Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", "Not authenticated", detail);
        problem.with_header(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"holdfast\""))
    }

    pub fn forbidden(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, "forbidden", "Another user's", detail)
    }

    fn conflict(name: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, name, title, detail)
    }

    fn store(error: &StoreError) -> Self {
        if let StoreError::Corrupt(_) = error {
            return Self::new(
                StatusCode::INTERNAL_SERVER_ERROR,
                "state-unreadable",
                "What is stored cannot be used",
                error.to_string(),
            );
        }
        let title = "The state store does not answer";
        let problem = Self::new(StatusCode::SERVICE_UNAVAILABLE, "store-unavailable", title, outage(error));
        problem.again_after(AFTER_AN_OUTAGE)
    }

    fn again_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    pub fn with_header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.header = Some(Box::new((name, value)));
        self
    }

    pub fn about(mut self, call: &CallId) -> Self {
        self.call = Some(call.clone());
        self
    }

    fn admitted(mut self, admitted: Option<bool>) -> Self {
        self.admitted = Some(admitted);
        self
    }

    /// The document, as the answer to the request for `path`.
    pub fn render(&self, path: &str) -> Response {
        let document = ProblemDocument {
            r#type: format!("{TYPES}{}", self.name),
            title: self.title,
            status: self.status.as_u16(),
            detail: &self.detail,
            instance: path,
            call_id: self.call.as_ref().map(CallId::as_str),
            admitted: self.admitted,
        };
        let body = serde_json::to_vec(&document)
            .unwrap_or_else(|error| unreachable!("a problem is strings and numbers: {error}"));
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if let Some(header) = &self.header {
            let (name, value) = &**header;
            headers.insert(name, value.clone());
        }
        response
    }
}

/// What a client may know of an outage: neither hosts nor users of the store.
fn outage(error: &StoreError) -> String {
    let what = match error {
        StoreError::Unavailable(_) => "it cannot be reached",
        StoreError::Unanswered(_) => "it did not answer in time",
        StoreError::OutOfMemory => "it is out of memory",
        StoreError::ReadOnly => "it is a read-only replica",
        StoreError::Loading => "it is still loading its data",
        StoreError::Denied(_) => "it refuses this agent",
        StoreError::Disk(_) => "its disk cannot be written",
        StoreError::LeaseLost => "the session went to another replica",
        StoreError::Corrupt(_) | StoreError::Failed(_) => "it failed",
    };
    format!("the state store is not usable: {what}; send the same request again")
}

/// Carries a problem out of a handler; the document is made where the path is known.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(Box::new(self));
        response
    }
}

/// A 405 of the router keeps its `Allow` and becomes a document.
pub fn method_not_allowed(response: &Response) -> Problem {
    let detail = "this path does not take this method; see Allow and GET /openapi.json";
    let problem =
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "Method not allowed", detail);
    match response.headers().get(ALLOW) {
        Some(allow) => problem.with_header(ALLOW, allow.clone()),
        None => problem,
    }
}

impl From<IdError> for Problem {
    fn from(error: IdError) -> Self {
        Self::bad_request("bad-id", error.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::store(&error)
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let detail = error.to_string();
        match error {
            CallError::Conflict => Self::conflict("call-conflict", "The call id is taken", detail),
            CallError::SessionBusy => Self::conflict("session-busy", "The session is busy", detail),
            CallError::NotRetryable => Self::conflict("not-retryable", "Not to be retried", detail),
            CallError::ReplyExpired => {
                Self::new(StatusCode::GONE, "reply-expired", "The reply is no longer kept", detail)
            }
            CallError::SessionDeleted => {
                Self::new(StatusCode::GONE, "session-deleted", "The session was deleted", detail)
            }
            CallError::QueueFull => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "queue-full", "Too many calls wait", detail)
                    .again_after(SOON)
            }
            CallError::Overloaded => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "overloaded", "The replica is full", detail)
                    .again_after(SOON)
            }
            CallError::Draining { admitted } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "draining", "The replica is shutting down", detail)
                    .again_after(SOON)
                    .admitted(Some(admitted))
            }
            CallError::UnknownCall => {
                Self::new(StatusCode::NOT_FOUND, "no-such-call", "No such call", detail)
            }
            CallError::NoRunningCall => {
                Self::new(StatusCode::NOT_FOUND, "no-running-call", "No running call", detail)
            }
            CallError::Store { error, call, admitted } => {
                let mut problem = Self::store(&error);
                if problem.status == StatusCode::SERVICE_UNAVAILABLE && call.is_some() {
                    problem = problem.admitted(admitted);
                }
                problem.call = call;
                problem
            }
        }
    }
}

impl From<StateChangeError> for Problem {
    fn from(error: StateChangeError) -> Self {
        let detail = error.to_string();
        match error {
            StateChangeError::Mismatch { .. } => {
                Self::new(StatusCode::PRECONDITION_FAILED, "version-mismatch", "The session changed", detail)
            }
            StateChangeError::SessionBusy => Self::conflict("session-busy", "The session is busy", detail),
            StateChangeError::OtherIds | StateChangeError::Pairing(_) => Self::unprocessable(detail),
            StateChangeError::NoSession => Self::no_session(),
            StateChangeError::Store(error) => Self::store(&error),
        }
    }
}

impl From<FileError> for Problem {
    fn from(error: FileError) -> Self {
        let detail = error.to_string();
        match error {
            FileError::Path(_) => Self::bad_request("bad-path", detail),
            FileError::NotFound(_) => {
                Self::new(StatusCode::NOT_FOUND, "no-such-file", "No such file", detail)
            }
            FileError::IsFolder(_) | FileError::NotAFolder { .. } | FileError::Outside(_) => {
                Self::conflict("path-conflict", "The path is taken", detail)
            }
            FileError::TooLarge { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", "Too large", detail)
            }
            FileError::TreeFull { .. } | FileError::TooManyFiles { .. } => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "workspace-full", "The workspace is full", detail)
            }
            FileError::Changed { .. } => {
                Self::new(StatusCode::PRECONDITION_FAILED, "file-changed", "The file changed", detail)
            }
            FileError::Fenced => Self::conflict("session-busy", "The session is busy", detail),
            FileError::Store(error) => Self::store(&error),
        }
    }
}
