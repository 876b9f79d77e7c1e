//! All tools of an agent under one set of names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use holdfast_crds::{Agent, Provider};

use super::files::FileTools;
use super::mcp::{Listed, Server};
use super::{ToolCall, ToolOutput, ToolSpec, Tools, arguments, todo};
use crate::outbound::{CredentialError, OutboundError};
use crate::secrets::Secrets;
use crate::workspace::Workspace;

/// How long [`Tools::settle`] waits at most.
const SETTLE: Duration = Duration::from_secs(3);
const LONGEST_NAME: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum ToolConfigError {
    #[error(
        "spec.tools[{server}].mcp.url {url:?} is no address; write http:// or https://, a host and a path"
    )]
    Url { server: String, url: String },
    #[error("spec.tools[{server}]: {error}")]
    Credentials { server: String, error: Box<CredentialError> },
    #[error("spec.tools[{server}]: {error}")]
    Outbound { server: String, error: Box<OutboundError> },
}

/// The tools a manifest names. Servers are connected to in the background, from now on: call this inside the runtime.
pub fn from_manifest(
    agent: &Agent,
    secrets: &Secrets,
    workspace: Option<Workspace>,
) -> Result<Arc<dyn Tools>, ToolConfigError> {
    let servers = agent.spec.tools.iter().map(|server| Server::start(server, secrets));
    let servers = servers.collect::<Result<Vec<_>, _>>()?;
    // Many a small model refuses any request that mentions tools: an agent without tools of its own mentions none.
    let scripted = agent.spec.model.provider == Provider::Scripted;
    let has_tools = !servers.is_empty() || workspace.is_some() || scripted;
    let built_in = agent.spec.loop_.todo_write.unwrap_or(has_tools);
    Ok(Arc::new(ToolSet::new(servers, built_in, workspace.map(FileTools::new))))
}

pub struct ToolSet {
    servers: Vec<Server>,
    built_in: bool,
    files: Option<FileTools>,
    /// Made anew when a server's list has changed.
    view: RwLock<(u64, Arc<View>)>,
}

#[derive(Default)]
struct View {
    specs: Arc<Vec<ToolSpec>>,
    routes: BTreeMap<String, Route>,
}

#[derive(Clone)]
struct Route {
    server: usize,
    tool: Arc<Listed>,
}

impl ToolSet {
    pub(super) fn new(servers: Vec<Server>, built_in: bool, files: Option<FileTools>) -> Self {
        let set = Self { servers, built_in, files, view: RwLock::default() };
        let view = set.look();
        *set.view.write().unwrap_or_else(PoisonError::into_inner) = view;
        set
    }

    fn revision(&self) -> u64 {
        // Each only ever grows, so their sum stands still only where all of them do.
        self.servers.iter().map(Server::revision).sum()
    }

    fn view(&self) -> Arc<View> {
        let (revision, view) = self.view.read().unwrap_or_else(PoisonError::into_inner).clone();
        if revision == self.revision() {
            return view;
        }
        let fresh = self.look();
        let view = Arc::clone(&fresh.1);
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        view
    }

    fn look(&self) -> (u64, Arc<View>) {
        let revision = self.revision();
        let files = self.files.iter().flat_map(FileTools::specs);
        let built_in = self.built_in.then(todo::spec).into_iter().chain(files).collect();
        let offers: Vec<Offer> = self.servers.iter().map(Server::offer).collect();
        (revision, Arc::new(View::of(built_in, &offers)))
    }
}

/// What a server has, or is known to have without being asked.
pub(super) struct Offer {
    pub(super) server: String,
    pub(super) tools: Vec<Arc<Listed>>,
    /// Names that are this server's though it has not told its tools yet.
    pub(super) claims: Vec<String>,
}

impl View {
    /// A name belongs to whoever comes first: built-in tools, then the servers in the order of the manifest. Whoever comes
    /// later is called `server__tool`.
    fn of(built_in: Vec<ToolSpec>, offers: &[Offer]) -> Self {
        let mut taken: BTreeSet<String> = built_in.iter().map(|spec| spec.name.clone()).collect();
        let mut specs = built_in;
        let mut routes = BTreeMap::new();
        for (server, offer) in offers.iter().enumerate() {
            for tool in &offer.tools {
                let plain = sayable(&tool.name);
                let name = if taken.contains(&plain) { prefixed(&offer.server, &tool.name) } else { plain };
                if !taken.insert(name.clone()) {
                    tracing::warn!(
                        server = offer.server,
                        tool = tool.name,
                        "a second tool of this name is left out"
                    );
                    continue;
                }
                specs.push(ToolSpec {
                    name: name.clone(),
                    description: tool.description.clone(),
                    schema: Arc::clone(&tool.schema),
                    safety: tool.safety,
                });
                routes.insert(name, Route { server, tool: Arc::clone(tool) });
            }
            taken.extend(offer.claims.iter().map(|name| sayable(name)));
        }
        Self { specs: Arc::new(specs), routes }
    }
}

/// `name` with what providers do not take replaced.
fn sayable(name: &str) -> String {
    let fine = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' };
    name.chars().map(fine).take(LONGEST_NAME).collect()
}

fn prefixed(server: &str, tool: &str) -> String {
    sayable(&format!("{server}__{tool}"))
}

#[async_trait]
impl Tools for ToolSet {
    fn specs(&self) -> Arc<Vec<ToolSpec>> {
        Arc::clone(&self.view().specs)
    }

    async fn settle(&self) {
        // Whoever has not answered by then is offered when it does.
        let _ = tokio::time::timeout(SETTLE, join_all(self.servers.iter().map(Server::tried))).await;
    }

    async fn run(&self, call: ToolCall<'_>) -> ToolOutput {
        if self.built_in && call.name == todo::NAME {
            return todo::run(call.input);
        }
        if let Some(files) = &self.files
            && let Some(output) = files.run(&call).await
        {
            return output;
        }
        let Some(Route { server, tool }) = self.view().routes.get(call.name).cloned() else {
            return ToolOutput::error(format!("there is no tool {:?}; use one of those on offer", call.name));
        };
        match arguments::check(call.input, &tool.required) {
            Ok(arguments) => self.servers[server].call(&tool.name, arguments, &call).await,
            Err(why) => ToolOutput::error(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Safety;
    use super::*;
    use serde_json::value::RawValue;

    fn offer(server: &str, tools: &[&str], claims: &[&str]) -> Offer {
        let listed = |name: &&str| {
            Arc::new(Listed {
                name: (*name).to_owned(),
                description: format!("{name} of {server}"),
                schema: RawValue::from_string("{}".into()).expect("JSON").into(),
                required: Vec::new(),
                safety: Safety::Unsafe,
            })
        };
        Offer {
            server: server.into(),
            tools: tools.iter().map(listed).collect(),
            claims: claims.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    fn names(offers: &[Offer]) -> Vec<String> {
        let view = View::of(vec![todo::spec()], offers);
        view.specs.iter().map(|spec| spec.name.clone()).collect()
    }

    #[test]
    fn todo_write_is_offered_where_there_are_tools_or_where_the_manifest_says_so() {
        let offered = |provider: &str, bounds: &str| {
            let text = format!(
                "apiVersion: holdfast.dev/v1alpha1\nkind: Agent\nmetadata: {{ name: a }}\nspec:\n  model: {{ {provider} }}\n  loop: {{ {bounds} }}\n"
            );
            let agent = holdfast_crds::manifest::parse(&text).expect("a manifest");
            let tools = from_manifest(&agent, &Secrets::from_env(), None).expect("tools");
            tools.specs().iter().any(|spec| spec.name == todo::NAME)
        };
        let small = "provider: OpenAI, name: small, baseUrl: \"http://vllm/v1\"";
        assert!(offered("provider: Scripted", ""));
        assert!(!offered("provider: Scripted", "todoWrite: false"));
        assert!(!offered(small, ""), "many a small model refuses any request that mentions tools");
        assert!(offered(small, "todoWrite: true"));
    }

    #[test]
    fn names_are_plain_until_two_servers_want_the_same() {
        let both = [offer("crm", &["search", "refund"], &[]), offer("wiki", &["search", "todo_write"], &[])];
        assert_eq!(names(&both), ["todo_write", "search", "refund", "wiki__search", "wiki__todo_write"]);
        let view = View::of(vec![], &both);
        assert_eq!(view.routes["wiki__search"].server, 1);
        assert_eq!(view.routes["wiki__search"].tool.name, "search");
    }

    #[test]
    fn a_server_that_is_away_keeps_the_names_it_is_allowed() {
        let offers = [offer("crm", &[], &["search"]), offer("wiki", &["search"], &[])];
        assert_eq!(names(&offers), ["todo_write", "wiki__search"]);
    }

    #[test]
    fn names_are_made_sayable_and_stay_apart() {
        let long = "x".repeat(100);
        let offers = [offer("a", &["files.read", "files/read", &long], &[])];
        assert_eq!(names(&offers), ["todo_write", "files_read", "a__files_read", &long[..64]]);
    }
}
