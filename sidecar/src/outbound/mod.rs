//! What leaves the process by HTTP: one pooled client for model providers and tool servers.
//!
//! It knows sockets, TLS and proxies; nothing of what is said through it. It never retries: whether a request may be
//! sent twice is for the caller to know. No error shows a header, a body or a query.
//!
//! ```text
//! Outbound ── connect (TCP, HTTP proxies, tls)      one pool of idle connections a client
//!     ├────── Credentials                           headers from Secrets
//!     ├────── Spliced                               a request body made of shared pieces
//!     └────── read_bounded, Events                  an answer, whole or as server-sent events
//! ```

mod body;
mod connect;
mod credentials;
mod sse;
mod tls;

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::PROXY_AUTHORIZATION;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};

pub use body::Spliced;
use connect::Connector;
pub use credentials::{CredentialError, Credentials, KeyHeader};
pub use sse::{Event, Events};
pub use tls::Trust;

/// Who we are, to whom it may concern.
pub const USER_AGENT: http::HeaderValue =
    http::HeaderValue::from_static(concat!("holdfast/", env!("CARGO_PKG_VERSION")));

#[derive(Debug, thiserror::Error)]
pub enum OutboundError {
    #[error("no connection: {0}")]
    Connect(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("the answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error("the certificates to trust are not usable: {0}")]
    Certificates(String),
}

/// How a client reaches out.
#[derive(Debug)]
pub struct Options {
    pub trust: Trust,
    pub proxies: Matcher,
    /// How long an idle connection is kept for the next request.
    pub keep_idle: Duration,
}

impl Options {
    /// The proxies of the environment (`HTTPS_PROXY`, `HTTP_PROXY`, `NO_PROXY`, …) and the public authorities.
    pub fn from_env() -> Self {
        Self { trust: Trust::default(), proxies: Matcher::from_env(), keep_idle: Duration::from_secs(60) }
    }
}

#[derive(Clone)]
pub struct Outbound {
    client: Client<Connector, Spliced>,
    proxies: Arc<Matcher>,
}

impl Outbound {
    /// A client for addresses of `uri`'s kind: certificates are loaded only where the scheme asks for them.
    pub fn new(uri: &Uri, options: Options) -> Result<Self, OutboundError> {
        let proxies = Arc::new(options.proxies);
        let through_tls = uri.scheme_str() == Some("https")
            || proxies.intercept(uri).is_some_and(|proxy| proxy.uri().scheme_str() == Some("https"));
        let tls = if through_tls { Some(options.trust.client_config()?) } else { None };
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(options.keep_idle)
            .build(Connector::new(tls, Arc::clone(&proxies)));
        Ok(Self { client, proxies })
    }

    pub async fn send(&self, mut request: Request<Spliced>) -> Result<Response<Incoming>, OutboundError> {
        // Inside a tunnel the proxy has had its credentials; only plain HTTP shows it every request.
        if request.uri().scheme_str() == Some("http")
            && let Some(proxy) = self.proxies.intercept(request.uri())
            && let Some(credentials) = proxy.basic_auth()
        {
            request.headers_mut().insert(PROXY_AUTHORIZATION, credentials.clone());
        }
        self.client.request(request).await.map_err(|error| {
            let why = causes(&error);
            if error.is_connect() { OutboundError::Connect(why) } else { OutboundError::Broken(why) }
        })
    }
}

/// Everything of an answer, if it is not larger than `limit`.
pub async fn read_bounded(mut body: Incoming, limit: usize) -> Result<Bytes, OutboundError> {
    let mut first = Bytes::new();
    let mut rest = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| OutboundError::Broken(causes(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if first.len() + rest.len() + data.len() > limit {
            return Err(OutboundError::TooLarge(limit));
        }
        if first.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&data);
        }
    }
    // Most answers come in one piece and are not copied.
    if rest.is_empty() {
        return Ok(first);
    }
    let mut whole = BytesMut::with_capacity(first.len() + rest.len());
    whole.extend_from_slice(&first);
    whole.extend_from_slice(&rest);
    Ok(whole.freeze())
}

/// An error with what caused it; hyper's own words alone say nothing.
fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = error.source().or(Some(error));
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.ends_with(&words) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}
