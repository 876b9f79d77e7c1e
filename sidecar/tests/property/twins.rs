//! One sequence of requests, sent to both stores.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_sidecar::state::Slot;
use holdfast_sidecar::store::redis::{RedisConfig, RedisStore};
use holdfast_sidecar::store::*;

use super::requests::{Cache, Event, Holder, Operation};
use crate::support::eventually;
use crate::support::requests::{Talk, blob, id, slot};
use crate::support::stores::{random_prefix, shared_url};

const CALLS: u8 = 4;

/// A request with everything in it, so that it can be sent again.
#[derive(Debug, Clone)]
enum Request {
    Begin(Begin),
    Claim(Claim),
    Append(Append),
    Renew(Renew),
    Commit(Commit),
    Suspend(Suspend),
    Interrupt(u8),
    Retry(Retry),
    Rewrite(Rewrite),
    Delete,
    Load(Option<usize>),
    Status(u8),
    Events(u8, Option<EventId>),
    List(usize, Option<String>),
    Live,
    Overdue,
}

/// What a caller of one slot remembers.
#[derive(Default)]
struct Seen {
    grants: Vec<Grant>,
    /// How long it believes the journal to be.
    journal: usize,
    version: u64,
    history: Option<Known>,
    last: Option<Request>,
    cursor: Option<String>,
}

/// A Redis store that hears its own announcements, used for one sequence after another.
pub struct Fixture {
    store: Arc<dyn Store>,
    clock: Arc<AtomicU64>,
    limits: Limits,
    heard: tokio::sync::broadcast::Receiver<Announcement>,
    prefix: String,
    connection: ::redis::aio::MultiplexedConnection,
}

impl Fixture {
    pub async fn new(limits: Limits) -> Self {
        let clock = Arc::new(AtomicU64::new(wall()));
        let prefix = random_prefix();
        let store = RedisStore::open(RedisConfig::new(shared_url()), &prefix, limits.clone())
            .expect("a store")
            .on_clock(Arc::clone(&clock));
        let client = ::redis::Client::open(shared_url()).expect("a client");
        let connection = client.get_multiplexed_async_connection().await.expect("a connection");
        let mut heard = store.announcements();
        let talk = Talk { store: Arc::new(store), slot: slot("warm") };
        talk.granted("one").await;
        eventually("a subscription", || async {
            talk.interrupt("one", "{}").await;
            tokio::time::sleep(Duration::from_millis(5)).await;
            (!heard.is_empty()).then_some(())
        })
        .await;
        while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(50), heard.recv()).await {}
        let fixture = Self { store: talk.store, clock, limits, heard, prefix, connection };
        fixture.keys(true).await;
        fixture
    }

    /// The keys there are, with the times they run out.
    async fn keys(&self, unlink: bool) -> BTreeMap<String, i64> {
        let mut connection = self.connection.clone();
        let pattern = format!("hf:{{{}.*", self.prefix);
        let keys: Vec<String> =
            ::redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.expect("keys");
        if keys.is_empty() {
            return BTreeMap::new();
        }
        let mut pipe = ::redis::pipe();
        for key in &keys {
            pipe.cmd("PEXPIRETIME").arg(key);
        }
        if unlink {
            pipe.cmd("UNLINK").arg(&keys).ignore();
        }
        let times: Vec<i64> = pipe.query_async(&mut connection).await.expect("times");
        keys.into_iter().zip(times).collect()
    }
}

fn wall() -> u64 {
    u64::try_from(jiff::Timestamp::now().as_millisecond()).expect("a time")
}

pub struct Twins<'a> {
    fixture: &'a mut Fixture,
    memory: Arc<dyn Store>,
    slots: Vec<Slot>,
    seen: Vec<Seen>,
    /// Makes every nonce, epoch and message of a sequence its own.
    counter: u128,
    announced: tokio::sync::broadcast::Receiver<Announcement>,
    /// How often each kind of answer was given.
    pub answers: BTreeMap<String, u64>,
}

impl<'a> Twins<'a> {
    pub fn new(fixture: &'a mut Fixture) -> Self {
        // Ahead of the server's, so that nothing runs out by the real time before it does by this one.
        fixture.clock.store(wall() + 1000, Ordering::SeqCst);
        let clock = Arc::clone(&fixture.clock);
        let clock = Clock::by(move || clock.load(Ordering::SeqCst));
        let memory = MemoryStore::with_clock(fixture.limits.clone(), clock);
        let slot = |user, session| Slot::new(user, session).expect("a slot");
        Self {
            announced: memory.announcements(),
            memory: Arc::new(memory),
            fixture,
            slots: vec![slot(Some("ann"), "s"), slot(Some("ann"), "t"), slot(None, "s")],
            seen: (0..3).map(|_| Seen::default()).collect(),
            counter: 0,
            answers: BTreeMap::new(),
        }
    }

    pub async fn carry_out(&mut self, (slot, operation): (u8, Operation)) {
        let slot = usize::from(slot);
        if let Operation::Advance { what, sixths } = operation {
            let limits = &self.fixture.limits;
            let unit = [limits.lease, limits.event_ttl, limits.reply_ttl, limits.session_ttl];
            let step = unit[usize::from(what)].as_millis() / 6 * u128::from(sixths);
            self.fixture.clock.fetch_add(u64::try_from(step).expect("a time"), Ordering::SeqCst);
            return;
        }
        // A little time always passes, and sometimes none.
        self.counter += 1;
        self.fixture.clock.fetch_add(u64::try_from(self.counter % 3).expect("small"), Ordering::SeqCst);
        let Some(request) = self.request(slot, operation) else { return };
        self.compare(slot, &request).await;
        self.seen[slot].last = Some(request);
    }

    /// Everything that can be seen of every slot.
    pub async fn compare_all(&mut self) {
        for slot in 0..self.slots.len() {
            for request in [Request::Load(None), Request::Live] {
                self.compare(slot, &request).await;
            }
            for call in 0..CALLS {
                self.compare(slot, &Request::Events(call, None)).await;
            }
        }
        self.compare(0, &Request::List(10, None)).await;
        self.compare(0, &Request::Overdue).await;
    }

    async fn compare(&mut self, slot: usize, request: &Request) {
        let at = &self.slots[slot];
        let (memory, redis) =
            (answer(&*self.memory, at, request).await, answer(&*self.fixture.store, at, request).await);
        let (memory, redis) = (Answer::shown(&memory), (Answer::shown(&redis), redis));
        assert_eq!(redis.0, memory, "{at}: {request:?}");
        *self.answers.entry(kind(request, &memory)).or_default() += 1;
        self.learn(slot, request, redis.1);
    }

    fn learn(&mut self, slot: usize, request: &Request, answer: Answer) {
        let seen = &mut self.seen[slot];
        let grant = match answer {
            Answer::Begun(Ok(Begun::Granted(grant)))
            | Answer::Claimed(Ok(Claimed::Granted(grant)))
            | Answer::Retried(Ok(Retried::Granted(grant))) => Some(*grant),
            Answer::Committed(Ok(Committed { next: Some(call) })) => {
                let latest = seen.grants.last().cloned();
                latest.map(|latest| Grant { call: *call, ..latest })
            }
            Answer::Loaded(Ok(Some(loaded))) => {
                seen.version = loaded.head.version;
                let Request::Load(None) = request else { return };
                seen.history = Some(Known {
                    epoch: loaded.head.epoch,
                    version: loaded.head.version,
                    len: loaded.messages.len(),
                    tail: Tail::of(loaded.messages.last().map(|message| &**message)),
                });
                None
            }
            Answer::Listed(Ok(page)) => {
                seen.cursor = page.next;
                None
            }
            Answer::Pulse(Ok(_)) => {
                if let Request::Append(append) = request {
                    seen.journal = append.at + append.steps.len();
                }
                None
            }
            _ => None,
        };
        if matches!(request, Request::Commit(_)) && grant.is_some() {
            seen.version += 1;
        } else if let Some(grant) = &grant {
            seen.version = grant.session.version;
        }
        if let Some(grant) = grant {
            seen.journal = grant.call.steps.len();
            seen.grants.push(grant);
        }
    }

    fn request(&mut self, slot: usize, operation: Operation) -> Option<Request> {
        self.counter += 1;
        let unique = self.counter;
        let text = |what: &str, n: usize| blob(&format!("\"{what} {unique}.{n}\""));
        let texts = |what: &str, n: usize| (0..n).map(|i| text(what, i)).collect::<Vec<_>>();
        let seen = &self.seen[slot];
        let call_id = |call: u8| id(&format!("call {call}"));
        let claim = |nonce: u8, cache: Cache| Claim {
            holder: format!("replica {nonce}"),
            nonce: Nonce(u128::from(nonce)),
            known: known(cache, seen),
            epoch: Epoch(unique),
        };
        let grant = |holder: Holder| -> Option<Grant> {
            let latest = seen.grants.last()?.clone();
            Some(match holder {
                Holder::Latest => latest,
                Holder::Earlier(back) => seen.grants[seen.grants.len().saturating_sub(back + 2)].clone(),
                Holder::Forged => Grant { token: Token { nonce: Nonce(99), ..latest.token }, ..latest },
            })
        };
        let events = |events: Vec<Event>| -> Vec<NewEvent> {
            let new = |event: Event| NewEvent {
                seq: event.seq,
                name: EventName::Delta,
                data: blob(&"x".repeat(event.size)),
                message: event.message,
            };
            events.into_iter().map(new).collect()
        };
        let named = |grant: &Grant, other: bool| if other { call_id(0) } else { grant.call.id.clone() };
        Some(match operation {
            Operation::Begin { call, other, inputs, on_busy, stream, nonce, cache } => {
                Request::Begin(Begin {
                    call: call_id(call),
                    digest: format!("{call} {other}"),
                    input: texts("input", inputs),
                    context: text("context", 0),
                    revision: format!("r{unique}"),
                    stream,
                    on_busy,
                    queued: blob("{\"call\":1}"),
                    claim: claim(nonce, cache),
                })
            }
            Operation::Claim { nonce, cache } => Request::Claim(claim(nonce, cache)),
            Operation::Append { holder, other_call, off, steps, ran, events: more } => {
                let grant = grant(holder)?;
                let kinds = steps.into_iter().enumerate();
                Request::Append(Append {
                    token: grant.token,
                    call: named(&grant, other_call),
                    at: seen.journal.saturating_add_signed(isize::from(off)),
                    steps: kinds.map(|(n, kind)| Step { kind, bytes: text("step", n) }).collect(),
                    ran,
                    events: events(more),
                })
            }
            Operation::Renew { holder, other_call, ran, events: more } => {
                let grant = grant(holder)?;
                let mut events = events(more);
                events.iter_mut().for_each(|event| event.message = None);
                Request::Renew(Renew { token: grant.token, call: named(&grant, other_call), ran, events })
            }
            Operation::Commit { holder, other_call, off, messages, meta, ended, go_on, events: more } => {
                let grant = grant(holder)?;
                Request::Commit(Commit {
                    token: grant.token,
                    version: seen.version + u64::from(off),
                    call: named(&grant, other_call),
                    turns: seen.version * 2,
                    meta: meta.then(|| text("meta", 0)),
                    revision: format!("r{unique}"),
                    messages: texts("answer", messages),
                    ended,
                    reply: text("reply", 0),
                    go_on,
                    events: events(more),
                })
            }
            Operation::Suspend { holder, park, events: more } => {
                let grant = grant(holder)?;
                let (token, call) = (grant.token, grant.call.id);
                Request::Suspend(Suspend { token, call, ran: 7, park, events: events(more) })
            }
            Operation::Interrupt { call } => Request::Interrupt(call),
            Operation::Retry { call, seen, stream, nonce, cache } => Request::Retry(Retry {
                call: call_id(call),
                seen,
                context: text("context", 0),
                revision: format!("r{unique}"),
                stream,
                queued: blob("{\"call\":1}"),
                claim: claim(nonce, cache),
            }),
            Operation::Rewrite { condition, messages, nonce } => Request::Rewrite(Rewrite {
                nonce: Nonce(u128::from(nonce)),
                condition: match condition {
                    Condition::Version(0) => Condition::Version(seen.version),
                    other => other,
                },
                epoch: Epoch(unique),
                messages: texts("rewritten", messages),
                meta: text("meta", 0),
                turns: 1,
                revision: format!("r{unique}"),
            }),
            Operation::Delete => Request::Delete,
            Operation::Again => seen.last.clone()?,
            Operation::Load { last } => Request::Load(last),
            Operation::Status { call } => Request::Status(call),
            Operation::Events { call, after } => {
                let after = after.map(|(back, seq)| EventId {
                    fence: seen.grants.iter().rev().nth(back).map_or(1, |grant| grant.token.fence),
                    seq,
                });
                Request::Events(call, after)
            }
            Operation::List { limit } => Request::List(limit, seen.cursor.clone()),
            Operation::Live => Request::Live,
            Operation::Overdue => Request::Overdue,
            Operation::Advance { .. } => return None,
        })
    }

    /// What both told those who listen, in order.
    pub async fn compare_announcements(&mut self) {
        let expected: Vec<_> = std::iter::from_fn(|| self.announced.try_recv().ok()).collect();
        let mut heard = Vec::new();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(2);
        while heard.len() < expected.len() {
            match tokio::time::timeout_at(deadline, self.fixture.heard.recv()).await {
                Ok(Ok(announcement)) => heard.push(announcement),
                _ => break,
            }
        }
        heard.extend(std::iter::from_fn(|| self.fixture.heard.try_recv().ok()));
        assert_eq!(heard, expected, "announcements");
    }

    /// Every key runs out some day, and none of a session's before its head. Leaves no key behind.
    pub async fn check_lifetimes(&self) {
        let keys = self.fixture.keys(true).await;
        for (key, time) in &keys {
            assert!(*time > 0, "{key} never expires");
            let Some(stem) = key.strip_suffix("head") else { continue };
            for part in ["ctx", "calls", "wal", "done", "digests"] {
                if let Some(other) = keys.get(&format!("{stem}{part}")) {
                    assert!(other > time, "{part} at {other} before its head at {time}");
                }
            }
        }
    }

    /// After a failure: nothing of it for the next sequence.
    pub async fn clean(fixture: &mut Fixture) {
        fixture.keys(true).await;
        while fixture.heard.try_recv().is_ok() {}
    }
}

/// The request's name and the names in the answer down to the second level: `Begin Ok Granted`.
fn kind(request: &Request, answer: &str) -> String {
    let request = format!("{request:?}");
    let name = |text: &str| {
        text.split(|c: char| !c.is_alphanumeric()).find(|word| !word.is_empty()).unwrap_or("").to_owned()
    };
    let outcome = match answer.split_once("status: ") {
        Some((_, status)) => status,
        None => answer.split_once('(').map_or("", |(_, inner)| inner),
    };
    format!("{} {} {}", name(&request), name(answer), name(outcome))
}

fn known(cache: Cache, seen: &Seen) -> Option<Known> {
    let (Cache::Seen { off }, Some(known)) = (cache, seen.history) else { return None };
    Some(match off {
        0 => known,
        1 => Known { epoch: Epoch(0), ..known },
        2 => Known { version: known.version + 1, ..known },
        3 => Known { len: known.len.saturating_sub(1), ..known },
        4 => Known { len: 0, tail: Tail::default(), ..known },
        _ => Known { tail: Tail::of(Some(b"other")), ..known },
    })
}

enum Answer {
    Begun(Result<Begun, StoreError>),
    Claimed(Result<Claimed, StoreError>),
    Pulse(Result<Pulse, StoreError>),
    Committed(Result<Committed, StoreError>),
    Retried(Result<Retried, StoreError>),
    Loaded(Result<Option<Loaded>, StoreError>),
    Listed(Result<SessionPage, StoreError>),
    Other(String),
}

impl Answer {
    fn shown(&self) -> String {
        match self {
            Self::Begun(answer) => format!("{answer:?}"),
            Self::Claimed(answer) => format!("{answer:?}"),
            Self::Pulse(answer) => format!("{answer:?}"),
            Self::Committed(answer) => format!("{answer:?}"),
            Self::Retried(answer) => format!("{answer:?}"),
            Self::Loaded(answer) => format!("{answer:?}"),
            Self::Listed(answer) => format!("{answer:?}"),
            Self::Other(answer) => answer.clone(),
        }
    }
}

async fn answer(store: &dyn Store, slot: &Slot, request: &Request) -> Answer {
    let call_id = |call: &u8| id(&format!("call {call}"));
    let text = |answer: &dyn std::fmt::Debug| Answer::Other(format!("{answer:?}"));
    match request {
        Request::Begin(begin) => Answer::Begun(store.begin(slot, begin).await),
        Request::Claim(claim) => Answer::Claimed(store.claim(slot, claim).await),
        Request::Append(append) => Answer::Pulse(store.append(slot, append).await),
        Request::Renew(renew) => Answer::Pulse(store.renew(slot, renew).await),
        Request::Commit(commit) => Answer::Committed(store.commit(slot, commit).await),
        Request::Suspend(suspend) => text(&store.suspend(slot, suspend).await),
        Request::Interrupt(call) => text(&store.interrupt(slot, &call_id(call), &blob("{\"why\":1}")).await),
        Request::Retry(retry) => Answer::Retried(store.retry(slot, retry).await),
        Request::Rewrite(rewrite) => text(&store.rewrite(slot, rewrite).await),
        Request::Delete => text(&store.delete(slot).await),
        Request::Load(last) => Answer::Loaded(store.load(slot, *last).await),
        Request::Status(call) => text(&store.status(slot, &call_id(call)).await),
        Request::Events(call, after) => text(&store.events(slot, &call_id(call), *after).await),
        Request::List(limit, cursor) => {
            Answer::Listed(store.list(&id("ann"), *limit, cursor.as_deref()).await)
        }
        Request::Live => text(&store.live(slot).await),
        Request::Overdue => {
            let mut due = BTreeSet::new();
            for bucket in 0..store.buckets() {
                for slot in store.overdue(bucket, 100).await.expect("overdue") {
                    // A session that ran out with work in it may be named until somebody claims it in vain.
                    if store.load(&slot, Some(0)).await.expect("load").is_some() {
                        due.insert(slot);
                    }
                }
            }
            text(&due)
        }
    }
}
