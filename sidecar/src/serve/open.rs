//! The requests that are open: counted from their head to the last byte of their answer.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub struct OpenRequests {
    open: AtomicUsize,
    draining: AtomicBool,
    changed: Notify,
    /// Connections with nothing to do are to close.
    idle_end: CancellationToken,
}

impl OpenRequests {
    pub fn enter(self: &Arc<Self>) -> OpenRequest {
        self.open.fetch_add(1, Ordering::AcqRel);
        if self.draining() {
            self.changed.notify_waiters();
        }
        OpenRequest(Arc::clone(self))
    }

    pub fn count(&self) -> usize {
        self.open.load(Ordering::Acquire)
    }

    /// From now on every answer closes its connection.
    pub fn start_draining(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub fn draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Ends every connection that is between two requests. Whoever used one during the drain was told to close it by the
    /// answer; whoever did not would otherwise meet a refusal on it, where a new connection finds another replica.
    pub fn end_idle(&self) {
        self.idle_end.cancel();
    }

    pub fn idle_end(&self) -> &CancellationToken {
        &self.idle_end
    }

    /// Waits until no request has been open for a while: whoever was just sending one is still heard.
    pub async fn quiet(&self, length: Duration) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.count() > 0 {
                changed.await;
            } else if timeout(length, changed).await.is_err() {
                return;
            }
        }
    }
}

/// One open request; dropped with the end of its answer.
pub struct OpenRequest(Arc<OpenRequests>);

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::AcqRel);
        if self.0.draining() {
            self.0.changed.notify_waiters();
        }
    }
}

/// An answer's body, which keeps its request open.
pub struct Counted {
    body: Body,
    _request: OpenRequest,
}

impl Counted {
    pub fn new(body: Body, request: OpenRequest) -> Self {
        Self { body, _request: request }
    }
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
