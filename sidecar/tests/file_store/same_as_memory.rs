//! Whatever is asked, a store in a folder answers as the one in memory does, however often it is closed and opened,
//! and however little it may keep in memory.

use std::fmt::Debug;
use std::time::Duration;

use holdfast_sidecar::state::Slot;
use holdfast_sidecar::store::file::FileOptions;
use holdfast_sidecar::store::*;
use proptest::prelude::*;

use crate::kit::*;

#[derive(Debug, Clone)]
enum Op {
    Begin { call: u8, on_busy: OnBusy, stream: bool, other_digest: bool },
    Claim,
    Append { steps: u8, event: bool, stale: bool },
    Renew { event: bool },
    Commit { ended: Ended, go_on: bool, wrong_version: bool, meta: bool },
    CommitAgain,
    Suspend { park: bool },
    Interrupt { call: u8 },
    Retry { call: u8, seen: u8 },
    Rewrite { condition: u8, messages: u8 },
    RewriteAgain,
    Delete,
    Pass { time: Pass },
    Reopen,
}

#[derive(Debug, Clone, Copy)]
enum Pass {
    Moment,
    Lease,
    EventTtl,
    ReplyTtl,
    SessionTtl,
}

impl Pass {
    fn time(self) -> Duration {
        match self {
            Self::Moment => Duration::from_millis(2500),
            Self::Lease => Duration::from_secs(7),
            Self::EventTtl => Duration::from_secs(700),
            Self::ReplyTtl => Duration::from_secs(2000),
            Self::SessionTtl => Duration::from_secs(7200),
        }
    }
}

fn op() -> impl Strategy<Value = Op> {
    let on_busy = prop_oneof![Just(OnBusy::Enqueue), Just(OnBusy::Reject), Just(OnBusy::Interrupt)];
    let ended = prop_oneof![Just(Ended::Completed), Just(Ended::Failed), Just(Ended::Interrupted)];
    let pass = prop_oneof![
        4 => Just(Pass::Moment),
        3 => Just(Pass::Lease),
        1 => Just(Pass::EventTtl),
        1 => Just(Pass::ReplyTtl),
        1 => Just(Pass::SessionTtl),
    ];
    prop_oneof![
        8 => (0..5u8, on_busy, any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(call, on_busy, stream, other_digest)| Op::Begin { call, on_busy, stream, other_digest }),
        4 => Just(Op::Claim),
        5 => (0..3u8, any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(steps, event, stale)| Op::Append { steps, event, stale }),
        3 => any::<bool>().prop_map(|event| Op::Renew { event }),
        8 => (ended, any::<bool>(), prop::bool::weighted(0.1), any::<bool>())
            .prop_map(|(ended, go_on, wrong_version, meta)| Op::Commit { ended, go_on, wrong_version, meta }),
        1 => Just(Op::CommitAgain),
        2 => any::<bool>().prop_map(|park| Op::Suspend { park }),
        2 => (0..5u8).prop_map(|call| Op::Interrupt { call }),
        3 => (0..5u8, 0..2u8).prop_map(|(call, seen)| Op::Retry { call, seen }),
        2 => (0..3u8, 0..4u8).prop_map(|(condition, messages)| Op::Rewrite { condition, messages }),
        1 => Just(Op::RewriteAgain),
        2 => Just(Op::Delete),
        4 => pass.prop_map(|time| Op::Pass { time }),
        4 => Just(Op::Reopen),
    ]
}

/// What a caller remembers of a slot: the last grant it got, and its last requests.
#[derive(Default)]
struct Caller {
    token: Option<Token>,
    stale: Option<Token>,
    call: Option<String>,
    version: u64,
    journal: usize,
    seq: u64,
    last_commit: Option<Commit>,
    last_rewrite: Option<Rewrite>,
}

impl Caller {
    fn got(&mut self, grant: &Grant) {
        self.stale = self.token;
        self.token = Some(grant.token);
        self.version = grant.session.version;
        self.head(&grant.call);
    }

    fn head(&mut self, call: &HeadCall) {
        self.call = Some(call.id.to_string());
        self.journal = call.steps.len();
    }

    fn token(&self) -> Token {
        self.token.unwrap_or(Token { fence: 1, nonce: Nonce(1) })
    }

    fn call(&self) -> &str {
        self.call.as_deref().unwrap_or("none")
    }

    fn events(&mut self, wanted: bool) -> Vec<NewEvent> {
        self.seq += 1;
        if wanted { vec![event(self.seq, EventName::Delta)] } else { vec![] }
    }
}

struct Pair {
    memory: MemoryStore,
    file: Option<FileStore>,
    folder: tempfile::TempDir,
    options: FileOptions,
    time: Time,
    nonce: u128,
}

/// Asks both, and wants the same answer.
macro_rules! both {
    ($pair:expr, $method:ident($($argument:expr),*)) => {{
        let memory = $pair.memory.$method($($argument),*).await;
        let file = $pair.file.as_ref().expect("open").$method($($argument),*).await;
        same(stringify!($method), &memory, &file)?;
        memory
    }};
}

fn same<T: Debug + PartialEq>(what: &str, memory: &T, file: &T) -> Result<(), TestCaseError> {
    prop_assert_eq!(memory, file, "{} differs", what);
    Ok(())
}

impl Pair {
    fn new(cache_bytes: usize) -> Self {
        let time = Time::new();
        let folder = quick_folder();
        let options = FileOptions { cache_bytes, clock: time.clock() };
        let file = Some(open(folder.path(), &options));
        let memory = MemoryStore::with_clock(limits(), time.clock());
        Self { memory, file, folder, options, time, nonce: 1000 }
    }

    fn nonce(&mut self) -> u128 {
        self.nonce += 1000;
        self.nonce
    }

    async fn run(&mut self, slot: &Slot, caller: &mut Caller, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Begin { call, on_busy, stream, other_digest } => {
                let mut request = begin(&format!("c{call}"), self.nonce());
                request.on_busy = *on_busy;
                request.stream = *stream;
                if *other_digest {
                    request.digest.push('!');
                }
                if let Ok(Begun::Granted(grant)) = both!(self, begin(slot, &request)) {
                    caller.got(&grant);
                    // The same request again: the same grant.
                    both!(self, begin(slot, &request)).expect("begin");
                }
            }
            Op::Claim => {
                let request = claim(self.nonce());
                if let Ok(Claimed::Granted(grant)) = both!(self, claim(slot, &request)) {
                    caller.got(&grant);
                }
            }
            Op::Append { steps, event, stale } => {
                let mut request = append(caller.token(), caller.call(), caller.journal, "step");
                request.steps = (0..*steps)
                    .map(|n| Step {
                        kind: [StepKind::Message, StepKind::Intent, StepKind::Result][usize::from(n)],
                        bytes: message(&format!("step {} {n}", caller.journal)),
                    })
                    .collect();
                if *steps == 0 {
                    // No more than a renewal, and so may be known to one process alone.
                    request.ran = 0;
                }
                request.events = caller.events(*event);
                if let Some(token) = caller.stale.filter(|_| *stale) {
                    request.token = token;
                }
                if both!(self, append(slot, &request)).is_ok() {
                    both!(self, append(slot, &request)).expect("the same again");
                    caller.journal += request.steps.len();
                }
            }
            Op::Renew { event } => {
                let request = Renew { events: caller.events(*event), ..renew(caller.token(), caller.call()) };
                let _ = both!(self, renew(slot, &request));
            }
            Op::Commit { ended, go_on, wrong_version, meta } => {
                let Some(call) = caller.call.clone() else { return Ok(()) };
                let mut request = commit(caller.token(), caller.version, &call, "the answer");
                request.ended = *ended;
                request.go_on = *go_on;
                request.version += u64::from(*wrong_version);
                request.meta = request.meta.filter(|_| *meta);
                let mut committed = both!(self, commit(slot, &request));
                if let Ok(Committed::Marked(marks)) = &committed {
                    request.marks_seen = marks.len();
                    committed = both!(self, commit(slot, &request));
                }
                if let Ok(Committed::Done { next }) = &committed {
                    caller.version += 1;
                    if let Some(next) = next {
                        caller.head(next);
                    }
                }
                caller.last_commit = Some(request);
            }
            Op::CommitAgain => {
                if let Some(request) = &caller.last_commit {
                    let _ = both!(self, commit(slot, request));
                }
            }
            Op::Suspend { park } => {
                let Some(call) = &caller.call else { return Ok(()) };
                let events = vec![event(800, EventName::Suspended)];
                let request = Suspend { token: caller.token(), call: id(call), ran: 77, park: *park, events };
                both!(self, suspend(slot, &request)).expect("suspend");
            }
            Op::Interrupt { call } => {
                let mark = Blob::json(&serde_json::json!({"message": "stop"}));
                both!(self, interrupt(slot, &id(&format!("c{call}")), &mark)).expect("interrupt");
            }
            Op::Retry { call, seen } => {
                let request = Retry {
                    call: id(&format!("c{call}")),
                    attempts: 0,
                    seen: u32::from(*seen),
                    context: Blob::empty(),
                    revision: "r3".into(),
                    stream: true,
                    queued: Blob::json(&serde_json::json!({"retry": seen})),
                    claim: claim(self.nonce()),
                };
                if let Ok(Retried::Granted(grant)) = both!(self, retry(slot, &request)) {
                    caller.got(&grant);
                }
            }
            Op::Rewrite { condition, messages } => {
                let condition = [Condition::Exists, Condition::Version(caller.version), Condition::Absent]
                    [usize::from(*condition)];
                let texts = ["one", "two", "three"];
                let request = rewrite(self.nonce(), condition, &texts[..usize::from(*messages).min(3)]);
                both!(self, rewrite(slot, &request)).expect("rewrite");
                caller.last_rewrite = Some(request);
            }
            Op::RewriteAgain => {
                if let Some(request) = &caller.last_rewrite {
                    both!(self, rewrite(slot, request)).expect("rewrite");
                }
            }
            Op::Delete => {
                both!(self, delete(slot)).expect("delete");
            }
            Op::Pass { time } => self.time.pass(time.time()),
            Op::Reopen => {
                // A lease that has run out is what a lease of a dead process is.
                self.time.pass(Pass::Lease.time());
                self.file = None;
                self.file = Some(open(self.folder.path(), &self.options));
            }
        }
        Ok(())
    }

    async fn compare(&self, slots: &[Slot]) -> Result<(), TestCaseError> {
        for slot in slots {
            both!(self, load(slot, None)).expect("load");
            both!(self, load(slot, Some(2))).expect("load");
            both!(self, live(slot)).expect("live");
            for call in 0..5 {
                both!(self, events(slot, &id(&format!("c{call}")), None)).expect("events");
            }
        }
        both!(self, overdue(0, 100)).expect("overdue");
        // A renewal may be known to one process alone, so after a restart the last change may be a little older.
        let list = async |store: &dyn Store| {
            let page = store.list(slots[0].user.as_ref().expect("a user"), 100, None).await.expect("list");
            let mut rows: Vec<_> =
                page.sessions.into_iter().map(|row| (row.session.to_string(), row.version)).collect();
            rows.sort();
            rows
        };
        same("list", &list(&self.memory).await, &list(self.file.as_ref().expect("open")).await)
    }
}

/// `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(256);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_folder_answers_as_memory_does(
        ops in prop::collection::vec((0..2usize, op()), 1..60),
        cache_bytes in prop_oneof![Just(0usize), Just(1 << 20)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut pair = Pair::new(cache_bytes);
            let slots = [slot("alice", "s1"), slot("alice", "s/2")];
            let mut callers = [Caller::default(), Caller::default()];
            for (at, op) in &ops {
                pair.run(&slots[*at], &mut callers[*at], op).await?;
                pair.compare(&slots).await?;
            }
            Ok::<(), TestCaseError>(())
        })?;
    }
}
