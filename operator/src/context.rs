//! What every reconcile shares: the client, what is known of the cluster, and what was found out earlier.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use holdfast_crds::AgentStatus;
use kube::{Client, Resource};

use crate::{
    events::Events,
    live::{Key, Kind, Live, Place},
    metrics::Metrics,
    rollout::Rollout,
    seen::Kept,
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
    pub live: Arc<Live>,
    pub stores: Stores,
    pub events: Events,
    pub metrics: Metrics,
    pub traces: Traces,
    pub memory: Memory,
}

impl Context {
    /// How far the Deployment of this Agent has come.
    pub fn rollout(&self, agent: &impl Resource) -> Option<Rollout> {
        let key = Key { kind: Kind::Deployment, place: Place::of(agent) };
        self.live.get(&key).filter(|entry| entry.is_owned_by(agent))?.rollout.map(|rollout| *rollout)
    }

    /// An Agent is gone: so is what was remembered of it.
    pub fn forget(&self, agent: &Kept) {
        let place = Place::of(agent);
        self.live.mention(&place, Vec::new());
        self.stores.forget(&place);
        self.memory.forget(&place);
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
    /// Statuses that were written and not seen yet, and the version the Agent has with it.
    written: Mutex<HashMap<Place, (Word, AgentStatus)>>,
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

    /// A status that the watch has not shown yet.
    pub fn written(&self, agent: &Place) -> Option<AgentStatus> {
        lock(&self.written).get(agent).map(|(_, status)| status.clone())
    }

    pub fn wrote(&self, agent: Place, version: Word, status: AgentStatus) {
        lock(&self.written).insert(agent, (version, status));
    }

    /// The watch has shown this version. Whether it is only what we wrote ourselves.
    pub fn saw(&self, agent: &Place, version: &Word) -> bool {
        let mut written = lock(&self.written);
        let Some((at, _)) = written.get(agent) else { return false };
        if version.is_older_than(at) {
            return false;
        }
        let ours = at == version;
        written.remove(agent);
        ours
    }

    pub fn succeeded(&self, agent: &Place) {
        lock(&self.failures).remove(agent);
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
        lock(&self.written).remove(agent);
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
        assert_eq!(memory.failed(&other, false), FIRST_RETRY);
        memory.succeeded(&agent);
        assert_eq!(memory.failed(&agent, false), FIRST_RETRY);
    }

    #[test]
    fn a_status_of_our_own_is_remembered_until_it_is_seen() {
        let (agent, memory) = (Place::new("ns", "a"), Memory::default());
        memory.wrote(agent.clone(), "7".into(), AgentStatus::default());
        assert!(!memory.saw(&agent, &"6".into()), "an event from before");
        assert!(memory.written(&agent).is_some());
        assert!(memory.saw(&agent, &"7".into()));
        assert!(memory.written(&agent).is_none());
        memory.wrote(agent.clone(), "9".into(), AgentStatus::default());
        assert!(!memory.saw(&agent, &"10".into()), "somebody has changed it since");
        assert!(memory.written(&agent).is_none());
    }
}
