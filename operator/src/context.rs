//! What every reconcile shares: the client, what is known of the cluster, and what was found out earlier.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_crds::Agent;
use kube::{Client, Resource};

use crate::{
    agents::Agents,
    build::Inputs,
    error::Error,
    events::Events,
    live::{Key, Kind, Live, Place},
    metrics::Metrics,
    rollout::Rollout,
    stores::Stores,
    traces::Traces,
    word::Word,
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
    pub agents: Arc<Agents>,
    pub live: Arc<Live>,
    pub stores: Stores,
    pub events: Events,
    pub metrics: Metrics,
    pub traces: Traces,
    pub memory: Memory,
}

impl Context {
    /// How far the Deployment of this Agent has come.
    pub fn rollout(&self, place: &Place, agent: &impl Resource) -> Option<Rollout> {
        let entry = self.live.get(&Key::of(Kind::Deployment, place))?;
        if entry.is_owned_by(agent) { entry.rollout.map(|rollout| *rollout) } else { None }
    }

    /// A hash of all that the objects of an Agent are made of: equal ones make equal objects.
    pub fn made_of(&self, agent: &Agent, inputs: &Inputs) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&agent.metadata.uid, agent.metadata.generation).hash(&mut hasher);
        (self.live.knows(Kind::HttpRoute), self.live.knows(Kind::ServiceMonitor)).hash(&mut hasher);
        inputs.hash(&mut hasher);
        hasher.finish()
    }

    /// Whether it is worth a word in the status. What may be over at the next attempt is not, until that fails too.
    pub fn must_be_told(&self, agent: &Place, error: &Error) -> bool {
        !matches!(error, Error::Status(_)) && (error.is_permanent() || self.memory.has_failed(agent))
    }

    /// An Agent is gone: so is what was remembered of it.
    pub fn forget(&self, agent: &Place) {
        self.live.dismiss(agent);
        self.stores.forget(agent);
        self.memory.forget(agent);
    }
}

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(300);
/// How long a permanent failure waits for someone to change something; the watches wake it earlier.
const PERMANENT_RETRY: Duration = Duration::from_secs(600);

/// The names of the keys of a Secret or ConfigMap, or the access modes of a claim.
pub type Contents = Arc<BTreeSet<String>>;

/// What was found out earlier. Losing it costs a few requests and changes nothing.
#[derive(Default)]
pub struct Memory {
    /// And the version they are of.
    contents: Mutex<HashMap<Key, (Word, Contents)>>,
    failures: Mutex<HashMap<Place, u32>>,
    /// The last look at these changed something, and left the word on it to the next.
    held_back: Mutex<HashSet<Place>>,
}

impl Memory {
    pub fn contents_at(&self, key: &Key, version: &Word) -> Option<Contents> {
        lock(&self.contents).get(key).filter(|(at, _)| at == version).map(|(_, found)| Arc::clone(found))
    }

    pub fn contents_are(&self, key: Key, version: Word, found: BTreeSet<String>) -> Contents {
        let found = Arc::new(found);
        lock(&self.contents).insert(key, (version, Arc::clone(&found)));
        found
    }

    pub fn forget_contents(&self, key: &Key) {
        lock(&self.contents).remove(key);
    }

    /// A look changed something, and more is soon to be said of that. Whether to wait for it: not twice in a row.
    pub fn hold_back(&self, agent: &Place) -> bool {
        lock(&self.held_back).insert(agent.clone())
    }

    /// All there is to say has been said.
    pub fn caught_up(&self, agent: &Place) {
        lock(&self.held_back).remove(agent);
    }

    pub fn succeeded(&self, agent: &Place) {
        lock(&self.failures).remove(agent);
    }

    /// The last look at it failed.
    pub fn has_failed(&self, agent: &Place) -> bool {
        lock(&self.failures).contains_key(agent)
    }

    /// How long to leave this Agent alone after one more failure. Each has its own patience, so that a broken one
    /// does not slow the others.
    pub fn failed(&self, agent: &Place, permanent: bool) -> Duration {
        let mut failures = lock(&self.failures);
        let count = failures.entry(agent.clone()).or_default();
        *count = count.saturating_add(1);
        if permanent {
            PERMANENT_RETRY
        } else {
            FIRST_RETRY.saturating_mul(1 << (*count - 1).min(16)).min(LAST_RETRY)
        }
    }

    fn forget(&self, agent: &Place) {
        lock(&self.failures).remove(agent);
        lock(&self.held_back).remove(agent);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_grows_by_agent_and_ends_with_success() {
        let (agent, other) = (Place::new("ns", "a"), Place::new("ns", "b"));
        let memory = Memory::default();
        let waits: Vec<u128> = (0..12).map(|_| memory.failed(&agent, false).as_millis()).collect();
        assert_eq!(waits[..3], [500, 1000, 2000]);
        assert_eq!(waits[11], LAST_RETRY.as_millis());
        assert!(!memory.has_failed(&other));
        assert_eq!(memory.failed(&other, false), FIRST_RETRY);
        assert!(memory.has_failed(&other));
        memory.succeeded(&agent);
        assert!(!memory.has_failed(&agent));
        assert_eq!(memory.failed(&agent, false), FIRST_RETRY);
    }
}
