//! One sequence of requests, sent to both stores.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_sidecar::state::Slot;
use holdfast_sidecar::store::*;

use super::answers::{Answer, Request, answer, kind};
use super::fixture::{Fixture, wall};
use super::requests::{Cache, Event, Holder, Operation};
use crate::support::requests::{blob, id};

const CALLS: u8 = 4;

/// What a caller of one slot remembers.
#[derive(Default)]
struct Seen {
    grants: Vec<Grant>,
    /// How long it believes the journal to be.
    journal: usize,
    /// Bytes of the marks it has been told of.
    marks: usize,
    version: u64,
    history: Option<Known>,
    last: Option<Request>,
    cursor: Option<String>,
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
            Answer::Committed(Ok(Committed::Marked(marks))) => {
                seen.marks = marks.len();
                None
            }
            Answer::Committed(Ok(Committed::Done { next: Some(call) })) => {
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
            Answer::Pulse(Ok(pulse)) => {
                seen.marks = pulse.mark.map_or(0, |marks| marks.len());
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
            seen.marks = grant.call.mark.as_ref().map_or(0, |marks| marks.len());
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
            // One of them is careful.
            leave: if nonce == 5 { 1..3 } else { 0..0 },
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
                    marks_seen: seen.marks,
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
                attempts: u32::from(nonce % 3),
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
            let Some(stem) = key.strip_suffix(":h") else { continue };
            if let Some(history) = keys.get(&format!("{stem}:c")) {
                assert!(history > time, "the history at {history} before its head at {time}");
            }
        }
    }

    /// After a failure: nothing of it for the next sequence.
    pub async fn clean(fixture: &mut Fixture) {
        fixture.keys(true).await;
        while fixture.heard.try_recv().is_ok() {}
    }
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
