//! The small HTTP server under the fakes: it may also hang up without a word, which no framework lets one do.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Closes the connection without a word, or in the middle of one.
#[derive(Debug, thiserror::Error)]
#[error("hung up")]
pub struct HangUp;

pub type FakeBody = UnsyncBoxBody<Bytes, HangUp>;

pub fn plain(status: StatusCode, content_type: &'static str, body: &str) -> Response<FakeBody> {
    let body = Full::new(Bytes::from(body.to_owned())).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Serves for ever. Dropping it ends its connections too: a fake that is gone must not go on answering.
pub async fn serve<H, F>(listener: TcpListener, handle: H)
where
    H: Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response<FakeBody>, HangUp>> + Send + 'static,
{
    let handle = Arc::new(handle);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let _ = stream.set_nodelay(true);
                let handle = Arc::clone(&handle);
                connections.spawn(async move {
                    let service = hyper::service::service_fn(move |request| handle(request));
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
