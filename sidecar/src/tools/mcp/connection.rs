//! The task that keeps one server connected and its list of tools fresh.

use std::sync::Arc;
use std::time::Duration;

use holdfast_crds::ToolServer;
use rand::Rng;
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, Implementation, PaginatedRequestParams, ProtocolVersion,
    SubscriptionFilter, Tool,
};
use rmcp::service::{
    ClientLifecycleMode, NotificationContext, Peer, RoleClient, RunningService, ServiceError,
    serve_client_with_lifecycle,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::common::client_side_sse::ExponentialBackoff;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::super::{Safety, arguments};
use super::Listed;
use super::http::{MAX_ANSWER, McpHttp};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Servers may change their tools without saying so.
const LIST_AGAIN: Duration = Duration::from_secs(300);
const LOOK_AGAIN: Duration = Duration::from_secs(2);
const MAX_PAGES: usize = 100;
const MAX_TOOLS: usize = 1000;
/// As many as a replica may have calls, and a few more.
const MAX_CONCURRENT_REQUESTS: usize = 1024;

pub(super) type Client = RunningService<RoleClient, Listener>;

/// What is known of a server.
#[derive(Clone, Default)]
pub(super) struct State {
    /// Steps with every change of `tools` or `listed`.
    pub(super) revision: u64,
    /// Kept when the server goes away.
    pub(super) tools: Arc<Vec<Arc<Listed>>>,
    /// It has told its tools at least once.
    pub(super) listed: bool,
    pub(super) client: Option<Arc<Client>>,
    /// Why it is not connected.
    pub(super) trouble: Option<String>,
}

pub(super) struct Connection {
    pub(super) manifest: ToolServer,
    pub(super) http: McpHttp,
    pub(super) publish: watch::Sender<State>,
    pub(super) again: Arc<Notify>,
}

/// Hears what a server says unasked.
pub(super) struct Listener {
    tools_changed: Arc<Notify>,
}

impl ClientHandler for Listener {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.tools_changed.notify_one();
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("holdfast", env!("CARGO_PKG_VERSION")),
        )
    }
}

impl Connection {
    /// Connects, and again whenever the connection is lost, for ever.
    pub(super) async fn keep(self) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.connect().await {
                Ok((client, tools_changed)) => {
                    pause = FIRST_PAUSE;
                    self.stay(&client, &tools_changed).await;
                    // Calls that are under way keep the client until they end.
                    self.publish.send_modify(|state| state.client = None);
                }
                Err(why) => {
                    tracing::warn!(server = self.manifest.name, why, "the tool server is not connected");
                    self.publish.send_modify(|state| state.trouble = Some(why));
                    let spread = pause.mul_f64(rand::rng().random_range(0.5..=1.0));
                    // Whoever needs the server now does not wait for the end of a long pause, but never for none at all.
                    sleep(spread.min(FIRST_PAUSE)).await;
                    let _ = timeout(spread.saturating_sub(FIRST_PAUSE), self.again.notified()).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn connect(&self) -> Result<(Arc<Client>, Arc<Notify>), String> {
        let mut config = StreamableHttpClientTransportConfig::with_uri(self.manifest.mcp.url.as_str())
            .max_concurrent_requests(MAX_CONCURRENT_REQUESTS)
            .max_sse_event_size(MAX_ANSWER);
        let mut backoff = ExponentialBackoff::default();
        backoff.max_delay = Some(LONGEST_PAUSE);
        config.retry_config = Arc::new(backoff);
        let transport = StreamableHttpClientTransport::with_client(self.http.clone(), config);
        let tools_changed = Arc::new(Notify::new());
        let listener = Listener { tools_changed: Arc::clone(&tools_changed) };
        let lifecycle = ClientLifecycleMode::Auto {
            preferred_versions: vec![ProtocolVersion::LATEST],
            legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
        };
        let connecting = serve_client_with_lifecycle(listener, transport, lifecycle);
        let client = timeout(CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| format!("no handshake within {} s", CONNECT_TIMEOUT.as_secs()))?
            .map_err(|error| words(&error))?;
        let client = Arc::new(client);
        let tools = self.list(client.peer()).await?;
        tracing::info!(server = self.manifest.name, tools = tools.len(), "the tool server is connected");
        self.publish.send_modify(|state| {
            *state = State {
                revision: state.revision + 1,
                tools: Arc::new(tools),
                listed: true,
                client: Some(Arc::clone(&client)),
                trouble: None,
            };
        });
        Ok((client, tools_changed))
    }

    /// Returns when the connection is of no use any more.
    async fn stay(&self, client: &Arc<Client>, tools_changed: &Notify) {
        let peer = client.peer();
        let mut subscribed = std::pin::pin!(subscribe(peer, tools_changed));
        let mut list_again = std::pin::pin!(sleep(LIST_AGAIN));
        loop {
            tokio::select! {
                () = self.again.notified() => return,
                () = sleep(LOOK_AGAIN) => {
                    if client.is_closed() || peer.is_transport_closed() {
                        return;
                    }
                    continue;
                }
                never = &mut subscribed => match never {},
                () = tools_changed.notified() => {}
                () = &mut list_again => {}
            }
            list_again.set(sleep(LIST_AGAIN));
            match self.list(peer).await {
                Ok(tools) => self.publish.send_modify(|state| {
                    state.revision += 1;
                    state.tools = Arc::new(tools);
                }),
                Err(why) => {
                    tracing::warn!(
                        server = self.manifest.name,
                        why,
                        "the tool server did not tell its tools"
                    );
                    return;
                }
            }
        }
    }

    async fn list(&self, peer: &Peer<RoleClient>) -> Result<Vec<Arc<Listed>>, String> {
        let listing = async {
            let mut tools = Vec::new();
            let mut cursor = None;
            for _ in 0..MAX_PAGES {
                let page =
                    peer.list_tools(Some(PaginatedRequestParams::default().with_cursor(cursor))).await?;
                tools.extend(page.tools);
                cursor = page.next_cursor;
                if cursor.is_none() || tools.len() > MAX_TOOLS {
                    break;
                }
            }
            Ok::<_, ServiceError>(tools)
        };
        let tools = timeout(LIST_TIMEOUT, listing)
            .await
            .map_err(|_| format!("no list of tools within {} s", LIST_TIMEOUT.as_secs()))?
            .map_err(|error| words(&error))?;
        let allow = &self.manifest.mcp.allow;
        let allowed = |tool: &Tool| allow.is_empty() || allow.iter().any(|name| *name == tool.name);
        Ok(tools
            .into_iter()
            .filter(allowed)
            .take(MAX_TOOLS)
            .map(|tool| Arc::new(self.listed(tool)))
            .collect())
    }

    fn listed(&self, tool: Tool) -> Listed {
        let safety = self.safety(&tool);
        let mut schema = Arc::unwrap_or_clone(tool.input_schema);
        let required = arguments::required(&schema);
        complete(&mut schema);
        let schema = serde_json::value::to_raw_value(&schema).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Listed {
            description: tool.description.map(String::from).or(tool.title).unwrap_or_default(),
            name: tool.name.into_owned(),
            schema: schema.into(),
            required,
            safety,
        }
    }

    /// The manifest's word; where it has none, the server's if it is trusted; else the worst.
    fn safety(&self, tool: &Tool) -> Safety {
        if let Some(written) = self.manifest.safety.get(tool.name.as_ref()) {
            return (*written).into();
        }
        let hints = tool.annotations.as_ref().filter(|_| self.manifest.mcp.trust_annotations);
        match hints {
            Some(hints) if hints.read_only_hint == Some(true) => Safety::ReadOnly,
            Some(hints) if hints.idempotent_hint == Some(true) => Safety::Idempotent,
            _ => Safety::Unsafe,
        }
    }
}

/// Servers of the newer era tell of changes only to those who ask for it.
async fn subscribe(peer: &Peer<RoleClient>, tools_changed: &Notify) -> std::convert::Infallible {
    let changes = peer.peer_info().is_some_and(|info| {
        let tools = info.capabilities.tools.as_ref();
        !info.protocol_version.has_initialize() && tools.and_then(|tools| tools.list_changed) == Some(true)
    });
    if !changes {
        return std::future::pending().await;
    }
    loop {
        let wanted = SubscriptionFilter::builder().tools_list_changed().build();
        match peer.listen(wanted).await {
            Ok(mut subscription) => {
                while let Ok(Some(_)) = subscription.next().await {
                    tools_changed.notify_one();
                }
                // Whatever was said between two subscriptions was not heard.
                tools_changed.notify_one();
            }
            Err(error) => tracing::debug!(why = words(&error), "no subscription to changes of tools"),
        }
        sleep(LONGEST_PAUSE).await;
    }
}

/// Providers refuse schemas that do not say they are objects, or have no list of properties.
fn complete(schema: &mut Map<String, Value>) {
    schema.entry("type").or_insert_with(|| json!("object"));
    schema.entry("properties").or_insert_with(|| json!({}));
}

/// An error with its causes, bounded: servers answer with whole pages.
pub(super) fn words(error: &(dyn std::error::Error + 'static)) -> String {
    const LONGEST: usize = 300;
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let more = next.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = next.source();
    }
    if text.chars().count() > LONGEST {
        text = text.chars().take(LONGEST).chain(['…']).collect();
    }
    text
}
