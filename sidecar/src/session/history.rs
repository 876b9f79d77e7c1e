//! Histories in memory: what a run works on, and the cache that spares a warm call from fetching it again.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use crate::model::Rendering;
use crate::state::{Entry, Message, Meta, Slot, ToolUse};
use crate::store::{Delta, Known, Loaded, SessionHead, StoreError, Tail};

/// What an entry takes beside its bytes.
const ENTRY: usize = 192;

/// A conversation as the store has it, in the hands of the run that holds its lease.
#[derive(Debug)]
pub struct History {
    pub head: SessionHead,
    pub meta: Meta,
    entries: Vec<Entry>,
    /// Of all entries.
    bytes: usize,
    /// What the model's provider has made of it.
    pub rendering: Rendering,
    /// Every tool call id there is; gathered when the first one is needed.
    tool_ids: Option<HashSet<String>>,
}

impl History {
    /// Joins what was cached with what the store says it lacks. Fails closed where the store's bytes are not readable.
    pub fn join(cached: Option<Self>, head: SessionHead, delta: Delta) -> Result<Self, StoreError> {
        let mut history = match cached.filter(|cached| cached.entries.len() >= delta.from) {
            Some(mut cached) => {
                if cached.entries.len() != delta.from || !delta.messages.is_empty() {
                    cached.tool_ids = None;
                }
                let dropped = cached.entries.drain(delta.from..);
                cached.bytes -= dropped.map(|entry| entry.raw().len()).sum::<usize>();
                Self { head, ..cached }
            }
            None => Self::new(head),
        };
        if history.entries.len() != delta.from {
            return Err(StoreError::Corrupt("its history does not continue the cached one".into()));
        }
        if let Some(meta) = delta.meta {
            history.meta = read_meta(&meta)?;
        }
        history.entries.reserve(delta.messages.len());
        for message in delta.messages {
            history.extend([read_entry(message)?]);
        }
        Ok(history)
    }

    fn new(head: SessionHead) -> Self {
        let (meta, rendering) = (Meta::default(), Rendering::default());
        Self { head, meta, entries: Vec::new(), bytes: 0, rendering, tool_ids: None }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub fn extend(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            self.bytes += entry.raw().len();
            self.entries.push(entry);
        }
    }

    /// Of all its messages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn known(&self) -> Known {
        Known {
            epoch: self.head.epoch,
            version: self.head.version,
            len: self.entries.len(),
            tail: Tail::of(self.entries.last().map(|entry| &**entry.raw())),
        }
    }

    /// Gives tool calls whose id was used before in this session a new one: a result must find its call.
    pub fn rename_repeated(&mut self, reply: &mut Message) {
        if reply.tool_uses().next().is_none() {
            return;
        }
        let seen = self.seen_tool_ids();
        for block in &mut reply.content {
            if let crate::state::Block::ToolUse(ToolUse { id, .. }) = block {
                while id.is_empty() || !seen.insert(id.clone()) {
                    *id = format!("t{:032x}", rand::random::<u128>());
                }
            }
        }
    }

    /// Those of a call that goes on from its journal: they are not in the history yet.
    pub fn know_tool_ids(&mut self, journalled: &Message) {
        self.seen_tool_ids().extend(journalled.tool_uses().map(|call| call.id.clone()));
    }

    fn seen_tool_ids(&mut self) -> &mut HashSet<String> {
        let entries = &self.entries;
        self.tool_ids.get_or_insert_with(|| {
            let messages = entries.iter().filter_map(|entry| entry.glance().ok());
            messages
                .flat_map(|message| message.tool_uses().map(|call| call.id.clone()).collect::<Vec<_>>())
                .collect()
        })
    }

    /// What it holds in memory, for the cache's bound.
    fn weight(&self) -> usize {
        512 + self.bytes + self.entries.len() * ENTRY + self.rendering.weight()
    }
}

pub fn read_meta(bytes: &[u8]) -> Result<Meta, StoreError> {
    Meta::from_bytes(bytes).map_err(|error| StoreError::Corrupt(error.to_string()))
}

pub fn read_entry(bytes: crate::store::Blob) -> Result<Entry, StoreError> {
    let entry = Entry::from_bytes(bytes.into_bytes());
    match entry.message() {
        Ok(_) => Ok(entry),
        Err(error) => Err(StoreError::Corrupt(format!("a message in its history is not readable: {error}"))),
    }
}

/// Everything the store has, as messages.
pub fn read_loaded(loaded: Loaded) -> Result<(SessionHead, Meta, Vec<Entry>), StoreError> {
    let meta = read_meta(&loaded.meta)?;
    let entries = loaded.messages.into_iter().map(read_entry).collect::<Result<_, _>>()?;
    Ok((loaded.head, meta, entries))
}

/// Histories nobody is working on, up to a number of bytes. A run takes its history out and puts it back: there is
/// never a copy.
pub struct HistoryCache {
    limit: usize,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    histories: HashMap<Slot, (History, usize, u64)>,
    /// Oldest first; an entry is stale where its number is not the history's.
    order: VecDeque<(Slot, u64)>,
    bytes: usize,
    clock: u64,
}

impl HistoryCache {
    pub fn new(limit: usize) -> Self {
        Self { limit, kept: Mutex::default() }
    }

    pub fn take(&self, slot: &Slot) -> Option<History> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (history, weight, _) = kept.histories.remove(slot)?;
        kept.bytes -= weight;
        Some(history)
    }

    pub fn put(&self, slot: &Slot, history: History) {
        let weight = history.weight();
        if weight > self.limit {
            return;
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let clock = kept.clock;
        if let Some((_, old, _)) = kept.histories.insert(slot.clone(), (history, weight, clock)) {
            kept.bytes -= old;
        }
        kept.bytes += weight;
        kept.order.push_back((slot.clone(), clock));
        kept.shrink(self.limit);
    }

    pub fn bytes(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

impl Kept {
    fn shrink(&mut self, limit: usize) {
        while self.bytes > limit || self.order.len() > 2 * self.histories.len() + 16 {
            let Some((slot, clock)) = self.order.pop_front() else { return };
            if self.histories.get(&slot).is_none_or(|(_, _, current)| *current != clock) {
                continue;
            }
            if self.bytes <= limit {
                self.order.push_back((slot, clock));
            } else if let Some((_, weight, _)) = self.histories.remove(&slot) {
                self.bytes -= weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Block;
    use crate::store::{Blob, Epoch};
    use serde_json::{Map, Value};

    fn head(version: u64) -> SessionHead {
        let revision = String::new();
        SessionHead { created: 1, version, epoch: Epoch(7), turns: 0, revision, interrupted: false }
    }

    fn history(messages: usize) -> History {
        let mut history = History::new(head(1));
        history.extend((0..messages).map(|n| Message::user(format!("message {n}")).into()));
        history
    }

    fn slot(n: usize) -> Slot {
        Slot::new(None, &n.to_string()).expect("ids")
    }

    #[test]
    fn the_cache_never_outgrows_its_bytes_and_drops_the_oldest_first() {
        let one = history(10).weight();
        let cache = HistoryCache::new(3 * one + 100);
        for n in 0..10 {
            cache.put(&slot(n), history(10));
            assert!(cache.bytes() <= 3 * one + 100);
        }
        assert!(cache.take(&slot(0)).is_none());
        assert!(cache.take(&slot(9)).is_some());
    }

    #[test]
    fn putting_one_history_back_a_million_times_leaves_one_history() {
        let cache = HistoryCache::new(1 << 20);
        for _ in 0..1000 {
            cache.put(&slot(1), history(1));
            let history = cache.take(&slot(1)).expect("it was just put");
            cache.put(&slot(1), history);
        }
        assert!(cache.kept.lock().expect("lock").order.len() < 64);
    }

    #[test]
    fn unreadable_bytes_are_an_error_and_never_an_empty_history() {
        let delta = Delta { from: 0, messages: vec![Blob::from(&b"{\"role\":"[..])], meta: None };
        assert!(matches!(History::join(None, head(1), delta), Err(StoreError::Corrupt(_))));
        let delta =
            Delta { from: 0, messages: vec![], meta: Some(Blob::from(&b"{\"schemaVersion\":9}"[..])) };
        assert!(matches!(History::join(None, head(1), delta), Err(StoreError::Corrupt(_))));
    }

    #[test]
    fn a_repeated_tool_call_id_gets_a_new_one() {
        let call = |id: &str| {
            Block::ToolUse(ToolUse { id: id.into(), name: "f".into(), input: Value::Null, extra: Map::new() })
        };
        let mut history = history(0);
        history.extend([Message::assistant(vec![call("call_0")]).into()]);
        let mut reply = Message::assistant(vec![call("call_0"), call("call_1"), call("call_1"), call("")]);
        history.rename_repeated(&mut reply);
        let ids: Vec<_> = reply.tool_uses().map(|call| call.id.clone()).collect();
        assert_eq!(ids[1], "call_1");
        let unique: HashSet<_> = ids.iter().chain([&"call_0".to_owned()]).cloned().collect();
        assert_eq!(unique.len(), 5);
    }
}
