//! How a connection is made: straight, or through the proxy the environment names; plain, or with TLS.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio_rustls::TlsConnector;
use tower::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    tls: Option<Arc<ClientConfig>>,
    proxies: Arc<Matcher>,
}

impl Connector {
    pub(super) fn new(tls: Option<Arc<ClientConfig>>, proxies: Arc<Matcher>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        Self { tcp, tls, proxies }
    }

    async fn connect(mut self, to: Uri) -> Result<Conn, BoxError> {
        let secure = to.scheme_str() == Some("https");
        let Some(proxy) = self.proxies.intercept(&to) else {
            let tcp = self.tcp.call(to.clone()).await?;
            return if secure { self.over_tls(&to, tcp).await } else { Ok(Conn::new(tcp, false)) };
        };
        let to_proxy = ToProxy { tcp: self.tcp.clone(), tls: self.tls.clone() };
        if !secure {
            let mut conn = { to_proxy }.call(proxy.uri().clone()).await?;
            conn.proxied = true;
            return Ok(conn);
        }
        let mut tunnel = Tunnel::new(proxy.uri().clone(), to_proxy);
        if let Some(credentials) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(credentials.clone());
        }
        let tunnelled = tunnel.call(to.clone()).await?;
        self.over_tls(&to, tunnelled).await
    }

    async fn over_tls<T>(&self, to: &Uri, inner: T) -> Result<Conn, BoxError>
    where
        T: Read + Write + Send + Unpin + 'static,
    {
        over_tls(self.tls.as_ref(), to, inner).await
    }
}

async fn over_tls<T>(tls: Option<&Arc<ClientConfig>>, to: &Uri, inner: T) -> Result<Conn, BoxError>
where
    T: Read + Write + Send + Unpin + 'static,
{
    let config = tls.ok_or("this client was made for plain HTTP")?;
    let host = to.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned())?;
    let handshake = TlsConnector::from(Arc::clone(config)).connect(name, TokioIo::new(inner));
    let stream = tokio::time::timeout(CONNECT_TIMEOUT, handshake)
        .await
        .map_err(|_| "the TLS handshake timed out")??;
    Ok(Conn::new(TokioIo::new(stream), false))
}

impl Service<Uri> for Connector {
    type Response = Conn;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Conn, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(self.clone().connect(to))
    }
}

/// The first leg of a tunnel.
#[derive(Clone)]
struct ToProxy {
    tcp: HttpConnector,
    tls: Option<Arc<ClientConfig>>,
}

impl Service<Uri> for ToProxy {
    type Response = Conn;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Conn, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, proxy: Uri) -> Self::Future {
        let Self { mut tcp, tls } = self.clone();
        Box::pin(async move {
            match proxy.scheme_str() {
                Some("http") => Ok(Conn::new(tcp.call(proxy).await?, false)),
                Some("https") => {
                    let inner = tcp.call(proxy.clone()).await?;
                    over_tls(tls.as_ref(), &proxy, inner).await
                }
                _ => Err("only http:// and https:// proxies are supported; change HTTPS_PROXY or HTTP_PROXY"
                    .into()),
            }
        })
    }
}

trait Io: Read + Write + Send + Unpin {}
impl<T: Read + Write + Send + Unpin> Io for T {}

/// A connection of any kind.
pub(super) struct Conn {
    io: Box<dyn Io>,
    /// A proxy reads the requests themselves and is told the whole address.
    proxied: bool,
}

impl Conn {
    fn new(io: impl Read + Write + Send + Unpin + 'static, proxied: bool) -> Self {
        Self { io: Box::new(io), proxied }
    }
}

impl Connection for Conn {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.proxied)
    }
}

impl Read for Conn {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_read(cx, buf)
    }
}

impl Write for Conn {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.io).poll_write_vectored(cx, bufs)
    }
}
