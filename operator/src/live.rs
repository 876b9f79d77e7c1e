//! What is in the cluster, as the watches tell it: of each object only what a reconcile asks about.
//!
//! ```text
//! watch event ──▶ Live (which version there is, whose it is) ──▶ the Agents to look at again
//! ```
//! An owned object wakes its owner. A Secret, ConfigMap or claim wakes every Agent that mentioned it, even before
//! it exists: an Agent mentions first and looks afterwards, an event is noted first and asked for mentions
//! afterwards, so none is missed between the two.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use holdfast_crds::Agent;
use k8s_openapi::{
    api::{
        apps::v1::{Deployment, StatefulSet},
        autoscaling::v2::HorizontalPodAutoscaler,
        core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service, ServiceAccount},
        networking::v1::NetworkPolicy,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Resource, core::PartialObjectMeta, runtime::reflector::ObjectRef, runtime::watcher};
use tokio::sync::Notify;

use crate::rollout::Rollout;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    ServiceAccount,
    ConfigMap,
    Secret,
    Service,
    DisruptionBudget,
    NetworkPolicy,
    Claim,
    StatefulSet,
    Deployment,
    Autoscaler,
}

/// A type that is watched, and what of it is kept beyond its version.
pub trait Tracked: Resource<DynamicType = ()> {
    const KIND: Kind;

    fn rollout(&self) -> Option<Box<Rollout>> {
        None
    }
}

macro_rules! tracked_by_metadata {
    ($($type:ty => $kind:ident),* $(,)?) => {
        $(impl Tracked for PartialObjectMeta<$type> { const KIND: Kind = Kind::$kind; }
          impl Tracked for $type { const KIND: Kind = Kind::$kind; })*
    };
}

tracked_by_metadata! {
    ServiceAccount => ServiceAccount,
    ConfigMap => ConfigMap,
    Secret => Secret,
    Service => Service,
    PodDisruptionBudget => DisruptionBudget,
    NetworkPolicy => NetworkPolicy,
    PersistentVolumeClaim => Claim,
    StatefulSet => StatefulSet,
    HorizontalPodAutoscaler => Autoscaler,
}

impl Tracked for Deployment {
    const KIND: Kind = Kind::Deployment;

    fn rollout(&self) -> Option<Box<Rollout>> {
        Some(Box::new(Rollout::of(self)))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub kind: Kind,
    pub namespace: Box<str>,
    pub name: Box<str>,
}

impl Key {
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }
}

/// What is kept of an object.
#[derive(Debug, Clone)]
pub struct Entry {
    pub uid: Box<str>,
    pub version: Box<str>,
    /// The name and uid of the Agent that controls it.
    pub owner: Option<(Box<str>, Box<str>)>,
    /// Only of a Deployment.
    pub rollout: Option<Box<Rollout>>,
}

impl Entry {
    pub fn of(meta: &ObjectMeta, rollout: Option<Box<Rollout>>) -> Self {
        let owner = meta.owner_references.iter().flatten().find(|owner| {
            owner.controller == Some(true)
                && owner.kind == "Agent"
                && owner.api_version.split('/').next() == Some(holdfast_crds::GROUP)
        });
        Self {
            uid: meta.uid.as_deref().unwrap_or_default().into(),
            version: meta.resource_version.as_deref().unwrap_or_default().into(),
            owner: owner.map(|owner| (owner.name.as_str().into(), owner.uid.as_str().into())),
            rollout,
        }
    }

    pub fn is_owned_by(&self, agent: &Agent) -> bool {
        self.owner.as_ref().is_some_and(|(_, uid)| Some(&**uid) == agent.metadata.uid.as_deref())
    }
}

type Names = BTreeSet<Box<str>>;

#[derive(Default)]
struct Mentions {
    by_object: HashMap<Key, Names>,
    by_agent: HashMap<(Box<str>, Box<str>), Vec<Key>>,
}

/// Everything the watches have told.
pub struct Live {
    entries: Mutex<HashMap<Key, Entry>>,
    mentions: Mutex<Mentions>,
    missing: AtomicUsize,
    complete: Notify,
}

impl Live {
    /// Complete once this many watches have listed everything there is.
    pub fn new(watches: usize) -> Self {
        Self {
            entries: Mutex::default(),
            mentions: Mutex::default(),
            missing: AtomicUsize::new(watches),
            complete: Notify::new(),
        }
    }

    /// Nothing may be concluded from an absence before this.
    pub async fn completed(&self) {
        loop {
            let notified = self.complete.notified();
            if self.missing.load(Ordering::Acquire) == 0 {
                return;
            }
            notified.await;
        }
    }

    #[cfg(test)]
    fn is_complete(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    pub fn get(&self, key: &Key) -> Option<Entry> {
        lock(&self.entries).get(key).cloned()
    }

    /// What a write of our own has just made, so that the next look need not wait for the watch.
    pub fn wrote(&self, key: Key, meta: &ObjectMeta) {
        let mut entries = lock(&self.entries);
        let rollout = entries.remove(&key).and_then(|entry| entry.rollout).map(|mut rollout| {
            rollout.generation = meta.generation.unwrap_or(rollout.generation);
            rollout
        });
        entries.insert(key, Entry::of(meta, rollout));
    }

    pub fn removed(&self, key: &Key) {
        lock(&self.entries).remove(key);
    }

    /// From now on, and until it mentions something else, this Agent hears of these.
    pub fn mention(&self, namespace: &str, agent: &str, keys: Vec<Key>) {
        let mut mentions = lock(&self.mentions);
        let Mentions { by_object, by_agent } = &mut *mentions;
        let whom = (Box::<str>::from(namespace), Box::<str>::from(agent));
        for gone in by_agent.remove(&whom).into_iter().flatten() {
            if let Some(names) = by_object.get_mut(&gone) {
                names.remove(agent);
                if names.is_empty() {
                    by_object.remove(&gone);
                }
            }
        }
        if keys.is_empty() {
            return;
        }
        for key in &keys {
            by_object.entry(key.clone()).or_default().insert(agent.into());
        }
        by_agent.insert(whom, keys);
    }

    fn concerned(&self, key: &Key, owner: Option<&str>) -> Vec<ObjectRef<Agent>> {
        let mentions = lock(&self.mentions);
        let mentioned = mentions.by_object.get(key).into_iter().flatten().map(|name| &**name);
        mentioned.chain(owner).map(|name| ObjectRef::new(name).within(&key.namespace)).collect()
    }

    fn note<K: Tracked>(&self, object: &K) -> (Key, Vec<ObjectRef<Agent>>) {
        let meta = object.meta();
        let key = Key::new(
            K::KIND,
            meta.namespace.as_deref().unwrap_or_default(),
            meta.name.as_deref().unwrap_or_default(),
        );
        let entry = Entry::of(meta, object.rollout());
        let owner = entry.owner.as_ref().map(|(name, _)| name.clone());
        lock(&self.entries).insert(key.clone(), entry);
        let concerned = self.concerned(&key, owner.as_deref());
        (key, concerned)
    }

    fn forget(&self, key: &Key) -> Vec<ObjectRef<Agent>> {
        let entry = lock(&self.entries).remove(key);
        let owner = entry.and_then(|entry| entry.owner).map(|(name, _)| name);
        self.concerned(key, owner.as_deref())
    }
}

/// One watch's part in Live: notes its events and says which Agents they concern.
pub struct Follower {
    live: Arc<Live>,
    kind: Kind,
    /// Empty: all.
    namespace: Box<str>,
    listed: HashSet<Key>,
    complete: bool,
}

impl Follower {
    pub fn new(live: Arc<Live>, kind: Kind, namespace: &str) -> Self {
        Self { live, kind, namespace: namespace.into(), listed: HashSet::new(), complete: false }
    }

    pub fn take<K: Tracked>(&mut self, event: &watcher::Event<K>) -> Vec<ObjectRef<Agent>> {
        match event {
            watcher::Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                let (key, concerned) = self.live.note(object);
                self.listed.insert(key);
                concerned
            }
            watcher::Event::InitDone => self.listed_all(),
            watcher::Event::Apply(object) => self.live.note(object).1,
            watcher::Event::Delete(object) => {
                let meta = object.meta();
                let namespace = meta.namespace.as_deref().unwrap_or_default();
                self.live.forget(&Key::new(self.kind, namespace, meta.name.as_deref().unwrap_or_default()))
            }
        }
    }

    /// What was known and is not listed any more went unseen while the watch was away.
    fn listed_all(&mut self) -> Vec<ObjectRef<Agent>> {
        let listed = std::mem::take(&mut self.listed);
        let ours = |key: &&Key| {
            key.kind == self.kind && (self.namespace.is_empty() || key.namespace == self.namespace)
        };
        let gone: Vec<Key> = lock(&self.live.entries)
            .keys()
            .filter(ours)
            .filter(|key| !listed.contains(*key))
            .cloned()
            .collect();
        let concerned = gone.iter().flat_map(|key| self.live.forget(key)).collect();
        if !self.complete {
            self.complete = true;
            if self.live.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
                self.live.complete.notify_waiters();
            }
        }
        concerned
    }
}

/// The maps hold no invariant that a panic elsewhere could have broken.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(name: &str, version: &str) -> PartialObjectMeta<Secret> {
        let metadata = ObjectMeta {
            name: Some(name.into()),
            namespace: Some("ns".into()),
            resource_version: Some(version.into()),
            ..ObjectMeta::default()
        };
        PartialObjectMeta { metadata, ..PartialObjectMeta::default() }
    }

    #[test]
    fn a_secret_that_appears_wakes_who_mentioned_it() {
        let live = Arc::new(Live::new(1));
        let mut follower = Follower::new(Arc::clone(&live), Kind::Secret, "");
        live.mention("ns", "support", vec![Key::new(Kind::Secret, "ns", "redis")]);
        let woken = follower.take(&watcher::Event::Apply(secret("redis", "1")));
        assert_eq!(woken, vec![ObjectRef::new("support").within("ns")]);
        live.mention("ns", "support", vec![Key::new(Kind::Secret, "ns", "other")]);
        assert!(follower.take(&watcher::Event::Apply(secret("redis", "2"))).is_empty());
    }

    #[test]
    fn what_vanished_while_the_watch_was_away_is_forgotten() {
        let live = Arc::new(Live::new(1));
        let mut follower = Follower::new(Arc::clone(&live), Kind::Secret, "");
        live.mention("ns", "support", vec![Key::new(Kind::Secret, "ns", "redis")]);
        for event in
            [watcher::Event::Init, watcher::Event::InitApply(secret("redis", "1")), watcher::Event::InitDone]
        {
            follower.take(&event);
        }
        assert!(live.is_complete());
        assert!(live.get(&Key::new(Kind::Secret, "ns", "redis")).is_some());
        follower.take::<PartialObjectMeta<Secret>>(&watcher::Event::Init);
        let woken = follower.take::<PartialObjectMeta<Secret>>(&watcher::Event::InitDone);
        assert_eq!(woken.len(), 1);
        assert!(live.get(&Key::new(Kind::Secret, "ns", "redis")).is_none());
    }
}
