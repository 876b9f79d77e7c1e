//! The way to Redis: one multiplexed connection, made when it is needed and again when it is lost.
//!
//! The crate's own `ConnectionManager` reports a refused connection and a lost answer alike and never asks for new
//! credentials. A session must know which of the two it was: after the first nothing was written, after the second it
//! may have been.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::BoxStream;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::TcpKeepalive;
use redis::{AsyncConnectionConfig, Client, Cmd, Pipeline, ProtocolVersion, PushInfo, PushKind, Value};
use redis::{IntoConnectionInfo, TlsCertificates};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::fault::{Fault, after_sending, before_sending};
use crate::store::error::StoreError;

/// Whatever carries commands to the node that has a key. A cluster's or a sentinel's client is another of these.
#[async_trait]
pub trait Link: Send + Sync + 'static {
    async fn send(&self, key: &str, command: &Cmd) -> Result<Value, Fault>;
    /// Several commands in one round trip, all for keys with the tag of `key`.
    async fn send_all(&self, key: &str, commands: &Pipeline) -> Result<Vec<Value>, Fault>;
    /// Payloads of a channel, until the connection is lost.
    async fn subscribe(&self, channel: &str) -> Result<BoxStream<'static, Vec<u8>>, StoreError>;
}

#[derive(Clone, Default)]
pub struct Credentials {
    pub username: Option<String>,
    pub password: Option<String>,
}

/// Asked before every connection, so that a rotated secret is found without a restart.
pub type CredentialsSource = Arc<dyn Fn() -> Result<Credentials, String> + Send + Sync>;

#[derive(Clone)]
pub struct RedisConfig {
    /// `redis://` or `rediss://` with host, port and database.
    pub url: String,
    /// `None`: whatever the URL says.
    pub credentials: Option<CredentialsSource>,
    /// PEM; `None` trusts the public authorities.
    pub ca: Option<Vec<u8>>,
    pub connect_timeout: Duration,
    pub response_timeout: Duration,
}

impl RedisConfig {
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            credentials: None,
            ca: None,
            connect_timeout: Duration::from_secs(2),
            response_timeout: Duration::from_secs(2),
        }
    }
}

impl fmt::Debug for RedisConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may carry a password.
        f.debug_struct("RedisConfig")
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .finish_non_exhaustive()
    }
}

/// Requests go out at once; and a subscription, on which nothing is ever sent, still learns that its server is gone.
fn tcp_settings() -> TcpSettings {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    TcpSettings::default().set_nodelay(true).set_keepalive(keepalive)
}

/// One server.
pub struct Standalone {
    config: RedisConfig,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    /// Whoever waited for an attempt shares its failure, or a hundred callers would time out one after another.
    failed: Option<(Instant, StoreError)>,
}

#[derive(Clone)]
struct Open {
    connection: MultiplexedConnection,
    /// Set as soon as the socket closes, so that no command is sent into a connection known to be dead.
    lost: Arc<AtomicBool>,
}

impl Standalone {
    /// Checks what can be checked without the server.
    pub fn new(config: RedisConfig) -> Result<Self, StoreError> {
        let link = Self { config, state: Mutex::default() };
        link.client(Credentials::default())?;
        Ok(link)
    }

    fn client(&self, credentials: Credentials) -> Result<Client, StoreError> {
        // The crate's own message may repeat the URL, and the URL the password.
        let unusable = |what: &str| StoreError::Failed(format!("{what} cannot be used"));
        let info = self.config.url.as_str().into_connection_info().map_err(|_| unusable("the Redis URL"))?;
        let mut settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        if let Some(username) = credentials.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = credentials.password {
            settings = settings.set_password(password);
        }
        let info = info.set_redis_settings(settings.set_skip_set_lib_name()).set_tcp_settings(tcp_settings());
        match &self.config.ca {
            Some(ca) => {
                // The crate takes a bundle without a certificate for one that trusts nobody.
                let readable = CertificateDer::pem_slice_iter(ca).collect::<Result<Vec<_>, _>>();
                if readable.is_ok_and(|found| found.is_empty()) {
                    return Err(unusable("the CA bundle has no certificate in PEM and"));
                }
                let certificates = TlsCertificates { client_tls: None, root_cert: Some(ca.clone()) };
                Client::build_with_tls(info, certificates)
                    .map_err(|_| unusable("the CA bundle, or the URL it came with,"))
            }
            None => Client::open(info).map_err(|_| unusable("the Redis URL")),
        }
    }

    fn client_with_credentials(&self) -> Result<Client, StoreError> {
        let credentials = match &self.config.credentials {
            Some(source) => source().map_err(StoreError::Unavailable)?,
            None => Credentials::default(),
        };
        self.client(credentials)
    }

    async fn connect(&self) -> Result<Open, StoreError> {
        let client = self.client_with_credentials()?;
        let lost = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&lost);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.config.connect_timeout))
            .set_response_timeout(Some(self.config.response_timeout))
            .set_pipeline_buffer_size(1024)
            .set_push_sender(move |push: PushInfo| -> Result<(), ()> {
                if push.kind == PushKind::Disconnection {
                    flag.store(true, Ordering::Release);
                }
                Ok(())
            });
        match client.get_multiplexed_async_connection_with_config(&config).await {
            Ok(connection) => Ok(Open { connection, lost }),
            Err(error) => Err(before_sending(&error)),
        }
    }

    async fn open(&self) -> Result<Open, StoreError> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if let Some(open) = state.open.as_ref().filter(|open| !open.lost.load(Ordering::Acquire)) {
            return Ok(open.clone());
        }
        state.open = None;
        if let Some((at, error)) = state.failed.as_ref().filter(|(at, _)| *at > asked) {
            tracing::trace!(age = ?at.elapsed(), "sharing a failed connection attempt");
            return Err(error.clone());
        }
        match self.connect().await {
            Ok(open) => {
                state.failed = None;
                state.open = Some(open.clone());
                Ok(open)
            }
            Err(error) => {
                state.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }

    /// A connection that did not answer may be cut without either end knowing: the next request takes a new one.
    /// Those already on it still get their answers.
    async fn give_up(&self, open: &Open) {
        open.lost.store(true, Ordering::Release);
        let mut state = self.state.lock().await;
        if state.open.as_ref().is_some_and(|current| Arc::ptr_eq(&current.lost, &open.lost)) {
            state.open = None;
        }
    }

    async fn answered<T>(&self, open: &Open, result: redis::RedisResult<T>) -> Result<T, Fault> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => {
                if error.is_io_error() || error.is_unrecoverable_error() {
                    self.give_up(open).await;
                }
                Err(after_sending(&error))
            }
        }
    }
}

#[async_trait]
impl Link for Standalone {
    async fn send(&self, _key: &str, command: &Cmd) -> Result<Value, Fault> {
        let mut open = self.open().await?;
        let result = command.query_async(&mut open.connection).await;
        self.answered(&open, result).await
    }

    async fn send_all(&self, _key: &str, commands: &Pipeline) -> Result<Vec<Value>, Fault> {
        let mut open = self.open().await?;
        let result = commands.query_async(&mut open.connection).await;
        self.answered(&open, result).await
    }

    async fn subscribe(&self, channel: &str) -> Result<BoxStream<'static, Vec<u8>>, StoreError> {
        let client = self.client_with_credentials()?;
        let subscribed = async {
            let mut subscription = client.get_async_pubsub().await?;
            subscription.subscribe(channel).await?;
            Ok(subscription.into_on_message())
        };
        match timeout(self.config.connect_timeout, subscribed).await {
            Ok(Ok(messages)) => Ok(messages.map(|message| message.get_payload_bytes().to_vec()).boxed()),
            Ok(Err(error)) => Err(before_sending(&error)),
            Err(_) => Err(StoreError::Unavailable("Redis took too long to connect to".to_owned())),
        }
    }
}
