//! What may be asked. Alphabets are small, so that requests meet.

use std::time::Duration;

use holdfast_sidecar::store::{Condition, Ended, Limits, OnBusy, StepKind};
use proptest::collection::vec;
use proptest::prelude::*;

/// A lease the sequence has seen, or none it ever saw.
#[derive(Debug, Clone, Copy)]
pub enum Holder {
    Latest,
    Earlier(usize),
    Forged,
}

#[derive(Debug, Clone, Copy)]
pub enum Cache {
    Nothing,
    /// What the last look at the history showed, with one thing changed or none.
    Seen {
        off: u8,
    },
}

#[derive(Debug, Clone, Copy)]
pub struct Event {
    pub seq: u64,
    pub size: usize,
    pub message: Option<usize>,
}

#[derive(Debug, Clone)]
pub enum Operation {
    Begin {
        call: u8,
        other: bool,
        inputs: usize,
        on_busy: OnBusy,
        stream: bool,
        nonce: u8,
        cache: Cache,
    },
    Claim {
        nonce: u8,
        cache: Cache,
    },
    Append {
        holder: Holder,
        other_call: bool,
        off: i8,
        steps: Vec<StepKind>,
        ran: u64,
        events: Vec<Event>,
    },
    Renew {
        holder: Holder,
        other_call: bool,
        ran: u64,
        events: Vec<Event>,
    },
    Commit {
        holder: Holder,
        other_call: bool,
        off: bool,
        messages: usize,
        meta: bool,
        ended: Ended,
        go_on: bool,
        events: Vec<Event>,
    },
    Suspend {
        holder: Holder,
        park: bool,
        events: Vec<Event>,
    },
    Interrupt {
        call: u8,
    },
    Retry {
        call: u8,
        seen: u32,
        stream: bool,
        nonce: u8,
        cache: Cache,
    },
    Rewrite {
        condition: Condition,
        messages: usize,
        nonce: u8,
    },
    Delete,
    /// The last request once more, as after a lost reply.
    Again,
    Load {
        last: Option<usize>,
    },
    Status {
        call: u8,
    },
    Events {
        call: u8,
        after: Option<(usize, u64)>,
    },
    List {
        limit: usize,
    },
    Live,
    Overdue,
    /// In sixths of whatever `what` is.
    Advance {
        what: u8,
        sixths: u64,
    },
}

/// Operations, each with the slot it is for.
pub fn operations() -> impl Strategy<Value = Vec<(u8, Operation)>> {
    // Most of a sequence is about one slot, or little would ever happen in any.
    let slot = prop_oneof![6 => Just(0_u8), 1 => 1_u8..3];
    let story = proptest::option::weighted(0.2, a_failure_that_is_retried());
    (story, vec((slot, operation()), 30..50)).prop_map(|(story, operations)| {
        let story = story.into_iter().flatten().map(|operation| (0, operation));
        story.chain(operations).collect()
    })
}

/// Chance alone hardly ever retries a call that has just failed, and then once more while the retry is under way.
fn a_failure_that_is_retried() -> impl Strategy<Value = Vec<Operation>> {
    (0_u8..4, any::<bool>(), 0_usize..3, cache(), 0_u32..2).prop_map(
        |(call, stream, messages, cache, again)| {
            let (on_busy, ended) = (OnBusy::Enqueue, Ended::Failed);
            let retry = |nonce, seen| Operation::Retry { call, seen, stream, nonce, cache };
            vec![
                Operation::Begin { call, other: false, inputs: 1, on_busy, stream, nonce: 0, cache },
                Operation::Commit {
                    holder: Holder::Latest,
                    other_call: false,
                    off: false,
                    messages,
                    meta: false,
                    ended,
                    go_on: false,
                    events: Vec::new(),
                },
                retry(1, 0),
                retry(2, again),
            ]
        },
    )
}

/// Replies outlive sessions, events replies, or the other way round.
pub fn limits() -> [Limits; 3] {
    let of = |session, reply, event| Limits {
        lease: Duration::from_millis(600),
        session_ttl: Duration::from_millis(session),
        reply_ttl: Duration::from_millis(reply),
        event_ttl: Duration::from_millis(event),
        queue_limit: 2,
        event_log_bytes: 200,
    };
    [of(60_000, 12_000, 3_000), of(3_000, 12_000, 6_000), of(60_000, 1_200, 12_000)]
}

fn operation() -> impl Strategy<Value = Operation> {
    let flag = || proptest::bool::weighted(0.2);
    let call = || 0_u8..4;
    let nonce = || 0_u8..6;
    let on_busy = prop_oneof![
        4 => Just(OnBusy::Enqueue),
        1 => Just(OnBusy::Reject),
        1 => Just(OnBusy::Interrupt),
    ];
    let ended = prop_oneof![
        3 => Just(Ended::Completed),
        2 => Just(Ended::Failed),
        1 => Just(Ended::Interrupted),
    ];
    let condition = prop_oneof![
        Just(Condition::Exists),
        Just(Condition::Absent),
        (0_u64..4).prop_map(Condition::Version),
    ];
    let step = || prop_oneof![Just(StepKind::Message), Just(StepKind::Intent), Just(StepKind::Result)];
    prop_oneof![
        10 => (call(), proptest::bool::weighted(0.1), 0_usize..3, on_busy, flag(), nonce(), cache()).prop_map(
            |(call, other, inputs, on_busy, stream, nonce, cache)| Operation::Begin {
                call, other, inputs, on_busy, stream, nonce, cache
            }
        ),
        4 => (nonce(), cache()).prop_map(|(nonce, cache)| Operation::Claim { nonce, cache }),
        6 => (holder(), rarely(), prop_oneof![8 => Just(0_i8), 1 => -1_i8..2], vec(step(), 0..3), 0_u64..500, events())
            .prop_map(|(holder, other_call, off, steps, ran, events)| Operation::Append {
                holder, other_call, off, steps, ran, events
            }),
        3 => (holder(), rarely(), 0_u64..500, events())
            .prop_map(|(holder, other_call, ran, events)| Operation::Renew { holder, other_call, ran, events }),
        9 => (holder(), rarely(), rarely(), 0_usize..3, any::<bool>(), ended, any::<bool>(), events()).prop_map(
            |(holder, other_call, off, messages, meta, ended, go_on, events)| Operation::Commit {
                holder, other_call, off, messages, meta, ended, go_on, events
            }
        ),
        2 => (holder(), any::<bool>(), events())
            .prop_map(|(holder, park, events)| Operation::Suspend { holder, park, events }),
        2 => call().prop_map(|call| Operation::Interrupt { call }),
        3 => (call(), 0_u32..3, flag(), nonce(), cache()).prop_map(|(call, seen, stream, nonce, cache)| {
            Operation::Retry { call, seen, stream, nonce, cache }
        }),
        2 => (condition, 0_usize..3, nonce())
            .prop_map(|(condition, messages, nonce)| Operation::Rewrite { condition, messages, nonce }),
        1 => Just(Operation::Delete),
        4 => Just(Operation::Again),
        2 => proptest::option::of(0_usize..4).prop_map(|last| Operation::Load { last }),
        1 => call().prop_map(|call| Operation::Status { call }),
        2 => (call(), proptest::option::of((0_usize..4, 0_u64..6)))
            .prop_map(|(call, after)| Operation::Events { call, after }),
        1 => (0_usize..4).prop_map(|limit| Operation::List { limit }),
        1 => Just(Operation::Live),
        1 => Just(Operation::Overdue),
        5 => (prop_oneof![6 => Just(0_u8), 1 => 1_u8..4], 1_u64..8)
            .prop_map(|(what, sixths)| Operation::Advance { what, sixths }),
    ]
}

fn rarely() -> impl Strategy<Value = bool> {
    proptest::bool::weighted(0.08)
}

fn holder() -> impl Strategy<Value = Holder> {
    prop_oneof![
        12 => Just(Holder::Latest),
        2 => (0_usize..3).prop_map(Holder::Earlier),
        1 => Just(Holder::Forged),
    ]
}

fn cache() -> impl Strategy<Value = Cache> {
    prop_oneof![2 => Just(Cache::Nothing), 4 => Just(Cache::Seen { off: 0 }), 1 => (1_u8..6).prop_map(|off| Cache::Seen { off })]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0_u64..12, 2_usize..60, proptest::option::of(0_usize..3))
        .prop_map(|(seq, size, message)| Event { seq, size, message });
    prop_oneof![2 => Just(Vec::new()), 3 => vec(event, 1..4)]
}
