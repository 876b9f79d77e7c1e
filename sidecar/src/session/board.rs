//! Who on this replica waits for what: the desk of a slot, and the feed of a call that runs here.
//!
//! A feed only carries what is in the store already, so that nobody is ever told something that can be lost.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ticks::{Ticks, Watch};
use crate::state::{CallId, Slot};
use crate::store::{EventId, LoggedEvent, Reply, StoreError};

#[derive(Default)]
pub struct Board {
    desks: Mutex<HashMap<Slot, Arc<Desk>>>,
}

/// One slot's waiters and its running call.
pub struct Desk {
    slot: Slot,
    /// Counts what the store announced about this slot.
    announced: Ticks,
    /// Counts what the run on this replica published.
    published: Ticks,
    calls: Mutex<HashMap<CallId, Watched>>,
}

/// A call that runs here, or that somebody here waits for. Gone with the last of both.
#[derive(Default)]
struct Watched {
    feed: Option<Arc<Feed>>,
    followers: usize,
}

/// Keeps a desk on the board for as long as anybody needs it.
pub struct DeskRef {
    board: Arc<Board>,
    desk: Arc<Desk>,
}

impl Board {
    pub fn desk(self: &Arc<Self>, slot: &Slot) -> DeskRef {
        let mut desks = lock(&self.desks);
        let desk = desks.entry(slot.clone()).or_insert_with(|| {
            Arc::new(Desk {
                slot: slot.clone(),
                announced: Ticks::default(),
                published: Ticks::default(),
                calls: Mutex::default(),
            })
        });
        DeskRef { board: Arc::clone(self), desk: Arc::clone(desk) }
    }

    /// Wakes whoever waits for this slot. `false` where nobody does.
    pub fn announce(&self, slot: &Slot) -> bool {
        let desk = lock(&self.desks).get(slot).cloned();
        desk.inspect(|desk| desk.announced.tick()).is_some()
    }

    /// Wakes everybody: announcements were missed.
    pub fn announce_all(&self) {
        for desk in lock(&self.desks).values() {
            desk.announced.tick();
        }
    }

    pub fn desks(&self) -> usize {
        lock(&self.desks).len()
    }
}

impl Deref for DeskRef {
    type Target = Desk;
    fn deref(&self) -> &Desk {
        &self.desk
    }
}

impl Clone for DeskRef {
    fn clone(&self) -> Self {
        Self { board: Arc::clone(&self.board), desk: Arc::clone(&self.desk) }
    }
}

impl Drop for DeskRef {
    fn drop(&mut self) {
        let mut desks = lock(&self.board.desks);
        // The board's and ours: new ones are only made under this lock.
        if Arc::strong_count(&self.desk) == 2 {
            desks.remove(&self.desk.slot);
        }
    }
}

impl Desk {
    pub fn announcements(&self) -> Watch {
        self.announced.watch()
    }

    pub fn publications(&self) -> Watch {
        self.published.watch()
    }

    pub fn feed(&self, call: &CallId) -> Option<Arc<Feed>> {
        lock(&self.calls).get(call)?.feed.clone()
    }

    /// Somebody waits for this call: the end of its run is kept until they have seen it.
    pub fn join(&self, call: &CallId) {
        lock(&self.calls).entry(call.clone()).or_default().followers += 1;
    }

    pub fn leave(&self, call: &CallId) {
        let mut calls = lock(&self.calls);
        if let Some(watched) = calls.get_mut(call) {
            watched.followers -= 1;
            let ended = watched.feed.as_ref().is_none_or(|feed| feed.end().is_some());
            if watched.followers == 0 && ended {
                calls.remove(call);
            }
        }
    }

    /// A run of `call` starts here. `whole`: its log holds nothing from before.
    pub fn open_feed(&self, call: &CallId, whole: bool) -> Arc<Feed> {
        let feed = Arc::new(Feed { whole, log: Mutex::default() });
        lock(&self.calls).entry(call.clone()).or_default().feed = Some(Arc::clone(&feed));
        self.tick();
        feed
    }

    pub fn publish(&self, feed: &Feed, events: impl IntoIterator<Item = LoggedEvent>) {
        lock(&feed.log).events.extend(events);
        self.tick();
    }

    /// The first end counts.
    pub fn end_feed(&self, call: &CallId, feed: &Arc<Feed>, end: FeedEnd) {
        let lost = matches!(lock(&feed.log).end.get_or_insert(end), FeedEnd::Lost);
        let mut calls = lock(&self.calls);
        if let Some(watched) = calls.get_mut(call)
            && watched.feed.as_ref().is_some_and(|current| Arc::ptr_eq(current, feed))
        {
            if lost {
                watched.feed = None;
            }
            if watched.followers == 0 {
                calls.remove(call);
            }
        }
        drop(calls);
        self.tick();
    }

    fn tick(&self) {
        self.published.tick();
    }
}

/// The events of one run of one call, from its first on.
pub struct Feed {
    /// No earlier run and no earlier event: whoever reads this has read all there is.
    pub whole: bool,
    log: Mutex<FeedLog>,
}

#[derive(Default)]
struct FeedLog {
    events: Vec<LoggedEvent>,
    end: Option<FeedEnd>,
}

#[derive(Clone)]
pub enum FeedEnd {
    Done(Arc<Reply>),
    /// Given back unfinished, under this fence.
    Suspended {
        fence: u64,
    },
    /// Another replica has it now, or nobody.
    Lost,
    /// What is stored cannot be used.
    Broken(StoreError),
}

impl Feed {
    pub fn after(&self, last: Option<EventId>) -> Vec<LoggedEvent> {
        let log = lock(&self.log);
        let from = log.events.partition_point(|event| last.is_some_and(|last| event.id <= last));
        log.events[from..].to_vec()
    }

    pub fn end(&self) -> Option<FeedEnd> {
        lock(&self.log).end.clone()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is ever half-changed under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
