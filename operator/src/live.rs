//! What is in the cluster, as the watches tell it: of each object only what a reconcile asks about.
//!
//! ```text
//! watch event ──▶ Live (which version there is, whose it is) ──▶ the Agents to look at again
//! apply ────────▶   the same, from its own answer: the event that follows is no news
//! ```
//! An owned object wakes its owner. A Secret, ConfigMap or claim wakes every Agent that mentioned it, even before
//! it exists: an Agent mentions first and looks afterwards, an event is noted first and asked for mentions
//! afterwards, so none is missed between the two.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Resource,
    runtime::{reflector::ObjectRef, watcher},
};
use tokio::sync::Notify;

use crate::{
    rollout::Rollout,
    seen::{Kept, Sight},
    word::Word,
};

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
    HttpRoute,
    ServiceMonitor,
}

/// `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place(Arc<str>);

impl Place {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    pub fn of(object: &impl Resource) -> Self {
        let meta = object.meta();
        Self::new(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    }

    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or_default()
    }

    /// The Agent there.
    pub fn agent(&self) -> ObjectRef<Kept> {
        let (namespace, name) = self.parts();
        ObjectRef::new(name).within(namespace)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub kind: Kind,
    pub place: Place,
}

impl Key {
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, place: Place::new(namespace, name) }
    }
}

/// What is kept of an object.
#[derive(Debug, Clone)]
pub struct Entry {
    pub uid: Word,
    pub version: Word,
    owner: Option<Owner>,
    /// Only of a Deployment.
    pub rollout: Option<Box<Rollout>>,
    /// Tells one state of what we might have set from another.
    mark: u64,
    /// A hash of what we applied, as long as nothing of it has changed since.
    applied: Option<u64>,
    /// Found by the list that is being read, or newer than it.
    listed: bool,
}

/// The Agent that controls an object.
#[derive(Debug, Clone)]
struct Owner {
    uid: Word,
    /// Where it is not the object's own.
    name: Option<Box<str>>,
}

impl Entry {
    pub fn of<S: Sight>(object: &S) -> Self {
        let meta = object.meta();
        let owner = meta.owner_references.iter().flatten().find(|owner| {
            owner.controller == Some(true)
                && owner.kind == "Agent"
                && owner.api_version.split('/').next() == Some(holdfast_crds::GROUP)
        });
        Self {
            uid: meta.uid.as_ref().into(),
            version: meta.resource_version.as_ref().into(),
            owner: owner.map(|owner| Owner {
                uid: owner.uid.as_str().into(),
                name: (meta.name.as_ref() != Some(&owner.name)).then(|| owner.name.as_str().into()),
            }),
            rollout: object.rollout().map(Box::new),
            mark: object.mark(),
            applied: None,
            listed: true,
        }
    }

    pub fn is_owned_by(&self, agent: &impl Resource) -> bool {
        self.owner.as_ref().is_some_and(|owner| owner.uid == agent.meta().uid.as_ref().into())
    }

    /// It is as we left it, and we left it like this.
    pub fn is_as_applied(&self, hash: u64) -> bool {
        self.applied == Some(hash)
    }

    fn owner_at(&self, place: &Place) -> Option<Place> {
        let owner = self.owner.as_ref()?;
        Some(owner.name.as_ref().map_or_else(|| place.clone(), |name| Place::new(place.parts().0, name)))
    }

    /// What the event that follows a write will say of the rollout, unless somebody is quicker.
    fn follow(&mut self, meta: &ObjectMeta, replicas: Option<i32>) {
        let Some(replicas) = replicas.or_else(|| self.rollout.as_ref().map(|rollout| rollout.desired)) else {
            return;
        };
        let rollout = self.rollout.get_or_insert_default();
        rollout.generation = meta.generation.unwrap_or(rollout.generation);
        rollout.desired = replicas;
    }

    /// Takes over what was just seen. Whether it is news.
    fn see(&mut self, seen: Self) -> bool {
        if self.uid == seen.uid && seen.version.is_older_than(&self.version) {
            // The watch is behind our own write.
            self.listed = true;
            return false;
        }
        let same = self.uid == seen.uid && self.mark == seen.mark;
        let news = !same || self.rollout != seen.rollout;
        *self = Self { applied: self.applied.filter(|_| same), ..seen };
        news
    }
}

/// All objects of one place: those of an Agent mostly bear its name.
type Objects = Vec<(Kind, Entry)>;

#[derive(Default)]
struct Mentions {
    by_object: HashMap<Key, BTreeSet<Place>>,
    by_agent: HashMap<Place, Vec<Key>>,
}

/// Everything the watches have told.
pub struct Live {
    objects: Mutex<HashMap<Place, Objects>>,
    /// Applies under way: what is seen of them before they are answered is no news.
    awaited: Mutex<HashSet<Key>>,
    mentions: Mutex<Mentions>,
    missing: AtomicUsize,
    complete: Notify,
    routes_known: AtomicBool,
    monitors_known: AtomicBool,
}

impl Live {
    /// Complete once this many watches have listed everything there is.
    pub fn new(watches: usize) -> Self {
        Self {
            objects: Mutex::default(),
            awaited: Mutex::default(),
            mentions: Mutex::default(),
            missing: AtomicUsize::new(watches),
            complete: Notify::new(),
            routes_known: AtomicBool::new(false),
            monitors_known: AtomicBool::new(false),
        }
    }

    /// Nothing may be concluded from an absence before this.
    pub async fn completed(&self) {
        loop {
            let notified = self.complete.notified();
            if self.is_complete() {
                return;
            }
            notified.await;
        }
    }

    fn is_complete(&self) -> bool {
        self.missing.load(Ordering::Acquire) == 0
    }

    /// Whether this cluster has such a kind at all. Only some may be absent.
    pub fn knows(&self, kind: Kind) -> bool {
        self.optional(kind).is_none_or(|known| known.load(Ordering::Acquire))
    }

    /// Whether that is a change.
    fn set_known(&self, kind: Kind, known: bool) -> bool {
        self.optional(kind).is_some_and(|flag| flag.swap(known, Ordering::AcqRel) != known)
    }

    fn optional(&self, kind: Kind) -> Option<&AtomicBool> {
        match kind {
            Kind::HttpRoute => Some(&self.routes_known),
            Kind::ServiceMonitor => Some(&self.monitors_known),
            _ => None,
        }
    }

    pub fn get(&self, key: &Key) -> Option<Entry> {
        let objects = lock(&self.objects);
        objects.get(&key.place)?.iter().find(|(kind, _)| *kind == key.kind).map(|(_, entry)| entry.clone())
    }

    /// An apply is about to be sent: until this is dropped, or its answer noted, what is seen of it is no news. Whoever
    /// gives up meanwhile will look again.
    pub fn awaits(&self, key: &Key) -> Awaited<'_> {
        lock(&self.awaited).insert(key.clone());
        Awaited { live: self, key: key.clone() }
    }

    /// What a write of our own has just made. Whether more has happened to it since.
    pub fn wrote<S: Sight>(&self, key: &Key, object: &S, hash: Option<u64>, replicas: Option<i32>) -> bool {
        let mut objects = lock(&self.objects);
        lock(&self.awaited).remove(key);
        let mut wrote = Entry { applied: hash, ..Entry::of(object) };
        let place = objects.entry(key.place.clone()).or_default();
        let known = place.iter_mut().find(|(kind, _)| *kind == key.kind).map(|(_, entry)| entry);
        if let Some(known) = known {
            if known.uid == wrote.uid && wrote.version.is_older_than(&known.version) {
                known.applied = hash.filter(|_| known.mark == wrote.mark);
                return true;
            }
            wrote.rollout = known.rollout.take();
            wrote.follow(object.meta(), replicas);
            *known = wrote;
        } else {
            wrote.follow(object.meta(), replicas);
            put(place, key.kind, wrote);
        }
        false
    }

    pub fn removed(&self, key: &Key) {
        take(&mut lock(&self.objects), key);
    }

    /// From now on, and until it mentions something else, this Agent hears of these.
    pub fn mention(&self, agent: &Place, keys: Vec<Key>) {
        let mut mentions = lock(&self.mentions);
        if mentions.by_agent.get(agent).map_or(&[][..], Vec::as_slice) == keys {
            return;
        }
        let Mentions { by_object, by_agent } = &mut *mentions;
        for gone in by_agent.remove(agent).into_iter().flatten() {
            if let Some(agents) = by_object.get_mut(&gone) {
                agents.remove(agent);
                if agents.is_empty() {
                    by_object.remove(&gone);
                }
            }
        }
        if keys.is_empty() {
            return;
        }
        for key in &keys {
            by_object.entry(key.clone()).or_default().insert(agent.clone());
        }
        by_agent.insert(agent.clone(), keys);
    }

    fn concerned(&self, key: &Key, owner: Option<Place>) -> Vec<ObjectRef<Kept>> {
        let mentions = lock(&self.mentions);
        let mentioned = mentions.by_object.get(key).into_iter().flatten().map(Place::agent);
        mentioned.chain(owner.map(|owner| owner.agent())).collect()
    }

    /// Everybody who mentioned an object of this kind, or has one.
    fn concerned_by(&self, kind: Kind) -> Vec<ObjectRef<Kept>> {
        let mut owners = Vec::new();
        self.of_kind(kind, "", |place, entry| owners.extend(entry.owner_at(place)));
        let mentions = lock(&self.mentions);
        let mentioned = mentions.by_object.iter().filter(|(key, _)| key.kind == kind);
        let mentioned = mentioned.flat_map(|(_, agents)| agents.iter());
        mentioned.chain(&owners).map(Place::agent).collect()
    }

    fn note<S: Sight>(&self, object: &S) -> Vec<ObjectRef<Kept>> {
        let key = Key { kind: S::KIND, place: Place::of(object) };
        let entry = Entry::of(object);
        let owner = entry.owner_at(&key.place);
        let news = {
            let mut objects = lock(&self.objects);
            let place = objects.entry(key.place.clone()).or_default();
            match place.iter_mut().find(|(kind, _)| *kind == key.kind) {
                Some((_, known)) => known.see(entry),
                None => {
                    put(place, key.kind, entry);
                    true
                }
            }
        };
        if news && !lock(&self.awaited).contains(&key) { self.concerned(&key, owner) } else { Vec::new() }
    }

    fn forget(&self, key: &Key) -> Vec<ObjectRef<Kept>> {
        let entry = take(&mut lock(&self.objects), key);
        let owner = entry.and_then(|entry| entry.owner_at(&key.place));
        self.concerned(key, owner)
    }

    /// Every entry of a kind in a namespace, or in all.
    fn of_kind(&self, kind: Kind, namespace: &str, mut each: impl FnMut(&Place, &mut Entry)) {
        for (place, objects) in lock(&self.objects).iter_mut() {
            if namespace.is_empty() || place.parts().0 == namespace {
                let found = objects.iter_mut().filter(|(found, _)| *found == kind);
                found.for_each(|(_, entry)| each(place, entry));
            }
        }
    }
}

pub struct Awaited<'a> {
    live: &'a Live,
    key: Key,
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        lock(&self.live.awaited).remove(&self.key);
    }
}

fn put(place: &mut Objects, kind: Kind, entry: Entry) {
    // Six or so, for ten thousand Agents: no room for what never comes.
    place.reserve_exact(1);
    place.push((kind, entry));
}

fn take(objects: &mut HashMap<Place, Objects>, key: &Key) -> Option<Entry> {
    let place = objects.get_mut(&key.place)?;
    let index = place.iter().position(|(kind, _)| *kind == key.kind)?;
    let (_, entry) = place.swap_remove(index);
    if place.is_empty() {
        objects.remove(&key.place);
    }
    Some(entry)
}

/// One watch's part in Live: notes its events and says which Agents they concern.
pub struct Follower {
    live: Arc<Live>,
    kind: Kind,
    /// Empty: all.
    namespace: Box<str>,
    complete: bool,
}

impl Follower {
    pub fn new(live: Arc<Live>, kind: Kind, namespace: &str) -> Self {
        Self { live, kind, namespace: namespace.into(), complete: false }
    }

    pub fn take<S: Sight>(&mut self, event: &watcher::Event<S>) -> Vec<ObjectRef<Kept>> {
        match event {
            watcher::Event::Init => {
                self.live.of_kind(self.kind, &self.namespace, |_, entry| entry.listed = false);
                Vec::new()
            }
            watcher::Event::InitApply(object) => {
                let concerned = self.live.note(object);
                // Before the first list is complete nobody has looked at anything: everybody will.
                if self.complete { concerned } else { Vec::new() }
            }
            watcher::Event::InitDone => self.listed_all(),
            watcher::Event::Apply(object) => self.live.note(object),
            watcher::Event::Delete(object) => {
                self.live.forget(&Key { kind: self.kind, place: Place::of(object) })
            }
        }
    }

    /// What was known and is not listed any more went unseen while the watch was away.
    fn listed_all(&mut self) -> Vec<ObjectRef<Kept>> {
        let mut gone = Vec::new();
        self.live.of_kind(self.kind, &self.namespace, |place, entry| {
            if !entry.listed {
                gone.push(Key { kind: self.kind, place: place.clone() });
            }
        });
        let mut concerned: Vec<_> = gone.iter().flat_map(|key| self.live.forget(key)).collect();
        if self.live.set_known(self.kind, true) {
            concerned.extend(self.live.concerned_by(self.kind));
        }
        self.completed();
        concerned
    }

    /// This cluster has no such kind, or not any more: nothing is left of it.
    pub fn absent(&mut self) -> Vec<ObjectRef<Kept>> {
        let concerned = self.live.concerned_by(self.kind);
        let changed = self.live.set_known(self.kind, false);
        let mut gone = Vec::new();
        self.live.of_kind(self.kind, &self.namespace, |place, _| gone.push(place.clone()));
        for place in gone {
            self.live.removed(&Key { kind: self.kind, place });
        }
        self.completed();
        if changed { concerned } else { Vec::new() }
    }

    fn completed(&mut self) {
        if !std::mem::replace(&mut self.complete, true)
            && self.live.missing.fetch_sub(1, Ordering::AcqRel) == 1
        {
            self.live.complete.notify_waiters();
        }
    }
}

/// The maps hold no invariant that a panic elsewhere could have broken.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
