//! Who points at what, whether it exists or not.

use std::collections::{BTreeSet, HashMap};

use super::{Key, Kind, Place};

#[derive(Default)]
pub(super) struct Mentions {
    by_object: HashMap<Key, BTreeSet<Place>>,
    by_agent: HashMap<Place, Vec<Key>>,
}

impl Mentions {
    /// From now on, and until it mentions something else, this Agent hears of these.
    pub(super) fn set(&mut self, agent: &Place, keys: &[Key]) {
        if self.by_agent.get(agent).map_or(&[][..], Vec::as_slice) == keys {
            return;
        }
        for gone in self.by_agent.remove(agent).into_iter().flatten() {
            if let Some(agents) = self.by_object.get_mut(&gone) {
                agents.remove(agent);
                if agents.is_empty() {
                    self.by_object.remove(&gone);
                }
            }
        }
        if keys.is_empty() {
            return;
        }
        // One name, however many Agents mention it.
        let known = |key: &Key| self.by_object.get_key_value(key).map_or(key, |(known, _)| known).clone();
        let keys: Vec<Key> = keys.iter().map(known).collect();
        for key in &keys {
            self.by_object.entry(key.clone()).or_default().insert(agent.clone());
        }
        self.by_agent.insert(agent.clone(), keys);
    }

    pub(super) fn of(&self, key: &Key) -> impl Iterator<Item = &Place> {
        self.by_object.get(key).into_iter().flatten()
    }

    pub(super) fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &Place> {
        self.by_object.iter().filter(move |(key, _)| key.kind == kind).flat_map(|(_, agents)| agents)
    }
}
