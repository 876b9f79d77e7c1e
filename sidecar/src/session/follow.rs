//! Waiting for a call: on this replica's own run where there is one, in the store everywhere else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{Instant, sleep_until};

use super::Shared;
use super::board::{DeskRef, Feed, FeedEnd};
use super::error::CallError;
use super::settings::waits;
use super::ticks::Watch;
use crate::state::{CallId, Slot};
use crate::store::{CallStatus, EventId, LiveCall, LoggedEvent, Reply, StoreError};

/// What there is to tell a client next.
#[derive(Debug)]
pub enum News {
    Events(Vec<LoggedEvent>),
    /// What followed the last event seen is no longer in the log; what is left of it.
    Gap(Vec<LoggedEvent>),
    Ended(Arc<Reply>),
    /// Nobody on this replica can say how it ends: it goes on elsewhere, and must be asked for there.
    LetGo,
}

/// One client's view of one call. Dropping it changes nothing for the call.
pub struct Follower {
    shared: Arc<Shared>,
    slot: Slot,
    call: CallId,
    desk: DeskRef,
    last: Option<EventId>,
    /// The feed whose run's earlier events have been read from the store, after it was opened. Every run's feed anew: what
    /// a run on this very replica logged without seeing the answer is in the log and was never published.
    caught_up: Option<Arc<Feed>>,
    /// This replica gave the call back under this fence; it relays whoever takes it.
    relay: Option<Relay>,
    failing_since: Option<Instant>,
    /// It is no use to wait here any longer: one last look, and no more.
    leaving: bool,
}

struct Relay {
    fence: u64,
    taken_by: Instant,
    ends: Instant,
}

impl Follower {
    pub(super) fn new(
        shared: &Arc<Shared>,
        slot: &Slot,
        call: &CallId,
        desk: DeskRef,
        after: Option<EventId>,
    ) -> Self {
        desk.join(call);
        Self {
            shared: Arc::clone(shared),
            slot: slot.clone(),
            call: call.clone(),
            desk,
            last: after,
            caught_up: None,
            relay: None,
            failing_since: None,
            leaving: false,
        }
    }

    pub fn call(&self) -> &CallId {
        &self.call
    }

    /// Waits for the end, without the events on the way.
    pub async fn outcome(&mut self) -> Result<News, CallError> {
        self.advance(false).await
    }

    /// The next events, or the end.
    pub async fn next(&mut self) -> Result<News, CallError> {
        self.advance(true).await
    }

    async fn advance(&mut self, events: bool) -> Result<News, CallError> {
        loop {
            let mut published = self.desk.publications();
            if let Some(feed) = self.desk.feed(&self.call) {
                if events {
                    if !feed.whole && !self.caught_up_with(&feed) {
                        let news = self.look(true).await?;
                        if self.failing_since.is_none() {
                            self.caught_up = Some(Arc::clone(&feed));
                        }
                        if let Some(news) = news {
                            return Ok(news);
                        }
                        if self.failing_since.is_some() {
                            // What was logged before must be told first: it is not skipped because the store is away.
                            if self.leaving {
                                return Ok(News::LetGo);
                            }
                            self.leaving = !self.wait_for_a_change(&mut published).await;
                            continue;
                        }
                    }
                    let news = feed.after(self.last);
                    if let Some(last) = news.last() {
                        self.last = Some(last.id);
                        return Ok(News::Events(news));
                    }
                }
                match feed.end() {
                    Some(FeedEnd::Done(reply)) => return Ok(News::Ended(reply)),
                    Some(FeedEnd::Broken(error)) => {
                        return Err(CallError::store(&self.call, Some(true))(error));
                    }
                    Some(FeedEnd::Suspended { fence }) => self.start_relay(fence),
                    Some(FeedEnd::Lost) => {}
                    None => {
                        tokio::select! {
                            biased;
                            () = published.ticked() => continue,
                            () = self.shared.phase.end() => {}
                        }
                    }
                }
            }
            self.caught_up = None;
            if let Some(news) = self.look(events).await? {
                return Ok(news);
            }
            if self.leaving {
                return Ok(News::LetGo);
            }
            // What was stored just before is still told: the loop looks once more.
            self.leaving = !self.wait_for_a_change(&mut published).await;
        }
    }

    fn caught_up_with(&self, feed: &Arc<Feed>) -> bool {
        self.caught_up.as_ref().is_some_and(|known| Arc::ptr_eq(known, feed))
    }

    fn start_relay(&mut self, fence: u64) {
        if self.relay.is_none() {
            let now = Instant::now();
            let ends = now + self.shared.settings.relay_timeout;
            self.relay = Some(Relay { fence, taken_by: now + waits::TAKEOVER, ends });
        }
    }

    /// Asks the store. `None` where the call is live and there is nothing new.
    async fn look(&mut self, events: bool) -> Result<Option<News>, CallError> {
        let status = if events {
            match self.shared.store.events(&self.slot, &self.call, self.last).await {
                Ok(page) => {
                    self.failing_since = None;
                    if page.gap {
                        self.last = page.events.last().map(|event| event.id).or(self.last);
                        return Ok(Some(News::Gap(page.events)));
                    }
                    if let Some(last) = page.events.last() {
                        self.last = Some(last.id);
                        return Ok(Some(News::Events(page.events)));
                    }
                    page.status
                }
                Err(error) => return self.bear(error),
            }
        } else {
            match self.shared.store.status(&self.slot, &self.call).await {
                Ok(status) => status,
                Err(error) => return self.bear(error),
            }
        };
        self.failing_since = None;
        match status {
            CallStatus::Live(live) => {
                self.seen_alive(&live);
                Ok(None)
            }
            CallStatus::Done(reply) => Ok(Some(News::Ended(Arc::new(reply)))),
            CallStatus::Expired => Err(CallError::ReplyExpired),
            CallStatus::Deleted => Err(CallError::SessionDeleted),
            CallStatus::Unknown => Err(CallError::UnknownCall),
        }
    }

    /// A short outage is not the client's business.
    fn bear(&mut self, error: StoreError) -> Result<Option<News>, CallError> {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        if error.is_transient() && since.elapsed() < waits::STORE_OUTAGE {
            return Ok(None);
        }
        Err(CallError::store(&self.call, Some(true))(error))
    }

    fn seen_alive(&mut self, live: &LiveCall) {
        if let Some(relay) = &mut self.relay
            && live.running
            && live.fence > relay.fence
        {
            // Somebody has it: now only the relay's own time counts, until that one gives it back too.
            relay.taken_by = relay.ends;
        }
    }

    /// `false` when it is no use waiting here any longer.
    async fn wait_for_a_change(&mut self, published: &mut Watch) -> bool {
        let now = Instant::now();
        let mut until = now + waits::POLL;
        if let Some(relay) = &self.relay {
            let limit = relay.taken_by.min(relay.ends);
            if now >= limit {
                return false;
            }
            until = until.min(limit);
        } else if self.shared.phase.stopping() {
            // A call that waited here when the work stopped: another replica will take it, as if it had been given back.
            self.start_relay(0);
        }
        let mut announced = self.desk.announcements();
        let _waiting = Waiting::new(&self.shared.waiting);
        tokio::select! {
            biased;
            () = self.shared.phase.end() => return false,
            () = published.ticked() => {}
            () = announced.ticked() => {}
            () = sleep_until(until) => {
                // Nothing was announced: see for ourselves whether the slot is free. Whoever finds it free runs it.
                if self.shared.phase.accepting() && self.desk.feed(&self.call).is_none() {
                    // Not in this future, which a client may drop: a lease that was granted must find its run. An
                    // error is met again, and told, by the next look.
                    let (shared, slot) = (Arc::clone(&self.shared), self.slot.clone());
                    let _ = self.shared.errands.spawn(async move { shared.take_over(&slot).await }).await;
                }
            }
        }
        true
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.desk.leave(&self.call);
    }
}

/// Counts a follower for as long as it waits.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
