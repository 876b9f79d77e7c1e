//! What is in the cluster, as the watches tell it: of each object only what a reconcile asks about.
//!
//! ```text
//! watch event ──▶ Live (which version there is, whose it is) ──▶ the Agents to look at again
//! apply ────────▶   the same, from its own answer: the event that follows is no news
//! ```
//! An owned object wakes its owner. A Secret, ConfigMap or claim wakes every Agent that mentioned it, even before
//! it exists: an Agent mentions first and looks afterwards, an event is noted first and asked for mentions
//! afterwards, so none is missed between the two.

mod entry;
mod follower;
mod mentions;
mod place;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::sync::Notify;

use crate::seen::Sight;
use entry::News;
use mentions::Mentions;

pub use entry::Entry;
pub use follower::Follower;
pub use place::{Key, Kind, Place};

/// All objects of one place: those of an Agent mostly bear its name.
type Objects = Vec<(Kind, Entry)>;

#[derive(Default)]
struct Known {
    objects: HashMap<Place, Objects>,
    /// Agents all of whose objects are as they were applied, and a hash of what that was made of.
    settled: HashMap<Place, u64>,
}

/// Everything the watches have told.
pub struct Live {
    known: Mutex<Known>,
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
            known: Mutex::default(),
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

    /// A watch has listed everything there is, for the first time.
    pub fn listed_once(&self) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete.notify_waiters();
        }
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
        lock(&self.known).get(key).cloned()
    }

    /// An apply is about to be sent: until this is dropped, or its answer noted, what is seen of it is no news. Whoever
    /// gives up meanwhile will look again.
    pub fn awaits(&self, key: &Key) -> Awaited<'_> {
        lock(&self.awaited).insert(key.clone());
        Awaited { live: self, key: key.clone() }
    }

    /// What a write of our own has just made. Whether more has happened to it since.
    pub fn wrote<S: Sight>(&self, key: &Key, object: &S, hash: u64, replicas: Option<i32>) -> bool {
        let mut known = lock(&self.known);
        lock(&self.awaited).remove(key);
        let mut wrote = Entry::of(object);
        wrote.applied = Some(hash);
        let Some(before) = known.get_mut(key) else {
            wrote.follow(object.meta(), replicas);
            known.put(key, wrote);
            return false;
        };
        if before.uid == wrote.uid && wrote.version.is_older_than(&before.version) {
            before.applied = Some(hash).filter(|_| before.mark == wrote.mark);
            return true;
        }
        wrote.rollout = before.rollout.take();
        wrote.follow(object.meta(), replicas);
        *before = wrote;
        false
    }

    pub fn removed(&self, key: &Key) {
        lock(&self.known).take(key);
    }

    /// All of these were applied, made of what has this hash: until one of them changes there is no need to make them
    /// again and compare.
    pub fn settle(&self, agent: &Place, made_of: u64, keys: &[Key]) {
        let mut known = lock(&self.known);
        if keys.iter().all(|key| known.get(key).is_some_and(Entry::is_settled)) {
            known.settled.insert(agent.clone(), made_of);
        }
    }

    pub fn is_settled(&self, agent: &Place, made_of: u64) -> bool {
        lock(&self.known).settled.get(agent) == Some(&made_of)
    }

    /// From now on, and until it mentions something else, this Agent hears of these.
    pub fn mention(&self, agent: &Place, keys: &[Key]) {
        lock(&self.mentions).set(agent, keys);
    }

    /// An Agent is gone.
    pub fn dismiss(&self, agent: &Place) {
        self.mention(agent, &[]);
        lock(&self.known).settled.remove(agent);
    }

    fn concerned(&self, key: &Key, owners: impl IntoIterator<Item = Place>) -> Vec<Place> {
        lock(&self.mentions).of(key).cloned().chain(owners).collect()
    }

    /// Everybody who mentioned an object of this kind, or has one.
    fn concerned_by(&self, kind: Kind) -> Vec<Place> {
        let mut concerned = Vec::new();
        self.of_kind(kind, "", |place, entry| concerned.extend(entry.owner_at(place)));
        concerned.extend(lock(&self.mentions).of_kind(kind).cloned());
        concerned
    }

    fn note<S: Sight>(&self, object: &S) -> Vec<Place> {
        let key = Key { kind: S::KIND, place: Place::of(object) };
        let entry = Entry::of(object);
        let owner = entry.owner_at(&key.place);
        let (news, former) = {
            let mut known = lock(&self.known);
            let (news, former) = match known.get_mut(&key) {
                Some(before) => {
                    let former = before.owner_at(&key.place).filter(|former| owner.as_ref() != Some(former));
                    (before.see(entry), former)
                }
                None => {
                    known.put(&key, entry);
                    (News::Changed, None)
                }
            };
            if news == News::Changed {
                owner.iter().chain(&former).for_each(|agent| known.unsettle(agent));
            }
            (news, former)
        };
        if news == News::None || lock(&self.awaited).contains(&key) {
            return Vec::new();
        }
        self.concerned(&key, owner.into_iter().chain(former))
    }

    fn forget(&self, key: &Key) -> Vec<Place> {
        let owner = {
            let mut known = lock(&self.known);
            let owner = known.take(key).and_then(|entry| entry.owner_at(&key.place));
            owner.iter().for_each(|agent| known.unsettle(agent));
            owner
        };
        self.concerned(key, owner)
    }

    /// Every entry of a kind in a namespace, or in all.
    fn of_kind(&self, kind: Kind, namespace: &str, mut each: impl FnMut(&Place, &mut Entry)) {
        for (place, objects) in &mut lock(&self.known).objects {
            if namespace.is_empty() || place.namespace() == namespace {
                let found = objects.iter_mut().filter(|(found, _)| *found == kind);
                found.for_each(|(_, entry)| each(place, entry));
            }
        }
    }
}

impl Known {
    fn get(&self, key: &Key) -> Option<&Entry> {
        self.objects.get(&key.place)?.iter().find(|(kind, _)| *kind == key.kind).map(|(_, entry)| entry)
    }

    fn get_mut(&mut self, key: &Key) -> Option<&mut Entry> {
        let place = self.objects.get_mut(&key.place)?;
        place.iter_mut().find(|(kind, _)| *kind == key.kind).map(|(_, entry)| entry)
    }

    fn put(&mut self, key: &Key, entry: Entry) {
        let place = self.objects.entry(key.place.clone()).or_default();
        // Six or so, for ten thousand Agents: no room for what never comes.
        place.reserve_exact(1);
        place.push((key.kind, entry));
    }

    fn take(&mut self, key: &Key) -> Option<Entry> {
        let place = self.objects.get_mut(&key.place)?;
        let index = place.iter().position(|(kind, _)| *kind == key.kind)?;
        let (_, entry) = place.swap_remove(index);
        if place.is_empty() {
            self.objects.remove(&key.place);
        }
        Some(entry)
    }

    fn unsettle(&mut self, agent: &Place) {
        self.settled.remove(agent);
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

/// The maps hold no invariant that a panic elsewhere could have broken.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
