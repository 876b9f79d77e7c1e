//! A fake OTLP collector: takes spans as protobuf over HTTP and keeps them, or keeps them waiting.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use http_body_util::BodyExt;
use hyper::StatusCode;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use prost::Message;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::serve::{plain, serve};

/// A span, with ids in hex as `traceparent` has them.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    pub name: String,
    pub kind: i32,
    pub trace: String,
    pub id: String,
    /// Empty where it is the first of its trace.
    pub parent: String,
    pub attributes: BTreeMap<String, Value>,
    /// Of whoever sent it.
    pub resource: BTreeMap<String, Value>,
    pub failed: bool,
}

#[derive(Default)]
struct Seen {
    spans: Vec<Span>,
    headers: Vec<hyper::HeaderMap>,
}

pub struct FakeCollector {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    server: JoinHandle<()>,
}

impl FakeCollector {
    pub async fn start() -> Result<Self> {
        Self::answering(Duration::ZERO).await
    }

    /// One that takes its time to answer.
    pub async fn answering(after: Duration) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let server = tokio::spawn(serve(listener, {
            let seen = Arc::clone(&seen);
            move |request| {
                let seen = Arc::clone(&seen);
                async move {
                    tokio::time::sleep(after).await;
                    if request.uri().path() != "/v1/traces" {
                        return Ok(plain(StatusCode::NOT_FOUND, "text/plain", "no such path"));
                    }
                    let (head, body) = request.into_parts();
                    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
                    let Ok(request) = ExportTraceServiceRequest::decode(body) else {
                        return Ok(plain(StatusCode::BAD_REQUEST, "text/plain", "not protobuf"));
                    };
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.headers.push(head.headers);
                    seen.spans.extend(spans(request));
                    Ok(plain(StatusCode::OK, "application/x-protobuf", ""))
                }
            }
        }));
        Ok(Self { address, seen, server })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn spans(&self) -> Vec<Span> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).spans.clone()
    }

    /// The headers of each export.
    pub fn headers(&self) -> Vec<hyper::HeaderMap> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).headers.clone()
    }

    /// Waits until what has come is `enough`.
    pub async fn until(&self, what: &str, enough: impl Fn(&[Span]) -> bool) -> Result<Vec<Span>> {
        let started = Instant::now();
        loop {
            let spans = self.spans();
            if enough(&spans) {
                return Ok(spans);
            }
            if started.elapsed() > Duration::from_secs(20) {
                bail!("waited in vain for {what}; there is {spans:#?}");
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for FakeCollector {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// The one span of this name.
pub fn the<'a>(spans: &'a [Span], name: &str) -> Result<&'a Span> {
    let mut named = spans.iter().filter(|span| span.name == name);
    let one = named.next().with_context(|| format!("there is no span {name:?} in {spans:#?}"))?;
    match named.next() {
        None => Ok(one),
        Some(_) => bail!("there are several spans {name:?} in {spans:#?}"),
    }
}

fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let mut all = Vec::new();
    for of_resource in request.resource_spans {
        let resource = attributes(of_resource.resource.unwrap_or_default().attributes);
        for span in of_resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            all.push(Span {
                name: span.name,
                kind: span.kind,
                trace: hex(&span.trace_id),
                id: hex(&span.span_id),
                parent: hex(&span.parent_span_id),
                attributes: attributes(span.attributes),
                resource: resource.clone(),
                failed: span.status.is_some_and(|status| status.code == 2),
            });
        }
    }
    all
}

fn attributes(given: Vec<KeyValue>) -> BTreeMap<String, Value> {
    given.into_iter().map(|KeyValue { key, value, .. }| (key, value.map_or(Value::Null, json_of))).collect()
}

fn json_of(value: AnyValue) -> Value {
    match value.value {
        Some(any_value::Value::StringValue(text)) => json!(text),
        Some(any_value::Value::BoolValue(flag)) => json!(flag),
        Some(any_value::Value::IntValue(number)) => json!(number),
        Some(any_value::Value::DoubleValue(number)) => json!(number),
        Some(any_value::Value::ArrayValue(list)) => list.values.into_iter().map(json_of).collect(),
        _ => Value::Null,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
