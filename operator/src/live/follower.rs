//! One watch's part in Live: notes its events and says which Agents they concern.

use std::sync::Arc;

use kube::runtime::watcher::Event;

use super::{Key, Kind, Live, Place};
use crate::seen::Sight;

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

    pub fn take<S: Sight>(&mut self, event: &Event<S>) -> Vec<Place> {
        match event {
            Event::Init => {
                self.live.of_kind(self.kind, &self.namespace, |_, entry| entry.listed = false);
                Vec::new()
            }
            Event::InitApply(object) => {
                let concerned = self.live.note(object);
                // Before the first list is complete nobody has looked at anything: everybody will.
                if self.complete { concerned } else { Vec::new() }
            }
            Event::InitDone => self.listed_all(),
            Event::Apply(object) => self.live.note(object),
            Event::Delete(object) => self.live.forget(&Key { kind: self.kind, place: Place::of(object) }),
        }
    }

    /// What was known and is not listed any more went unseen while the watch was away.
    fn listed_all(&mut self) -> Vec<Place> {
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
    pub fn absent(&mut self) -> Vec<Place> {
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
        if !std::mem::replace(&mut self.complete, true) {
            self.live.listed_once();
        }
    }
}
