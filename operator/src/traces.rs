//! What the operator does, as spans: one a look at an Agent, one a step in it. They go to the OTLP endpoint of the
//! environment, as protobuf over HTTP; where none is set nothing is made. A collector that is away costs the spans and
//! nothing else.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use opentelemetry::{
    Context, KeyValue,
    trace::{
        Span as _, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _, TracerProvider as _,
    },
};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::{
    Resource,
    resource::{EnvResourceDetector, TelemetryResourceDetector},
    trace::{SdkTracer, SdkTracerProvider},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use tokio::{runtime::Handle, time::timeout};

use crate::live::Place;

/// What a collector has to say is short.
const MAX_ANSWER: usize = 64 << 10;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum TraceError {
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE: {0}")]
    Certificate(rustls::pki_types::pem::Error),
    #[error("OTEL_EXPORTER_OTLP_CERTIFICATE: {0}")]
    Root(rustls::Error),
    #[error(transparent)]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// Makes spans, or does not. Cheap to clone.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<(SdkTracerProvider, SdkTracer)>>);

impl Traces {
    /// What the environment asks for. A mistake in it is logged and costs the traces. Call it inside the runtime.
    pub fn from_env(instance: &str) -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let both = |name: &str| {
            set(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or_else(|| set(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || set("OTEL_TRACES_EXPORTER").is_some_and(|kind| kind != "otlp");
        if both("ENDPOINT").is_none() || off {
            return Self::default();
        }
        let limit = both("TIMEOUT").and_then(|value| value.parse().ok()).map(Duration::from_millis);
        match provider(instance, both("CERTIFICATE").as_deref(), limit.unwrap_or(DEFAULT_TIMEOUT)) {
            Ok(provider) => {
                tracing::info!("traces are sent");
                let tracer = provider.tracer("holdfast-operator");
                Self(Some(Arc::new((provider, tracer))))
            }
            Err(error) => {
                tracing::error!("no traces are sent: {error}");
                Self::default()
            }
        }
    }

    /// One look at one Agent.
    pub fn reconcile(&self, agent: &Place) -> Span {
        let Some(on) = &self.0 else { return Span(None) };
        let attributes = vec![
            KeyValue::new("k8s.namespace.name", agent.namespace().to_owned()),
            KeyValue::new("holdfast.agent", agent.name().to_owned()),
        ];
        let span =
            SpanBuilder::from_name("reconcile").with_kind(SpanKind::Internal).with_attributes(attributes);
        let span = on.1.build_with_context(span, &Context::new());
        Span(Some((on.1.clone(), Context::new().with_span(span))))
    }

    /// Sends what has not been sent. Never for longer than `within`.
    pub async fn finish(&self, within: Duration) {
        let Some(on) = self.0.clone() else { return };
        // The provider waits for its own thread, so it is waited for on one.
        let sent = tokio::task::spawn_blocking(move || on.0.shutdown_with_timeout(within));
        if !matches!(timeout(within, sent).await, Ok(Ok(Ok(())))) {
            tracing::warn!("the last spans were not sent");
        }
    }
}

/// A span in the making; it ends when it is dropped.
pub struct Span(Option<(SdkTracer, Context)>);

impl Span {
    /// Does a step inside it.
    pub async fn step<T, E: Labelled>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let Some((tracer, within)) = &self.0 else { return work.await };
        let mut span = tracer.build_with_context(SpanBuilder::from_name(name), within);
        let done = work.await;
        if let Err(error) = &done {
            span.set_attribute(KeyValue::new("error.type", error.label()));
            span.set_status(Status::error(""));
        }
        done
    }

    pub fn failed(&self, error: &impl Labelled) {
        if let Some((_, within)) = &self.0 {
            within.span().set_attribute(KeyValue::new("error.type", error.label()));
            within.span().set_status(Status::error(""));
        }
    }
}

/// Whose name is one of few.
pub trait Labelled {
    fn label(&self) -> &'static str;
}

fn provider(
    instance: &str,
    certificate: Option<&str>,
    limit: Duration,
) -> Result<SdkTracerProvider, TraceError> {
    let client = Client::builder(TokioExecutor::new()).build(connector(certificate)?);
    let exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(Collector { client, runtime: Handle::current(), limit })
        .with_protocol(Protocol::HttpBinary)
        .build()?;
    let own = [
        KeyValue::new("service.name", "holdfast-operator"),
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", instance.to_owned()),
    ];
    let named = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    let resource = Resource::builder_empty()
        .with_attributes(own)
        .with_detectors(&[Box::new(TelemetryResourceDetector), Box::new(EnvResourceDetector::new())])
        .with_attributes(named.map(|name| KeyValue::new("service.name", name)))
        .build();
    Ok(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build())
}

fn connector(certificate: Option<&str>) -> Result<HttpsConnector<HttpConnector>, TraceError> {
    let mut roots = RootCertStore::empty();
    match certificate {
        None => drop(roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs)),
        Some(path) => {
            for certificate in CertificateDer::pem_file_iter(path).map_err(TraceError::Certificate)? {
                roots.add(certificate.map_err(TraceError::Certificate)?).map_err(TraceError::Root)?;
            }
        }
    }
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build())
}

/// The collector, as the exporter knows it.
struct Collector {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
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
        let (client, limit) = (self.client.clone(), self.limit);
        // The exporter has a thread of its own; sockets and clocks are the runtime's.
        let sent = self.runtime.spawn(async move {
            let exchange = async {
                let (head, answer) = client.request(request.map(Full::new)).await?.into_parts();
                let answer = Limited::new(answer, MAX_ANSWER).collect().await?.to_bytes();
                Ok::<_, HttpError>(Response::from_parts(head, answer))
            };
            timeout(limit, exchange).await
        });
        sent.await??
    }
}
