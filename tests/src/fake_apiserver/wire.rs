//! Paths and verbs in, JSON and streams out.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Frame, Incoming},
    header::{ACCEPT, CONTENT_TYPE, HeaderValue},
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    sync::mpsc::UnboundedReceiver,
    time::{Instant, timeout_at},
};

use super::store::{Applied, Object, Refusal, Resource, Selection, Store};
use crate::serve::{FakeBody, HangUp, plain, serve as serve_http};

const JSON: &str = "application/json";
/// How often a quiet watch is told which version it has reached.
const BOOKMARK: Duration = Duration::from_secs(10);

pub(super) async fn serve(listener: TcpListener, store: Arc<Store>) {
    serve_http(listener, move |request| answer(Arc::clone(&store), request)).await;
}

/// What a path names.
struct Target {
    resource: Resource,
    namespace: Option<String>,
    name: Option<String>,
    subresource: Option<String>,
}

impl Target {
    fn of(path: &str) -> Option<Self> {
        let mut parts = path.split('/').filter(|part| !part.is_empty()).map(str::to_owned);
        let api_version = match parts.next()?.as_str() {
            "api" => parts.next()?,
            "apis" => format!("{}/{}", parts.next()?, parts.next()?),
            _ => return None,
        };
        let mut plural = parts.next()?;
        let mut namespace = None;
        if plural == "namespaces" {
            namespace = parts.next();
            plural = parts.next()?;
        }
        let resource = Resource { api_version, plural };
        Some(Self { resource, namespace, name: parts.next(), subresource: parts.next() })
    }
}

struct Query(Vec<(String, String)>);

impl Query {
    fn of(query: &str) -> Self {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Self(pairs.map(|(name, value)| (name.to_owned(), decoded(value))).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match (first, hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (byte, _) => {
                bytes.push(if *byte == b'+' { b' ' } else { *byte });
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

async fn answer(store: Arc<Store>, request: Request<Incoming>) -> Result<Response<FakeBody>, HangUp> {
    let Some(target) = Target::of(request.uri().path()) else {
        return Ok(refused(Refusal::NotFound));
    };
    let query = Query::of(request.uri().query().unwrap_or_default());
    let accepted = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let metadata_only = accepted.is_some_and(|accept| accept.contains("as=PartialObjectMetadata"));
    let (watches, method) = (query.get("watch") == Some("true"), request.method().clone());
    let verb = match (&method, &target.name) {
        (&Method::GET, None) if watches => "watch",
        (&Method::GET, None) => "list",
        (&Method::GET, Some(_)) => "get",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        _ => "delete",
    };
    let plural = &target.resource.plural;
    let called = target.subresource.as_ref().map_or(plural.clone(), |part| format!("{plural}/{part}"));
    store.called(verb, &called);
    let body = request.into_body().collect().await.map_err(|_| HangUp)?.to_bytes();
    Ok(match verb {
        "watch" => watch(&store, &target, &query, metadata_only),
        "list" => list(&store, &target, &query, metadata_only),
        _ => one(&store, verb, &target, &query, metadata_only, &body),
    })
}

fn selection(target: &Target, query: &Query, metadata_only: bool) -> Selection {
    let labels = query.get("labelSelector").unwrap_or_default().split(',');
    let labels = labels
        .filter_map(|one| one.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.trim_start_matches('=').to_owned()));
    Selection { namespace: target.namespace.clone(), labels: labels.collect(), metadata_only }
}

fn list(store: &Store, target: &Target, query: &Query, metadata_only: bool) -> Response<FakeBody> {
    let from = query.get("continue").and_then(|token| token.split_once('/'));
    let from = from.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let limit =
        query.number("limit").and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0);
    let selection = selection(target, query, metadata_only);
    let page = store.list(&target.resource, &selection, from.as_ref(), limit.unwrap_or(usize::MAX));
    let next = page.next.map(|(namespace, name)| format!("{namespace}/{name}"));
    let (api_version, kind) = match metadata_only {
        true => ("meta.k8s.io/v1", "PartialObjectMetadataList"),
        false => (target.resource.api_version.as_str(), "List"),
    };
    let metadata = json!({"resourceVersion": page.version.to_string(), "continue": next.unwrap_or_default()});
    let mut text =
        format!(r#"{{"apiVersion":"{api_version}","kind":"{kind}","metadata":{metadata},"items":["#)
            .into_bytes();
    for (index, object) in page.objects.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        text.extend_from_slice(object.bytes(metadata_only));
    }
    text.extend_from_slice(b"]}");
    whole(StatusCode::OK, text.into())
}

fn watch(store: &Arc<Store>, target: &Target, query: &Query, metadata_only: bool) -> Response<FakeBody> {
    let after = query.number("resourceVersion").unwrap_or_default();
    let seconds = query.number("timeoutSeconds").unwrap_or(300);
    let selection = selection(target, query, metadata_only);
    let Ok(lines) = store.watch(&target.resource, selection, after) else { return refused(Refusal::Gone) };
    let until = Instant::now() + Duration::from_secs(seconds);
    let bookmarked = Watch { lines, until, store: Arc::clone(store), target: target.resource.clone() };
    let frames = stream::unfold(bookmarked, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok::<_, HangUp>(Frame::data(line)), watch))
    });
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

struct Watch {
    lines: UnboundedReceiver<Bytes>,
    until: Instant,
    store: Arc<Store>,
    target: Resource,
}

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        if Instant::now() >= self.until {
            return None;
        }
        // Whatever was committed before this was told before this: a bookmark must not overtake a line.
        let reached = self.store.version();
        match timeout_at(self.until.min(Instant::now() + BOOKMARK), self.lines.recv()).await {
            Ok(line) => line,
            Err(_) => {
                let Resource { api_version, .. } = &self.target;
                let object = json!({"apiVersion": api_version, "kind": "Bookmark", "metadata": {"resourceVersion": reached.to_string()}});
                Some(format!("{}\n", json!({"type": "BOOKMARK", "object": object})).into())
            }
        }
    }
}

fn one(
    store: &Store,
    verb: &str,
    target: &Target,
    query: &Query,
    metadata_only: bool,
    body: &[u8],
) -> Response<FakeBody> {
    let resource = &target.resource;
    let namespace = target.namespace.as_deref().unwrap_or_default();
    let name = target.name.as_deref().unwrap_or_default();
    let manager = query.get("fieldManager").unwrap_or("unknown");
    let said = || {
        let mut said: Value = serde_json::from_slice(body).unwrap_or_default();
        if !namespace.is_empty() {
            said["metadata"]["namespace"] = json!(namespace);
        }
        said
    };
    let done: Result<(StatusCode, Arc<Object>), Refusal> = match verb {
        "get" => {
            store.get(resource, namespace, name).ok_or(Refusal::NotFound).map(|found| (StatusCode::OK, found))
        }
        "create" => store.create(resource, &said(), manager).map(|made| (StatusCode::CREATED, made)),
        "update" => store.update(resource, &said(), manager).map(|object| (StatusCode::OK, object)),
        "patch" => store.apply(resource, target.subresource.as_deref(), &said(), manager).map(|applied| {
            let Applied { object, created } = applied;
            (if created { StatusCode::CREATED } else { StatusCode::OK }, object)
        }),
        _ => match store.delete(resource, namespace, name) {
            Ok(()) => {
                return plain(
                    StatusCode::OK,
                    JSON,
                    r#"{"kind":"Status","apiVersion":"v1","status":"Success"}"#,
                );
            }
            Err(refusal) => Err(refusal),
        },
    };
    match done {
        Ok((status, object)) => whole(status, object.bytes(metadata_only).clone()),
        Err(refusal) => refused(refusal),
    }
}

fn whole(status: StatusCode, body: Bytes) -> Response<FakeBody> {
    let body = http_body_util::Full::new(body).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

fn refused(refusal: Refusal) -> Response<FakeBody> {
    let (status, reason) = match refusal {
        Refusal::NotFound => (StatusCode::NOT_FOUND, "NotFound"),
        Refusal::Conflict => (StatusCode::CONFLICT, "Conflict"),
        Refusal::Gone => (StatusCode::GONE, "Expired"),
    };
    let body = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": refusal.to_string(),
        "reason": reason, "code": status.as_u16()});
    plain(status, JSON, &body.to_string())
}
