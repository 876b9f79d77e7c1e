//! A proxy before the API server that fails as it is told: errors, silence, broken connections.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use kube::{Client, client::Body};
use tokio::{net::TcpListener, task::JoinHandle};

type Answer = Response<UnsyncBoxBody<bytes::Bytes, anyhow::Error>>;

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Status(u16),
    Silence,
    /// Done, but the answer never arrives.
    LostAnswer,
}

#[derive(Debug, Clone)]
struct Plan {
    method: Method,
    path: String,
    fault: Fault,
    times: usize,
    seen: usize,
}

#[derive(Clone)]
pub struct Proxy {
    pub port: u16,
    plans: Arc<Mutex<Vec<Plan>>>,
    connections: Arc<Mutex<Vec<JoinHandle<()>>>>,
    _accept: Arc<Abort>,
}

struct Abort(JoinHandle<()>);

impl Drop for Abort {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Proxy {
    pub async fn start(client: Client) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let plans: Arc<Mutex<Vec<Plan>>> = Arc::default();
        let connections: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
        let (told, open) = (Arc::clone(&plans), Arc::clone(&connections));
        let accept = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (client, plans) = (client.clone(), Arc::clone(&told));
                let connection = tokio::spawn(async move {
                    let service = service_fn(|request| answer(client.clone(), Arc::clone(&plans), request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
                open.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
            }
        });
        Ok(Self { port, plans, connections, _accept: Arc::new(Abort(accept)) })
    }

    /// The next so many requests of this kind go wrong.
    pub fn fail(&self, method: Method, path: &str, fault: Fault, times: usize) {
        let plan = Plan { method, path: path.to_owned(), fault, times, seen: 0 };
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).push(plan);
    }

    /// How often it went wrong so far.
    pub fn failed(&self, path: &str) -> usize {
        let plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.iter().filter(|plan| plan.path == path).map(|plan| plan.seen).sum()
    }

    pub fn heal(&self) {
        self.plans.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Every connection there is breaks.
    pub fn cut(&self) {
        for connection in self.connections.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            connection.abort();
        }
    }
}

fn planned(plans: &Mutex<Vec<Plan>>, request: &Request<Incoming>) -> Option<Fault> {
    let mut plans = plans.lock().unwrap_or_else(PoisonError::into_inner);
    let plan = plans.iter_mut().find(|plan| {
        plan.seen < plan.times
            && plan.method == request.method()
            && request.uri().path().ends_with(&plan.path)
    })?;
    plan.seen += 1;
    Some(plan.fault)
}

async fn answer(client: Client, plans: Arc<Mutex<Vec<Plan>>>, request: Request<Incoming>) -> Result<Answer> {
    let fault = planned(&plans, &request);
    match fault {
        Some(Fault::Status(code)) => {
            let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "told to fail", "reason": "InternalError", "code": code});
            let body = Full::from(status.to_string()).map_err(anyhow::Error::from).boxed_unsync();
            let answer = Response::builder()
                .status(StatusCode::from_u16(code)?)
                .header("content-type", "application/json");
            return Ok(answer.body(body)?);
        }
        Some(Fault::Silence) => std::future::pending::<()>().await,
        Some(Fault::LostAnswer) | None => {}
    }
    let (mut parts, body) = request.into_parts();
    parts.headers.remove("authorization");
    parts.headers.remove("host");
    let body = body.collect().await?.to_bytes();
    let answered = client.send(Request::from_parts(parts, Body::from(body.to_vec()))).await?;
    if fault == Some(Fault::LostAnswer) {
        std::future::pending::<()>().await;
    }
    Ok(answered.map(|body| body.map_err(anyhow::Error::from).boxed_unsync()))
}
