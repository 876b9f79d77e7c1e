//! A session's files, for people and programs that hand them in and take results out.
//!
//! Which tree they are in follows from the session's address and the manifest's isolation; a path can name no other.

use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::{
    ACCEPT_RANGES, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_MATCH, IF_NONE_MATCH,
    IF_RANGE, LOCATION, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::App;
use super::address::{Address, FileAddress};
use super::body;
use super::conditions::{is_known, one};
use super::media_type;
use super::problem::Problem;
use super::range::{Asked, asked};
use super::sessions::query;
use crate::workspace::{
    Condition, Content, Done, Entry, Etag, FileError, FilePath, Listed, Listing, Part, Put, Workspace,
};

/// Files in one page of a list, if the client does not say, and at most.
const PAGE: usize = 100;
const MAX_PAGE: usize = 1000;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ListQuery {
    folder: Option<String>,
    limit: Option<usize>,
    cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct FileList {
    files: Vec<FileSummary>,
    /// The cursor of the next page; null on the last.
    next: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FileSummary {
    path: String,
    /// In bytes.
    size: u64,
    /// The name of its content: the file's ETag without the quotes.
    #[schema(value_type = String)]
    etag: Option<String>,
    #[schema(value_type = String)]
    modified_at: Timestamp,
}

impl FileSummary {
    fn new(path: impl Into<String>, size: u64, modified: u64, etag: Option<&Etag>) -> Self {
        let millis = i64::try_from(modified).unwrap_or(i64::MAX);
        let modified_at = Timestamp::from_millisecond(millis).unwrap_or(Timestamp::MAX);
        Self { path: path.into(), size, etag: etag.map(ToString::to_string), modified_at }
    }
}

/// The files of a session, in the order of their paths' bytes.
#[utoipa::path(get, path = "/S/files", operation_id = "list_files",
    params(("folder" = Option<String>, Query, description = "Only what is in this folder"),
           ("limit" = Option<usize>, Query, minimum = 1, description = "At most so many; 100 if absent, 1000 at most"),
           ("cursor" = Option<String>, Query, description = "The `next` of the page before"),
           ("if-none-match" = Option<String>, Header, description = "The ETag of this page as it was")),
    responses(
        (status = 200, description = "A page of files", body = FileList, headers(("etag" = String, description = "Of this page"))),
        (status = 304, description = "Still the page in `if-none-match`"),
        (status = 400, description = "`bad-query`, `bad-path`, `bad-id`, `bad-encoding`"),
        (status = 404, description = "`no-filesystem`: the agent has no files"),
        (status = 503, description = "`store-unavailable`, with `Retry-After`"),
    ))]
pub async fn list(
    State(app): State<App>,
    Address(slot): Address,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let workspace = workspace(&app)?;
    let ListQuery { folder, limit, cursor } = query(&uri)?;
    let limit = match limit {
        Some(0) => return Err(Problem::bad_request("bad-query", "limit is 0; ask for at least one file")),
        Some(limit) => limit.min(MAX_PAGE),
        None => PAGE,
    };
    let below = FilePath::folder(folder.as_deref().unwrap_or_default()).map_err(FileError::from)?;
    let listing = Listing { below, after: cursor, limit, folders: false, etags: true };
    let page = workspace.trees().list(&workspace.tree(&slot), &listing).await?;
    let summary = |Entry { path, what }| match what {
        Listed::File { size, modified, etag } => Some(FileSummary::new(path, size, modified, etag.as_ref())),
        Listed::Folder => None,
    };
    let list = FileList { files: page.entries.into_iter().filter_map(summary).collect(), next: page.next };
    let json = serde_json::to_vec(&list).unwrap_or_else(|error| unreachable!("names and numbers: {error}"));
    let etag = quoted(&Etag::of(&json));
    if is_known(&headers, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, etag)]).into_response());
    }
    let headers = [(CONTENT_TYPE, HeaderValue::from_static("application/json")), (ETAG, etag)];
    Ok((headers, Body::from(json)).into_response())
}

/// A file, or a part of it.
#[utoipa::path(get, path = "/S/files/{path}", operation_id = "get_file",
    params(("range" = Option<String>, Header, description = "One range of bytes, such as `bytes=0-499` or `bytes=-500`"),
           ("if-range" = Option<String>, Header, description = "The ETag the range is of; of another file all is sent"),
           ("if-none-match" = Option<String>, Header, description = "The ETag of the file as it was")),
    responses(
        (status = 200, description = "The file", body = Vec<u8>, content_type = "*/*", headers(("etag" = String, description = "The name of its content, quoted"))),
        (status = 206, description = "The part asked for", body = Vec<u8>, content_type = "*/*", headers(("content-range" = String, description = "Which part it is, and of how many bytes"))),
        (status = 304, description = "Still the content in `if-none-match`"),
        (status = 400, description = "`bad-path`, `bad-id`, `bad-encoding`"),
        (status = 404, description = "`no-such-file`, `no-filesystem`"),
        (status = 409, description = "`path-conflict`: a folder"),
        (status = 416, description = "`bad-range`: the file is shorter"),
        (status = 503, description = "`store-unavailable`, with `Retry-After`"),
    ))]
pub async fn get(
    State(app): State<App>,
    FileAddress { slot, path }: FileAddress,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let workspace = workspace(&app)?;
    let range = headers.get(RANGE).and_then(|range| asked(range.to_str().ok()?));
    let part = range.map_or(Part::WHOLE, Asked::part);
    let found = workspace.trees().read(&workspace.tree(&slot), &path, part).await?;
    let Content { about, bytes } = found.ok_or(FileError::NotFound(path.clone()))?;
    let etag = quoted(&about.etag);
    if is_known(&headers, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(ETAG, etag)]).into_response());
    }
    let still = headers.get(IF_RANGE).is_none_or(|known| *known == etag);
    let mut response = match range {
        Some(range) if still => ranged(range, about.size, bytes)?,
        Some(_) => {
            let whole = workspace.trees().read(&workspace.tree(&slot), &path, Part::WHOLE).await?;
            Body::from(whole.ok_or(FileError::NotFound(path.clone()))?.bytes).into_response()
        }
        None => Body::from(bytes).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(ETAG, etag);
    headers.insert(CONTENT_TYPE, media_type::of(path.name(), about.binary));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // What an agent wrote is nobody's page: a browser neither guesses what it is nor runs it.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    Ok(response)
}

fn ranged(range: Asked, size: u64, bytes: Bytes) -> Result<Response, Problem> {
    let Some((first, last)) = range.within(size) else {
        let detail = format!("the file has {size} bytes; ask for some of those");
        let problem =
            Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "bad-range", "Nothing is there", detail);
        let held = HeaderValue::try_from(format!("bytes */{size}"));
        return Err(held.map_or(problem.clone(), |held| problem.with_header(CONTENT_RANGE, held)));
    };
    // Of a range from the end, all was read: how long the file is was not known.
    let bytes = if range.is_from_the_end() {
        bytes.slice(Part { from: first, len: u64::MAX }.of(bytes.len()))
    } else {
        bytes
    };
    let mut response = (StatusCode::PARTIAL_CONTENT, Body::from(bytes)).into_response();
    if let Ok(held) = HeaderValue::try_from(format!("bytes {first}-{last}/{size}")) {
        response.headers_mut().insert(CONTENT_RANGE, held);
    }
    Ok(response)
}

/// Writes a file whole, in place of the one that may be there.
#[utoipa::path(put, path = "/S/files/{path}", operation_id = "put_file",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    params(("if-match" = Option<String>, Header, description = "The ETag of the file that is replaced, or `*`"),
           ("if-none-match" = Option<String>, Header, pattern = r"^\*$", description = "`*` to write only where there is no such file")),
    responses(
        (status = 200, description = "Replaced", body = FileSummary, headers(("etag" = String, description = "The name of its content, quoted"))),
        (status = 201, description = "Created", body = FileSummary, headers(("etag" = String, description = "The name of its content, quoted"))),
        (status = 400, description = "`bad-path`, `bad-condition`, `bad-id`, `bad-encoding`"),
        (status = 404, description = "`no-filesystem`: the agent has no files"),
        (status = 409, description = "`path-conflict`: a folder, or below a file"),
        (status = 412, description = "`file-changed`"),
        (status = 413, description = "`too-large`"),
        (status = 503, description = "`store-unavailable`, with `Retry-After`"),
        (status = 507, description = "`workspace-full`"),
    ))]
pub async fn put(
    State(app): State<App>,
    FileAddress { slot, path }: FileAddress,
    request: Request,
) -> Result<Response, Problem> {
    let workspace = workspace(&app)?;
    let (parts, body) = request.into_parts();
    let condition = condition(&parts.headers)?;
    let limit = usize::try_from(workspace.trees().limits().max_file).unwrap_or(usize::MAX);
    let bytes = body::bytes(&parts.headers, body, limit).await?;
    let put = Put { bytes, condition, stamp: None, answer: String::new() };
    let Done::Written { about, created } = workspace.trees().put(&workspace.tree(&slot), &path, &put).await?
    else {
        unreachable!("only a tool call is ever recorded")
    };
    let status = if created { StatusCode::CREATED } else { StatusCode::OK };
    let summary = FileSummary::new(path.as_str(), about.size, about.modified, Some(&about.etag));
    let mut response = (status, [(ETAG, quoted(&about.etag))], Json(summary)).into_response();
    if created && let Ok(location) = HeaderValue::try_from(parts.uri.path()) {
        response.headers_mut().insert(LOCATION, location);
    }
    Ok(response)
}

/// Removes a file.
#[utoipa::path(delete, path = "/S/files/{path}", operation_id = "delete_file",
    params(("if-match" = Option<String>, Header, description = "The ETag of the file that is removed, or `*`")),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, description = "`bad-path`, `bad-condition`, `bad-id`, `bad-encoding`"),
        (status = 404, description = "`no-such-file`, `no-filesystem`"),
        (status = 409, description = "`path-conflict`: a folder, or below a file"),
        (status = 412, description = "`file-changed`"),
        (status = 503, description = "`store-unavailable`, with `Retry-After`"),
    ))]
pub async fn delete(
    State(app): State<App>,
    FileAddress { slot, path }: FileAddress,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let workspace = workspace(&app)?;
    let condition = condition(&headers)?;
    if workspace.trees().delete(&workspace.tree(&slot), &path, &condition).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(FileError::NotFound(path).into())
}

fn workspace(app: &App) -> Result<&Workspace, Problem> {
    app.sessions().workspace().ok_or_else(|| {
        let detail = "this agent has no files; add filesystem to its manifest";
        Problem::new(StatusCode::NOT_FOUND, "no-filesystem", "No files", detail)
    })
}

fn quoted(etag: &Etag) -> HeaderValue {
    // Hexadecimal digits in quotes are a header's value.
    HeaderValue::try_from(format!("\"{etag}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}

/// What must be true of a file before it is changed. Who says nothing does not mind.
fn condition(headers: &HeaderMap) -> Result<Condition, Problem> {
    match (one(headers, &IF_MATCH)?, one(headers, &IF_NONE_MATCH)?) {
        (None, None) => Ok(Condition::Any),
        (Some("*"), None) => Ok(Condition::Exists),
        (None, Some("*")) => Ok(Condition::Absent),
        (Some(etag), None) => Ok(Condition::Is(Etag::named(etag.trim_matches('"')))),
        _ => Err(Problem::bad_request(
            "bad-condition",
            "send either if-match with one ETag, or if-none-match: *, and not both",
        )),
    }
}
