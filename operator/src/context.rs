//! What every reconcile shares: the client, what is known of the cluster, and what was found out earlier.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use holdfast_crds::Agent;
use kube::{Client, ResourceExt as _, runtime::events::Recorder};

use crate::{
    live::{Key, Kind, Live},
    metrics::Metrics,
    rollout::Rollout,
    store_check::Outcome,
};

/// What the operator was started with.
#[derive(Debug, Clone)]
pub struct Settings {
    pub sidecar_image: String,
    pub redis_image: String,
    /// A request that is never answered must not keep an Agent waiting for ever.
    pub reconcile_timeout: Duration,
}

pub struct Context {
    pub client: Client,
    pub settings: Settings,
    pub live: Arc<Live>,
    pub recorder: Recorder,
    pub metrics: Metrics,
    pub memory: Memory,
}

impl Context {
    /// How far the Deployment of this Agent has come.
    pub fn rollout(&self, agent: &Agent) -> Option<Rollout> {
        let key = Key::new(Kind::Deployment, &agent.namespace().unwrap_or_default(), &agent.name_any());
        self.live.get(&key).filter(|entry| entry.is_owned_by(agent))?.rollout.map(|rollout| *rollout)
    }
}

/// A store is asked again after this long, sooner where it did not answer well.
pub const RECHECK_WELL: Duration = Duration::from_secs(300);
pub const RECHECK_UNWELL: Duration = Duration::from_secs(30);

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(300);
/// How long a permanent failure waits for someone to change something; the watches wake it earlier.
const PERMANENT_RETRY: Duration = Duration::from_secs(600);

/// What a store said, and what it was asked with.
#[derive(Clone)]
pub struct Checked {
    pub asked: String,
    pub at: Instant,
    pub outcome: Outcome,
}

impl Checked {
    pub fn due(&self) -> Duration {
        let well = self.outcome.ready.truth == crate::conditions::Truth::True;
        let interval = if well { RECHECK_WELL } else { RECHECK_UNWELL };
        interval.saturating_sub(self.at.elapsed())
    }
}

/// A version of a Secret or ConfigMap, and the names of its keys.
type KeysAt = (Box<str>, BTreeSet<String>);

/// What was found out earlier. Losing it costs a few requests and changes nothing.
#[derive(Default)]
pub struct Memory {
    /// For each object: a hash of what was last applied and the version it had afterwards.
    applied: Mutex<HashMap<Key, (u64, Box<str>)>>,
    keys: Mutex<HashMap<Key, KeysAt>>,
    checks: Mutex<HashMap<String, Checked>>,
    failures: Mutex<HashMap<String, u32>>,
}

impl Memory {
    pub fn is_applied(&self, key: &Key, hash: u64, version: &str) -> bool {
        lock(&self.applied).get(key).is_some_and(|(known, at)| *known == hash && **at == *version)
    }

    pub fn was_ever_applied(&self, key: &Key) -> bool {
        lock(&self.applied).contains_key(key)
    }

    pub fn applied(&self, key: Key, hash: u64, version: &str) {
        lock(&self.applied).insert(key, (hash, version.into()));
    }

    pub fn forget_applied(&self, key: &Key) {
        lock(&self.applied).remove(key);
    }

    pub fn keys_at(&self, key: &Key, version: &str) -> Option<BTreeSet<String>> {
        lock(&self.keys).get(key).filter(|(at, _)| **at == *version).map(|(_, keys)| keys.clone())
    }

    pub fn keys_are(&self, key: Key, version: &str, keys: BTreeSet<String>) {
        lock(&self.keys).insert(key, (version.into(), keys));
    }

    pub fn checked(&self, agent: &Agent) -> Option<Checked> {
        lock(&self.checks).get(&identity(agent)).cloned()
    }

    pub fn check_was(&self, agent: &Agent, checked: Checked) {
        lock(&self.checks).insert(identity(agent), checked);
    }

    pub fn succeeded(&self, agent: &Agent) {
        lock(&self.failures).remove(&identity(agent));
    }

    /// How long to leave this Agent alone after one more failure. Each has its own patience, so that a broken one
    /// does not slow the others.
    pub fn failed(&self, agent: &Agent, permanent: bool) -> Duration {
        let mut failures = lock(&self.failures);
        let count = failures.entry(identity(agent)).or_default();
        *count = count.saturating_add(1);
        if permanent {
            PERMANENT_RETRY
        } else {
            FIRST_RETRY.saturating_mul(1 << (*count - 1).min(16)).min(LAST_RETRY)
        }
    }

    /// An Agent is gone: so is what was remembered of it.
    pub fn forget(&self, agent: &Agent) {
        let identity = identity(agent);
        lock(&self.checks).remove(&identity);
        lock(&self.failures).remove(&identity);
        let (namespace, name) = (agent.namespace().unwrap_or_default(), agent.name_any());
        let of_agent = |key: &Key| {
            *key.namespace == *namespace
                && key
                    .name
                    .strip_prefix(&*name)
                    .is_some_and(|rest| rest.is_empty() || rest == "-redis" || rest == "-store")
        };
        lock(&self.applied).retain(|key, _| !of_agent(key));
    }
}

fn identity(agent: &Agent) -> String {
    agent.uid().unwrap_or_default()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_by_agent_and_ends_with_success() {
        let spec = serde_json::json!({"model": {"provider": "Scripted"}});
        let mut agent = Agent::new("a", serde_json::from_value(spec).unwrap());
        agent.metadata.uid = Some("1".into());
        let memory = Memory::default();
        let waits: Vec<u128> = (0..12).map(|_| memory.failed(&agent, false).as_millis()).collect();
        assert_eq!(waits[..3], [500, 1000, 2000]);
        assert_eq!(waits[11], LAST_RETRY.as_millis());
        memory.succeeded(&agent);
        assert_eq!(memory.failed(&agent, false), FIRST_RETRY);
    }
}
