//! A session: one slot, one run at a time, nothing lost.
//!
//! ```text
//! Sessions ── call ─▶ begin ─┬─ granted ─▶ run ─▶ call ─▶ (ask, tools)* ─▶ end    one lease, call after call
//!                            └─ waiting ─▶ follow ◀── board ◀── announcements
//! recovery: looks for work nobody has, once a second, and takes it
//! ```
//!
//! Sits between the API above and engine, store, model and tools below. It decides nothing about who may run (the store
//! does) or what comes next (the engine does): it carries one's answers to the other, in an order that survives a
//! crash at any line: journal, then act.

mod admin;
mod board;
mod call;
mod end;
mod error;
mod events;
mod follow;
mod history;
mod lease;
mod phase;
mod recovery;
mod reply;
mod run;
pub mod settings;
mod tools;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::task::TaskTracker;

pub use admin::StateChangeError;
pub use end::{CallFailure, CallUsage};
pub use error::CallError;
pub use events::with_message;
pub use follow::{Follower, News};
pub use reply::{CallView, Status};
pub use settings::{Durability, Settings};
pub use tools::OUTCOME_UNKNOWN;

use board::Board;
use history::HistoryCache;
use phase::Phase;

use crate::model::{CallContext, Model};
use crate::state::{CallId, Entry, Message, Slot};
use crate::store::{Begin, Begun, Blob, EventId, Reply, Retried, Retry, Store};
use crate::tools::Tools;

/// The sessions of one agent, as one replica serves them. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    model: Arc<dyn Model>,
    tools: Arc<dyn Tools>,
    settings: Settings,
    cache: HistoryCache,
    board: Arc<Board>,
    phase: Phase,
    /// Runs: what a drain waits for.
    runs: TaskTracker,
    /// Short claims on behalf of announcements.
    errands: TaskTracker,
    running: AtomicUsize,
    /// Calls that have killed two replicas run one at a time.
    suspects: Semaphore,
    /// Slots this replica gave back because it was busy with a suspect, and until when it leaves them to others.
    deferred: Mutex<HashMap<Slot, Instant>>,
}

/// A call as a client asks for it.
#[derive(Debug, Clone)]
pub struct CallRequest {
    pub call: CallId,
    pub messages: Vec<Message>,
    pub context: CallContext,
    pub stream: bool,
}

/// What became of a call when it came in.
pub enum Admitted {
    /// Live, here or elsewhere.
    Live(Follower),
    /// It had ended before.
    Done(Arc<Reply>),
}

impl Sessions {
    pub fn new(
        store: Arc<dyn Store>,
        model: Arc<dyn Model>,
        tools: Arc<dyn Tools>,
        settings: Settings,
    ) -> Self {
        let shared = Arc::new(Shared {
            cache: HistoryCache::new(settings.cache_bytes),
            store,
            model,
            tools,
            settings,
            board: Arc::default(),
            phase: Phase::default(),
            runs: TaskTracker::new(),
            errands: TaskTracker::new(),
            running: AtomicUsize::new(0),
            suspects: Semaphore::new(1),
            deferred: Mutex::default(),
        });
        Self { shared }
    }

    /// Listens to the store and looks for work nobody has, until it is dropped.
    pub async fn attend(&self) {
        let shared = &self.shared;
        tokio::select! {
            () = Arc::clone(shared).listen() => {}
            () = Arc::clone(shared).look_for_work() => {}
            () = shared.phase.stop() => {
                // Announcements still matter to whoever relays.
                Arc::clone(shared).listen().await;
            }
        }
    }

    pub async fn call(&self, slot: &Slot, request: CallRequest) -> Result<Admitted, CallError> {
        let shared = &self.shared;
        if !shared.phase.accepting() {
            return Err(CallError::Draining { admitted: false });
        }
        if !shared.has_room() {
            return Err(CallError::Overloaded);
        }
        let desk = shared.board.desk(slot);
        let cached = shared.cache.take(slot);
        let begin = Begin {
            digest: digest(&request.messages),
            input: request.messages.into_iter().map(stamped).collect(),
            context: context_bytes(&request.context),
            revision: shared.settings.revision.clone(),
            stream: request.stream,
            on_busy: shared.settings.on_busy,
            queued: events::about(&request.call),
            claim: shared.claim_request(cached.as_ref()),
            call: request.call,
        };
        let sent = Instant::now();
        let begun = match shared.store.begin(slot, &begin).await {
            // The same request, with the same nonce: if the first was carried out, this only asks for its answer.
            Err(error) if error.may_have_happened() => {
                let again = shared.store.begin(slot, &begin).await;
                again.map_err(CallError::store(&begin.call, None))?
            }
            begun => begun.map_err(CallError::store(&begin.call, Some(false)))?,
        };
        let call = begin.call;
        match begun {
            Begun::Granted(grant) => {
                let follower = Follower::new(shared, slot, &call, desk.clone(), None);
                let launched = shared.launch(slot.clone(), desk, *grant, cached, sent);
                launched.map_err(CallError::store(&call, Some(true)))?;
                Ok(Admitted::Live(follower))
            }
            other => {
                if let Some(cached) = cached {
                    shared.cache.put(slot, cached);
                }
                match other {
                    Begun::Granted(_) | Begun::Waiting { .. } => {
                        Ok(Admitted::Live(Follower::new(shared, slot, &call, desk, None)))
                    }
                    Begun::Done(reply) => Ok(Admitted::Done(Arc::new(reply))),
                    Begun::Expired => Err(CallError::ReplyExpired),
                    Begun::Conflict => Err(CallError::Conflict),
                    Begun::Deleted => Err(CallError::SessionDeleted),
                    Begun::Full => Err(CallError::QueueFull),
                    Begun::SessionBusy => Err(CallError::SessionBusy),
                }
            }
        }
    }

    /// Goes on with the session's last call, if it failed.
    pub async fn retry(
        &self,
        slot: &Slot,
        call: &CallId,
        context: &CallContext,
        stream: bool,
    ) -> Result<Admitted, CallError> {
        let shared = &self.shared;
        if !shared.phase.accepting() {
            return Err(CallError::Draining { admitted: false });
        }
        let seen = match shared.store.status(slot, call).await? {
            crate::store::CallStatus::Done(reply) => reply.retry,
            _ => 0,
        };
        let desk = shared.board.desk(slot);
        let cached = shared.cache.take(slot);
        let retry = Retry {
            call: call.clone(),
            seen,
            context: context_bytes(context),
            revision: shared.settings.revision.clone(),
            stream,
            queued: events::about(call),
            claim: shared.claim_request(cached.as_ref()),
        };
        let sent = Instant::now();
        match shared.store.retry(slot, &retry).await.map_err(CallError::store(call, None))? {
            Retried::Granted(grant) => {
                let follower = Follower::new(shared, slot, call, desk.clone(), None);
                let launched = shared.launch(slot.clone(), desk, *grant, cached, sent);
                launched.map_err(CallError::store(call, Some(true)))?;
                Ok(Admitted::Live(follower))
            }
            Retried::Waiting { .. } => Ok(Admitted::Live(Follower::new(shared, slot, call, desk, None))),
            Retried::Done(reply) => Ok(Admitted::Done(Arc::new(reply))),
            Retried::NotRetryable => Err(CallError::NotRetryable),
            Retried::SessionBusy => Err(CallError::SessionBusy),
            Retried::Unknown => Err(CallError::UnknownCall),
        }
    }

    /// Joins a call that was admitted before, on any replica.
    pub fn follow(&self, slot: &Slot, call: &CallId, after: Option<EventId>) -> Follower {
        Follower::new(&self.shared, slot, call, self.shared.board.desk(slot), after)
    }

    /// Whether new calls are taken.
    pub fn accepting(&self) -> bool {
        self.shared.phase.accepting()
    }

    /// Calls that run on this replica.
    pub fn running(&self) -> usize {
        self.shared.running.load(Ordering::Relaxed)
    }

    /// Lets running calls go on for the drain's time, then gives them back. Returns when nothing runs here any more.
    pub async fn drain(&self) {
        let shared = &self.shared;
        let idle = async {
            while shared.running.load(Ordering::Relaxed) > 0 {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let ended = timeout(shared.settings.drain_timeout, idle).await.is_ok();
        tracing::info!(ended, "the drain's time is over; nothing new starts");
        self.stop().await;
    }

    /// Gives everything back at once and waits for it.
    pub async fn stop(&self) {
        self.shared.phase.enter_stop();
        self.shared.runs.close();
        self.shared.errands.close();
        self.shared.errands.wait().await;
        self.shared.runs.wait().await;
    }

    /// Lets go of every client that still waits here.
    pub fn let_go(&self) {
        self.shared.phase.enter_end();
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.shared.store
    }

    pub fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    /// Slots that anybody on this replica waits for or works on; bytes of histories in memory.
    pub fn footprint(&self) -> (usize, usize) {
        (self.shared.board.desks(), self.shared.cache.bytes())
    }
}

impl Shared {
    fn has_room(&self) -> bool {
        self.phase.accepting() && self.running.load(Ordering::Relaxed) < self.settings.max_running_calls
    }
}

/// Of what was said, not of how it is to be answered: ids and times that a server adds are left out.
fn digest(messages: &[Message]) -> String {
    let mut hash = Sha256::new();
    for message in messages {
        let said = serde_json::json!([message.role, message.content, message.name, message.extra]);
        let said = said.to_string();
        hash.update((said.len() as u64).to_be_bytes());
        hash.update(said);
    }
    use base64::Engine;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(hash.finalize())
}

fn stamped(mut message: Message) -> Blob {
    message.timestamp.get_or_insert_with(events::timestamp);
    Entry::new(message).raw().clone().into()
}

fn context_bytes(context: &CallContext) -> Blob {
    if *context == CallContext::default() { Blob::empty() } else { Blob::json(context) }
}
