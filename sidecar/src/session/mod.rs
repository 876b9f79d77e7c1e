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
mod admit;
mod board;
mod call;
mod document;
mod end;
mod error;
mod events;
mod files;
mod follow;
mod history;
mod lease;
mod phase;
mod recovery;
mod reply;
mod run;
mod seen_through;
pub mod settings;
mod ticks;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::task::TaskTracker;

pub use admin::StateChangeError;
pub use document::StateDocument;
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
use seen_through::SeenThrough;

use crate::model::{CallContext, Model};
use crate::state::{CallId, Message, Slot};
use crate::store::{EventId, Reply, Store};
use crate::tools::Tools;
use crate::workspace::Workspace;

/// The sessions of one agent, as one replica serves them. Cheap to clone.
#[derive(Clone)]
pub struct Sessions {
    shared: Arc<Shared>,
}

struct Shared {
    store: Arc<dyn Store>,
    model: Arc<dyn Model>,
    tools: Arc<dyn Tools>,
    workspace: Option<Workspace>,
    settings: Settings,
    cache: HistoryCache,
    board: Arc<Board>,
    phase: Phase,
    /// Runs: what a drain waits for.
    runs: TaskTracker,
    /// Short claims on behalf of announcements.
    errands: TaskTracker,
    running: AtomicUsize,
    /// Followers whose call waits its turn or runs elsewhere.
    waiting: AtomicUsize,
    /// Whoever runs a call that may have killed its replicas has it: one at a time.
    suspect: Arc<Semaphore>,
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
        Self::with_workspace(store, model, tools, settings, None)
    }

    /// With files that follow the sessions.
    pub fn with_workspace(
        store: Arc<dyn Store>,
        model: Arc<dyn Model>,
        tools: Arc<dyn Tools>,
        settings: Settings,
        workspace: Option<Workspace>,
    ) -> Self {
        let shared = Arc::new(Shared {
            cache: HistoryCache::new(settings.cache_bytes),
            store,
            model,
            tools,
            workspace,
            settings,
            board: Arc::default(),
            phase: Phase::default(),
            runs: TaskTracker::new(),
            errands: TaskTracker::new(),
            running: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            suspect: Arc::new(Semaphore::new(1)),
        });
        Self { shared }
    }

    /// Listens to the store and looks for work nobody has, until it is dropped.
    pub async fn attend(&self) {
        let shared = &self.shared;
        tokio::select! {
            biased;
            () = Arc::clone(shared).listen() => {}
            () = Arc::clone(shared).look_for_work() => {}
            () = shared.phase.stop() => {
                // Announcements still matter to whoever relays.
                Arc::clone(shared).listen().await;
            }
        }
    }

    /// Admits a call. Dropping this future loses the answer, never the call.
    pub async fn call(&self, slot: &Slot, request: CallRequest) -> Result<Admitted, CallError> {
        let (shared, slot) = (Arc::clone(&self.shared), slot.clone());
        self.see_through(async move { shared.admit(&slot, request).await }).await
    }

    /// Goes on with the session's last call, if it failed.
    pub async fn retry(
        &self,
        slot: &Slot,
        call: &CallId,
        context: &CallContext,
        stream: bool,
    ) -> Result<Admitted, CallError> {
        let (shared, slot, context) = (Arc::clone(&self.shared), slot.clone(), context.clone());
        let call = call.clone();
        self.see_through(async move { shared.retry(&slot, &call, &context, stream).await }).await
    }

    /// Runs to its end whoever stops waiting for it: a lease that was granted must find its run.
    fn see_through<T>(&self, work: impl Future<Output = T> + Send + 'static) -> SeenThrough<T>
    where
        T: Send + 'static,
    {
        SeenThrough::new(&self.shared.errands, work)
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

    /// Clients here whose call waits its turn or runs elsewhere.
    pub fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed)
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
