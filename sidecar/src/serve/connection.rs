//! Connections: accepted, bounded in time, each serving one request after another.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use http::HeaderValue;
use http::header::CONNECTION;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::open::{Counted, OpenRequests};

/// How long a connection may be silent between two requests or within a request's head. Longer than the common load
/// balancers' own idle time, so that it is they who close.
const IDLE: Duration = Duration::from_secs(75);
/// How long a client may take no byte of its answer before it is given up.
pub const STALLED: Duration = Duration::from_secs(30);
/// A pause when no connection can be accepted, for example for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Both ends of a connection.
#[derive(Debug, Clone, Copy)]
pub struct Peers {
    pub remote: SocketAddr,
    pub local: SocketAddr,
}

pub struct Port {
    listener: TcpListener,
    open: Arc<OpenRequests>,
    closing: CancellationToken,
    /// How long a client may take no byte of its answer.
    stalled: Duration,
}

impl Port {
    pub fn new(
        listener: TcpListener,
        open: Arc<OpenRequests>,
        closing: CancellationToken,
        stalled: Duration,
    ) -> Self {
        Self { listener, open, closing, stalled }
    }

    /// Accepts until it is told to close; then ends idle connections and waits for the others.
    pub async fn serve<A, F>(self, answer: A)
    where
        A: Fn(Request, Peers) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response> + Send + 'static,
    {
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = self.closing.cancelled() => break,
                accepted = self.listener.accept() => accepted,
            };
            let (stream, remote) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Small frames must not wait for others. Where it cannot be set, they only come later.
            let _ = stream.set_nodelay(true);
            let Ok(local) = stream.local_addr() else { continue };
            let (answer, open, closing) = (answer.clone(), Arc::clone(&self.open), self.closing.clone());
            let stream = Patient::new(stream, self.stalled);
            connections.spawn(hold(stream, Peers { remote, local }, answer, open, closing));
        }
        drop(self.listener);
        connections.close();
        connections.wait().await;
    }
}

async fn hold<A, F>(
    stream: Patient,
    peers: Peers,
    answer: A,
    open: Arc<OpenRequests>,
    closing: CancellationToken,
) where
    A: Fn(Request, Peers) -> F + Clone + Send + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    // A connection made after that brings a request of its own, and is closed by its answer.
    let idle_end = (!open.idle_end().is_cancelled()).then(|| open.idle_end().clone());
    let idle_end = async move {
        match idle_end {
            Some(end) => end.cancelled_owned().await,
            None => std::future::pending().await,
        }
    };
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let guard = open.enter();
        let answered = answer(request.map(Body::new), peers);
        let open = Arc::clone(&open);
        async move {
            let mut response = answered.await;
            if open.draining() {
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| Counted::new(body, guard)))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        biased;
        // What has come in is read before its connection counts as idle.
        ended = connection.as_mut() => ended,
        () = idle_end => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}

/// A stream whose other end may be slow, but must not stand still.
struct Patient {
    stream: TcpStream,
    patience: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn new(stream: TcpStream, patience: Duration) -> Self {
        Self { stream, patience, stalled: None }
    }

    fn unless_stalled<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(self.patience)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.unless_stalled(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.unless_stalled(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
