//! A count that others wait on. They are woken in the order they came, so that a run of many waiters can be repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

#[derive(Clone, Default)]
pub struct Ticks(Arc<Inner>);

#[derive(Default)]
struct Inner {
    count: AtomicU64,
    ticked: Notify,
}

impl Ticks {
    pub fn tick(&self) {
        self.0.count.fetch_add(1, Ordering::AcqRel);
        self.0.ticked.notify_waiters();
    }

    /// Waits for ticks from now on.
    pub fn watch(&self) -> Watch {
        Watch { ticks: self.clone(), seen: self.0.count.load(Ordering::Acquire) }
    }
}

pub struct Watch {
    ticks: Ticks,
    seen: u64,
}

impl Watch {
    /// Returns at once where there was a tick since the last time. Loses none when it is dropped half-way.
    pub async fn ticked(&mut self) {
        loop {
            // Made before the count is read: a tick in between wakes it.
            let ticked = self.ticks.0.ticked.notified();
            let count = self.ticks.0.count.load(Ordering::Acquire);
            if count != self.seen {
                self.seen = count;
                return;
            }
            ticked.await;
        }
    }
}
