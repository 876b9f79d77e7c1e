//! What every part of a schedule shares: the seed's chance, the faults in force, the ledgers, the trace.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use holdfast_sidecar::session::Status;
use holdfast_sidecar::state::{Message, Slot};
use holdfast_sidecar::tools::Safety;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::plan::Plan;
use super::rng::Rng;

/// What a schedule can break.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    /// Every admitted call ends in time, without anybody's help.
    Ends,
    /// The same call id gets its reply, however often it is asked for.
    Answered,
    /// Events tell the story once, in order, and the deltas are the text.
    Told,
    /// A call that kills its replicas is given up within its budget, and no other call is.
    Budget,
    /// At the end the slot is free and no replica waits for anybody.
    Free,
}

impl Promise {
    pub const ALL: [Self; 13] = [
        Self::I1,
        Self::I2,
        Self::I3,
        Self::I4,
        Self::I5,
        Self::I6,
        Self::I7,
        Self::I8,
        Self::Ends,
        Self::Answered,
        Self::Told,
        Self::Budget,
        Self::Free,
    ];

    pub const fn says(self) -> &'static str {
        match self {
            Self::I1 => "every accepted message is in the final history",
            Self::I2 => "every ended call is in the final history",
            Self::I3 => "no turn appears twice",
            Self::I4 => "turns are in admission order",
            Self::I5 => "a reply was made from a prefix of the final history; versions step by one",
            Self::I6 => "an unsafe tool runs at most once for one tool call",
            Self::I7 => "every transcript pairs each tool call with one result",
            Self::I8 => "nothing of one user is visible to another",
            Self::Ends => "every admitted call ends in time without help",
            Self::Answered => "the same call id gets the same reply",
            Self::Told => "events tell each thing once, in order; deltas are the text",
            Self::Budget => "who kills its replicas is given up, nobody else is",
            Self::Free => "at the end nothing is held and nobody is waited for",
        }
    }
}

#[derive(Debug, Clone)]
pub struct Violation {
    pub promise: Promise,
    pub detail: String,
}

/// Counts of one schedule or of many: what happened, and how often each promise was put to the test.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    pub happened: BTreeMap<&'static str, u64>,
    pub judged: BTreeMap<Promise, u64>,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        for (what, n) in &other.happened {
            *self.happened.entry(what).or_default() += n;
        }
        for (promise, n) in &other.judged {
            *self.judged.entry(*promise).or_default() += n;
        }
    }

    pub fn of(&self, what: &str) -> u64 {
        self.happened.get(what).copied().unwrap_or(0)
    }
}

/// One question to the model, as the model saw it.
#[derive(Debug)]
pub struct Ask {
    pub call: String,
    /// A print of each message of the transcript.
    pub transcript: Vec<u64>,
}

#[derive(Debug)]
pub struct ToolRun {
    pub call: String,
    pub safety: Safety,
    pub key: String,
    /// Which ask of the model wanted it, and its place there.
    pub wanted: String,
}

/// What a client knows about one of its calls.
#[derive(Debug, Default)]
pub struct CallLog {
    pub slot: usize,
    pub first_sent: Option<u64>,
    /// When it was first told that the call is in.
    pub acknowledged: Option<u64>,
    /// Replies by retry number, as (status, ids of the messages).
    pub replies: BTreeMap<u32, (Status, Vec<String>)>,
    pub gone: Option<&'static str>,
    pub settled: bool,
    pub leaves: bool,
    pub failure: Option<String>,
    pub retried: bool,
}

/// A change of a session by hand: while it was under way, and whether it took effect.
#[derive(Debug)]
pub struct Upheaval {
    pub slot: usize,
    pub kind: UpheavalKind,
    pub from: u64,
    pub to: u64,
    /// `None`: nobody knows.
    pub done: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpheavalKind {
    Delete,
    Clear,
    Redact,
    Annotate,
    Fork { from: usize },
}

#[derive(Debug)]
pub struct Interruption {
    pub call: String,
    pub message: Option<String>,
    /// `None`: nobody knows.
    pub marked: Option<bool>,
}

#[derive(Default)]
pub struct Ledger {
    pub asks: Vec<Ask>,
    pub tool_runs: Vec<ToolRun>,
    pub failures: BTreeMap<String, u32>,
    pub calls: BTreeMap<String, CallLog>,
    pub upheavals: Vec<Upheaval>,
    pub interruptions: Vec<Interruption>,
    pub annotations: Vec<(usize, String, Option<bool>)>,
    pub violations: Vec<Violation>,
    pub tally: Tally,
    /// How often each poisonous call has killed.
    pub killed_by: BTreeMap<String, u32>,
    /// Slots with a call that may have to wait until no other suspect runs.
    pub suspected: BTreeSet<Slot>,
}

#[derive(Default)]
pub struct Trace {
    pub lines: Vec<String>,
    pub hash: u64,
}

pub struct World {
    pub plan: Plan,
    rng: Mutex<Rng>,
    order: AtomicU64,
    started: Instant,
    troubled: AtomicBool,
    outage: AtomicBool,
    calmed: Notify,
    ledger: Mutex<Ledger>,
    trace: Option<Mutex<Trace>>,
}

impl World {
    pub fn new(plan: Plan, traced: bool) -> Self {
        Self {
            rng: Mutex::new(Rng::new(plan.seed ^ 0xA5A5_5A5A)),
            plan,
            order: AtomicU64::new(1),
            started: Instant::now(),
            troubled: AtomicBool::new(true),
            outage: AtomicBool::new(false),
            calmed: Notify::new(),
            ledger: Mutex::default(),
            trace: traced.then(Mutex::default),
        }
    }

    pub fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.rng.lock().expect("nobody panics while drawing"))
    }

    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// A moment in the one order in which everything happens.
    pub fn moment(&self) -> u64 {
        self.order.fetch_add(1, Ordering::Relaxed)
    }

    pub fn troubled(&self) -> bool {
        self.troubled.load(Ordering::Relaxed)
    }

    pub fn calm_down(&self) {
        self.troubled.store(false, Ordering::Relaxed);
        self.outage.store(false, Ordering::Relaxed);
        self.calmed.notify_waiters();
    }

    pub async fn calm(&self) {
        let calmed = self.calmed.notified();
        if self.troubled() {
            calmed.await;
        }
    }

    pub fn set_outage(&self, on: bool) {
        self.outage.store(on && self.troubled(), Ordering::Relaxed);
    }

    pub fn outage(&self) -> bool {
        self.outage.load(Ordering::Relaxed)
    }

    /// Its call may have to wait until no other suspect runs.
    pub fn suspect(&self, slot: &Slot) {
        self.ledger().suspected.insert(slot.clone());
    }

    pub fn count(&self, what: &'static str) {
        *self.ledger().tally.happened.entry(what).or_default() += 1;
    }

    pub fn judge(&self, promise: Promise, n: usize) {
        *self.ledger().tally.judged.entry(promise).or_default() += n as u64;
    }

    /// One case of a promise; `broken` says how, where it is.
    pub fn verdict(&self, promise: Promise, kept: bool, broken: impl FnOnce() -> String) {
        self.judge(promise, 1);
        if !kept {
            self.broken(promise, broken());
        }
    }

    pub fn broken(&self, promise: Promise, detail: String) {
        self.trace(|| format!("BROKEN {promise:?}: {detail}"));
        self.ledger().violations.push(Violation { promise, detail });
    }

    pub fn trace(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let line = format!("{:>6} {}", self.started.elapsed().as_millis(), line());
            let mut trace = trace.lock().expect("nobody panics while tracing");
            let mut hash = DefaultHasher::new();
            (trace.hash, &line).hash(&mut hash);
            trace.hash = hash.finish();
            trace.lines.push(line);
        }
    }

    pub fn take_trace(&self) -> Trace {
        let trace =
            self.trace.as_ref().map(|trace| std::mem::take(&mut *trace.lock().expect("nobody panics here")));
        trace.unwrap_or_default()
    }
}

/// Two messages with the same print are the same message, byte for byte.
pub fn print(raw: &[u8]) -> u64 {
    let mut hash = DefaultHasher::new();
    raw.hash(&mut hash);
    hash.finish()
}

pub fn print_of(message: &Message) -> u64 {
    print(&serde_json::to_vec(message).expect("a message is JSON"))
}

/// The keys of calls that a text speaks of, between `#`. A text that was cut short may end within one: that is none.
pub fn marks(text: &str) -> impl Iterator<Item = &str> {
    let whole = text.rfind('#').map_or("", |last| &text[..last]);
    whole.split('#').skip(1).step_by(2)
}

/// `user/session` of a mark.
pub fn home(mark: &str) -> &str {
    mark.rsplit_once('/').map_or(mark, |(home, _)| home)
}
