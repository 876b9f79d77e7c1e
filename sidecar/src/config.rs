//! From an Agent manifest to what the layers below are told: settings, limits, and which store, model and tools.
//!
//! The only place that reads the manifest's fields for the sidecar. Nothing is opened or sent here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_crds::manifest::{self, Mistakes};
use holdfast_crds::{Agent, FilesystemType, Isolation, Resume, StateStore, StoreType};
use sha2::{Digest, Sha256};

use crate::session::{Durability, Settings};
use crate::store::{Limits, OnBusy};
use crate::workspace::TreeLimits;

#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    #[error("{path}: {error}; name an Agent manifest that can be read", path = .0.display(), error = .1)]
    Unreadable(PathBuf, std::io::Error),
    #[error("{0}")]
    Mistakes(Mistakes),
}

pub fn read_manifest(path: &Path) -> Result<Agent, ManifestError> {
    let text =
        std::fs::read_to_string(path).map_err(|error| ManifestError::Unreadable(path.to_owned(), error))?;
    manifest::parse(&text)
        .map_err(|mistakes| ManifestError::Mistakes(mistakes.in_file(&path.display().to_string())))
}

/// Where conversations live.
#[derive(Debug, Clone, PartialEq)]
pub enum StoreChoice {
    Memory,
    Folder(PathBuf),
    Redis(Box<holdfast_crds::Redis>),
}

/// Where files are kept.
#[derive(Debug, Clone, PartialEq)]
pub enum FilesChoice {
    Folder(PathBuf),
    Redis(Box<holdfast_crds::Redis>),
}

/// The files of an agent that has any.
#[derive(Debug, Clone, PartialEq)]
pub struct FilesConfig {
    pub place: FilesChoice,
    pub isolation: Isolation,
    pub limits: TreeLimits,
}

/// How long each part of a stop may take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StopTimes {
    /// Running calls go on, and new ones start.
    pub drain: Duration,
    /// A tool that has started is awaited.
    pub tools: Duration,
    /// What is left is saved.
    pub save: Duration,
    /// Clients hear the rest of their answers from the replicas that took their calls over. Zero: they are let go.
    pub relay: Duration,
}

impl StopTimes {
    /// The pod's grace period, without what is spent before SIGTERM and the margin to exit.
    pub fn in_all(&self) -> Duration {
        self.drain + self.tools + self.save + self.relay
    }
}

/// A manifest in the words of the layers below.
#[derive(Debug, Clone)]
pub struct Config {
    pub settings: Settings,
    pub limits: Limits,
    pub store: StoreChoice,
    pub files: Option<FilesConfig>,
    pub stop: StopTimes,
}

impl Config {
    pub fn new(agent: &Agent, replica: &str) -> Self {
        let spec = &agent.spec;
        let store = spec.effective_state_store();
        let relay = if store.kind.is_local() || spec.session.resume == Resume::OnNextCall {
            Duration::ZERO
        } else {
            spec.shutdown.relay_timeout.get()
        };
        let lease = spec.session.lease_duration.get();
        let settings = Settings {
            prefix: prefix(agent),
            replica: replica.to_owned(),
            revision: revision(agent),
            system_prompt: spec.system_prompt.as_deref().map(Into::into),
            model: spec.model.name.clone().unwrap_or_default(),
            max_iterations: spec.loop_.max_iterations,
            call_timeout: spec.loop_.call_timeout.get(),
            tool_timeout: spec.loop_.tool_timeout.get(),
            lease,
            on_busy: match spec.session.on_busy {
                holdfast_crds::OnBusy::Enqueue => OnBusy::Enqueue,
                holdfast_crds::OnBusy::Reject => OnBusy::Reject,
                holdfast_crds::OnBusy::Interrupt => OnBusy::Interrupt,
            },
            max_running_calls: spec.session.max_running_calls as usize,
            durability: match spec.session.durability {
                holdfast_crds::Durability::Step => Durability::Step,
                holdfast_crds::Durability::Call => Durability::Call,
            },
            park: spec.session.resume == Resume::OnNextCall,
            recovery_attempts: spec.session.recovery_attempts,
            context_window: spec.model.context_window as usize,
            cache_bytes: usize::try_from(store.cache_size.bytes()).unwrap_or(usize::MAX),
            drain_timeout: spec.shutdown.drain_timeout.get(),
            relay_timeout: relay,
            ..Settings::default()
        };
        let limits = Limits {
            lease,
            session_ttl: store.session_ttl.get(),
            reply_ttl: store.reply_ttl.get(),
            queue_limit: spec.session.queue_limit as usize,
            ..Limits::default()
        };
        let stop = StopTimes {
            drain: settings.drain_timeout,
            tools: settings.tool_timeout,
            save: spec.shutdown.save_timeout.get(),
            relay,
        };
        let files = files(agent, &store);
        Self { settings, limits, store: choose_store(agent, store), files, stop }
    }
}

/// On a laptop there are no namespaces, and a name alone is short enough to type into redis-cli.
fn prefix(agent: &Agent) -> String {
    let chosen = agent.spec.state_store.as_ref().and_then(|store| store.key_prefix.clone());
    chosen.unwrap_or_else(|| match &agent.metadata.namespace {
        Some(namespace) => format!("{namespace}.{}", name(agent)),
        None => name(agent).to_owned(),
    })
}

pub fn name(agent: &Agent) -> &str {
    agent.metadata.name.as_deref().unwrap_or("agent")
}

/// Names what the agent is, not how many of it there are: scaling makes no new revision.
fn revision(agent: &Agent) -> String {
    let mut spec = agent.spec.clone();
    (spec.replicas, spec.autoscaling) = (None, None);
    let text = serde_json::to_vec(&spec)
        .unwrap_or_else(|error| unreachable!("a manifest that was read can be written: {error}"));
    let hash = Sha256::digest(text);
    hash[..6].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn choose_store(agent: &Agent, store: StateStore) -> StoreChoice {
    match store.kind {
        StoreType::InMemory => StoreChoice::Memory,
        StoreType::JsonFile => {
            let chosen = store.json_file.and_then(|file| file.path).map(PathBuf::from);
            StoreChoice::Folder(chosen.unwrap_or_else(|| state_folder(name(agent))))
        }
        StoreType::Redis => StoreChoice::Redis(Box::new(store.redis.unwrap_or_default())),
    }
}

fn files(agent: &Agent, store: &StateStore) -> Option<FilesConfig> {
    let files = agent.spec.filesystem.as_ref()?;
    let place = match files.kind {
        FilesystemType::Local => FilesChoice::Folder(workspace_folder(store)),
        FilesystemType::Remote => FilesChoice::Redis(Box::new(store.redis.clone().unwrap_or_default())),
    };
    let limits = TreeLimits {
        max_file: files.max_file_size.bytes(),
        max_tree: files.max_tree_size.bytes(),
        ttl: store.session_ttl.get(),
        ..TreeLimits::default()
    };
    Some(FilesConfig { place, isolation: files.isolation, limits })
}

fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Where the files of an agent are if its manifest does not say.
fn state_folder(agent: &str) -> PathBuf {
    set("HOLDFAST_STATE_DIR").unwrap_or_else(|| states_folder().join(agent))
}

fn states_folder() -> PathBuf {
    let states = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")));
    states.map_or_else(|| PathBuf::from(".holdfast"), |states| states.join("holdfast"))
}

/// In a pod: the volume. On a laptop: in the state folder that was named, or beside those of all agents, under a name
/// that none of them can have; so that agents find each other's `Global` files.
fn workspace_folder(store: &StateStore) -> PathBuf {
    if let Some(volume) = set("HOLDFAST_WORKSPACE_DIR") {
        return volume;
    }
    let named = store.json_file.as_ref().and_then(|file| file.path.clone()).map(PathBuf::from);
    let named = named.or_else(|| set("HOLDFAST_STATE_DIR"));
    named.unwrap_or_else(states_folder).join("_workspaces")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(spec: &str) -> Agent {
        let text = format!(
            "apiVersion: holdfast.dev/v1alpha1\nkind: Agent\nmetadata: {{ name: hello }}\nspec:\n  model: {{ provider: Scripted }}\n{spec}"
        );
        manifest::parse(&text).expect("a manifest")
    }

    #[test]
    fn scaling_is_no_new_revision_and_a_new_prompt_is() {
        let one =
            Config::new(&agent("  stateStore: { type: Redis, redis: { url: redis://r:6379/0 } }\n"), "r");
        let ten = Config::new(
            &agent("  replicas: 10\n  stateStore: { type: Redis, redis: { url: redis://r:6379/0 } }\n"),
            "r",
        );
        let other = Config::new(&agent("  systemPrompt: Be brief.\n"), "r");
        assert_eq!(one.settings.revision, ten.settings.revision);
        assert_ne!(one.settings.revision, other.settings.revision);
        assert_eq!(one.settings.revision.len(), 12);
    }

    #[test]
    fn a_name_alone_is_the_prefix_where_there_is_no_namespace() {
        let mut agent = agent("");
        assert_eq!(prefix(&agent), "hello");
        agent.metadata.namespace = Some("team-a".into());
        assert_eq!(prefix(&agent), "team-a.hello");
    }

    #[test]
    fn files_are_as_large_and_as_lasting_as_the_manifest_says() {
        assert_eq!(Config::new(&agent(""), "r").files, None);
        let written = "  stateStore: { type: JsonFile, jsonFile: { path: /s }, sessionTtl: 2h }\n  filesystem: { type: Local, isolation: Agent, maxFileSize: 2Ki, maxTreeSize: 1Mi }\n";
        let files = Config::new(&agent(written), "r").files.expect("files");
        assert_eq!(files.place, FilesChoice::Folder("/s/_workspaces".into()));
        assert_eq!((files.isolation, files.limits.max_file), (Isolation::Agent, 2048));
        assert_eq!((files.limits.max_tree, files.limits.ttl), (1 << 20, Duration::from_secs(7200)));
    }

    #[test]
    fn nothing_is_relayed_where_nobody_can_take_over() {
        assert_eq!(Config::new(&agent(""), "r").stop.relay, Duration::ZERO);
        let shared = "  stateStore: { type: Redis, redis: { url: redis://r:6379/0 } }\n";
        assert_eq!(Config::new(&agent(shared), "r").stop.relay, Duration::from_secs(300));
        let parked = format!("{shared}  session: {{ resume: OnNextCall }}\n");
        assert_eq!(Config::new(&agent(&parked), "r").stop.relay, Duration::ZERO);
    }
}
