//! Requests as they are sent, and answers as they are compared.

use std::collections::BTreeSet;

use holdfast_sidecar::state::Slot;
use holdfast_sidecar::store::*;

use crate::support::requests::{blob, id};

/// A request with everything in it, so that it can be sent again.
#[derive(Debug, Clone)]
pub enum Request {
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

pub enum Answer {
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
    pub fn shown(&self) -> String {
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

pub async fn answer(store: &dyn Store, slot: &Slot, request: &Request) -> Answer {
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

/// The request's name and the names in the answer down to the second level: `Begin Ok Granted`.
pub fn kind(request: &Request, answer: &str) -> String {
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
