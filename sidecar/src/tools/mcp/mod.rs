//! Tools of an MCP server, reached by streamable HTTP.
//!
//! ```text
//! Server ──▶ connection   a task that connects, lists, listens for changes, and begins again
//!      └───▶ http         the protocol's requests through `outbound`
//!      └───▶ output       a result as blocks
//! ```
//!
//! A server that is away fails its tools and nothing else: what it offered stays on offer, since a tool that fails tells
//! the model more than one that has vanished.

mod connection;
mod http;
mod output;

use std::sync::Arc;
use std::time::Duration;

use ::http::Uri;
use holdfast_crds::ToolServer;
use rmcp::model::{CallToolRequestParams, JsonObject, MetaObject, RequestMetaObject};
use rmcp::service::ServiceError;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::set::{Offer, ToolConfigError};
use super::{Safety, ToolCall, ToolOutput};
use crate::outbound::{Credentials, Options, Outbound, USER_AGENT};
use crate::secrets::Secrets;
use connection::{Connection, State};
use http::McpHttp;

pub(super) const IDEMPOTENCY_KEY: &str = "holdfast.dev/idempotency-key";
const REQUEST_ID: &str = "holdfast.dev/request-id";
const ATTRIBUTES: &str = "holdfast.dev/attributes";

/// How long a call waits for a server that is not connected.
const CONNECT_PATIENCE: Duration = Duration::from_secs(3);
/// Servers close idle connections after as little as 5 s. A request on one that is just being closed could not be told from
/// one that was acted on, so ours are closed earlier.
const KEEP_IDLE: Duration = Duration::from_secs(4);

/// One tool of a server.
pub(super) struct Listed {
    /// As the server knows it.
    pub(super) name: String,
    pub(super) description: String,
    pub(super) schema: Arc<RawValue>,
    pub(super) required: Vec<String>,
    pub(super) safety: Safety,
}

pub(super) struct Server {
    name: String,
    allow: Vec<String>,
    state: watch::Receiver<State>,
    /// Asks the connection to begin again, or to stop waiting before it does.
    again: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) fn start(manifest: &ToolServer, secrets: &Secrets) -> Result<Self, ToolConfigError> {
        let server = manifest.name.clone();
        let url = &manifest.mcp.url;
        let uri: Uri = url
            .parse()
            .ok()
            .filter(|uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some())
            .ok_or_else(|| ToolConfigError::Url { server: server.clone(), url: url.clone() })?;
        let fixed = ::http::HeaderMap::from_iter([(::http::header::USER_AGENT, USER_AGENT)]);
        let credentials =
            Credentials::new(secrets.clone(), None, fixed, manifest.mcp.headers_from.clone()).map_err(
                |error| ToolConfigError::Credentials { server: server.clone(), error: error.into() },
            )?;
        let options = Options { keep_idle: KEEP_IDLE, ..Options::from_env() };
        let outbound = Outbound::new(&uri, options)
            .map_err(|error| ToolConfigError::Outbound { server: server.clone(), error: error.into() })?;
        let (publish, state) = watch::channel(State::default());
        let again = Arc::new(Notify::new());
        let connection = Connection {
            manifest: manifest.clone(),
            http: McpHttp::new(outbound, credentials),
            publish,
            again: Arc::clone(&again),
        };
        let task = tokio::spawn(connection.keep());
        Ok(Self { name: server, allow: manifest.mcp.allow.clone(), state, again, task })
    }

    pub(super) fn revision(&self) -> u64 {
        self.state.borrow().revision
    }

    pub(super) fn offer(&self) -> Offer {
        let state = self.state.borrow();
        let claims = if state.listed { Vec::new() } else { self.allow.clone() };
        Offer { server: self.name.clone(), tools: state.tools.to_vec(), claims }
    }

    /// Ends once it has been connected to, or could not be.
    pub(super) async fn tried(&self) {
        let mut state = self.state.clone();
        // The sender lives as long as the task, which ends with us.
        let _ = state.wait_for(|state| state.listed || state.trouble.is_some()).await;
    }

    pub(super) async fn call(&self, tool: &str, arguments: JsonObject, call: &ToolCall<'_>) -> ToolOutput {
        let client = match self.connected().await {
            Ok(client) => client,
            Err(why) => {
                return ToolOutput::error(format!(
                    "the tool server {:?} cannot be reached ({why}); the tool was not called",
                    self.name
                ));
            }
        };
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        params.meta = Some(meta(call));
        match client.peer().call_tool_once(params).await {
            Ok(response) => output::of(response),
            // The server's own words: it is well, and the model can do something about it.
            Err(ServiceError::McpError(error)) => ToolOutput::error(error.message.into_owned()),
            Err(error) => {
                self.again.notify_one();
                ToolOutput::error(format!(
                    "the tool server {:?} failed: {}; the tool may or may not have taken effect",
                    self.name,
                    connection::words(&error)
                ))
            }
        }
    }

    async fn connected(&self) -> Result<Arc<connection::Client>, String> {
        let mut state = self.state.clone();
        if state.borrow().client.is_none() {
            self.again.notify_one();
        }
        let ready = |state: &State| state.client.is_some();
        match tokio::time::timeout(CONNECT_PATIENCE, state.wait_for(ready)).await {
            Ok(Ok(state)) => state.client.clone().ok_or_else(|| "it is gone".to_owned()),
            _ => Err(self.state.borrow().trouble.clone().unwrap_or_else(|| "it does not answer".into())),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What travels with a call beside its arguments.
fn meta(call: &ToolCall<'_>) -> RequestMetaObject {
    let mut fields = JsonObject::new();
    fields.insert(IDEMPOTENCY_KEY.into(), call.idempotency_key.into());
    if let Some(request_id) = &call.context.request_id {
        fields.insert(REQUEST_ID.into(), request_id.clone().into());
    }
    if !call.context.attributes.is_empty() {
        let attributes = call.context.attributes.clone().into_iter().collect();
        fields.insert(ATTRIBUTES.into(), Value::Object(attributes));
    }
    let mut meta = MetaObject(fields);
    if let Some(traceparent) = &call.context.traceparent {
        meta.set_traceparent(traceparent);
    }
    if let Some(tracestate) = &call.context.tracestate {
        meta.set_tracestate(tracestate);
    }
    RequestMetaObject(meta)
}
