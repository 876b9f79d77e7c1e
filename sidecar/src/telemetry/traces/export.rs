//! Where spans go: to the OTLP endpoint of the environment, as protobuf over HTTP, through our own client.
//!
//! The variables are OpenTelemetry's own (`OTEL_EXPORTER_OTLP_ENDPOINT`, `…_TRACES_ENDPOINT`, `…_HEADERS`, `…_TIMEOUT`,
//! `…_CERTIFICATE`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_*`, `OTEL_SERVICE_NAME`, `OTEL_RESOURCE_ATTRIBUTES`). A collector that cannot be
//! reached costs the spans and nothing else.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use holdfast_crds::Agent;
use http::{Request, Response, Uri};
use opentelemetry::KeyValue;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, TelemetryResourceDetector};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::Traces;
use crate::outbound::{Options, Outbound, OutboundError, Spliced, read_bounded};

/// What a collector has to say is short.
const MAX_ANSWER: usize = 64 << 10;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("the endpoint {0:?} is no address; write http:// or https://, a host and a port")]
    Endpoint(String),
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE: {0}")]
    Certificate(std::io::Error),
    #[error(transparent)]
    Outbound(#[from] OutboundError),
    #[error(transparent)]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// What the environment asks for. A mistake in it is logged and costs the traces, not the agent. Call it inside the runtime.
pub fn from_env(agent: &Agent, replica: &str) -> Traces {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let both = |name: &str| {
        set(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
            .or_else(|| set(&format!("OTEL_EXPORTER_OTLP_{name}")))
    };
    let is_true = |name: &str| set(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let Some(endpoint) = both("ENDPOINT") else { return Traces::default() };
    if is_true("OTEL_SDK_DISABLED") || set("OTEL_TRACES_EXPORTER").is_some_and(|kind| kind != "otlp") {
        return Traces::default();
    }
    if both("PROTOCOL").is_some_and(|protocol| protocol != "http/protobuf") {
        tracing::warn!(
            "OTEL_EXPORTER_OTLP_PROTOCOL: traces are sent as http/protobuf; name an endpoint that takes it"
        );
    }
    let millis = both("TIMEOUT").and_then(|value| value.parse().ok()).map(Duration::from_millis);
    match provider(agent, replica, &endpoint, both("CERTIFICATE"), millis.unwrap_or(DEFAULT_TIMEOUT)) {
        Ok(provider) => {
            let content = is_true("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT");
            tracing::info!(content, "traces are sent");
            Traces::new(agent, replica, provider, content)
        }
        Err(error) => {
            tracing::error!("no traces are sent: {error}");
            Traces::default()
        }
    }
}

fn provider(
    agent: &Agent,
    replica: &str,
    endpoint: &str,
    certificate: Option<String>,
    limit: Duration,
) -> Result<SdkTracerProvider, ExportError> {
    let wrong = || ExportError::Endpoint(endpoint.to_owned());
    let uri: Uri = endpoint.trim().parse().map_err(|_| wrong())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(wrong());
    }
    let mut options = Options::from_env();
    if let Some(path) = certificate {
        let pem = std::fs::read_to_string(path).map_err(ExportError::Certificate)?;
        options.trust = options.trust.with_pem(&pem)?;
    }
    let client = Collector { outbound: Outbound::new(&uri, options)?, runtime: Handle::current(), limit };
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client)
        .with_protocol(Protocol::HttpBinary)
        .build()?;
    Ok(SdkTracerProvider::builder()
        .with_resource(resource(agent, replica))
        .with_batch_exporter(exporter)
        .build())
}

/// Who says so. What the environment says about it wins.
fn resource(agent: &Agent, replica: &str) -> Resource {
    let mut own = vec![
        KeyValue::new("service.name", crate::config::name(agent).to_owned()),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", replica.to_owned()),
    ];
    own.extend(agent.metadata.namespace.clone().map(|name| KeyValue::new("service.namespace", name)));
    let named = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    Resource::builder_empty()
        .with_attributes(own)
        .with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())])
        .with_attributes(named.map(|name| KeyValue::new("service.name", name)))
        .build()
}

/// The collector, as the exporter knows it.
struct Collector {
    outbound: Outbound,
    runtime: Handle,
    limit: Duration,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Collector")
    }
}

#[async_trait]
impl HttpClient for Collector {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (outbound, limit) = (self.outbound.clone(), self.limit);
        // The exporter has a thread of its own; sockets and clocks are the runtime's.
        let sent = self.runtime.spawn(async move {
            let exchange = async {
                let (head, answer) = outbound.send(request.map(Spliced::from)).await?.into_parts();
                let answer = read_bounded(answer, MAX_ANSWER).await?;
                Ok::<_, OutboundError>(Response::from_parts(head, answer))
            };
            timeout(limit, exchange).await
        });
        Ok(sent.await???)
    }
}
