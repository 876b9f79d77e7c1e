//! Requests with everything filled in that a test does not care about.

use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::state::{CallId, Id, Slot};
use holdfast_sidecar::store::*;

pub fn blob(text: &str) -> Blob {
    Blob::from(text.to_owned())
}

pub fn blobs(texts: &[&str]) -> Vec<Blob> {
    texts.iter().map(|text| blob(text)).collect()
}

pub fn id(text: &str) -> Id {
    Id::new("test", text).expect("an id")
}

pub fn slot(session: &str) -> Slot {
    Slot::new(Some("ann"), session).expect("a slot")
}

/// Everything lives long enough for a test.
pub fn limits() -> Limits {
    Limits { queue_limit: 4, ..Limits::default() }
}

/// Leases that run out while a test waits.
pub fn short_lease() -> Limits {
    Limits { lease: Duration::from_millis(40), ..limits() }
}

pub fn claim() -> Claim {
    Claim {
        holder: "replica".to_owned(),
        nonce: Nonce::random(),
        known: None,
        epoch: Epoch::random(),
        leave: 0..0,
    }
}

pub fn begin(call: &str) -> Begin {
    Begin {
        call: id(call),
        digest: format!("digest of {call}"),
        input: vec![Blob::json(&format!("input of {call}"))],
        context: blob("{\"tenant\":1}"),
        revision: "r1".to_owned(),
        stream: false,
        on_busy: OnBusy::Enqueue,
        queued: blob("{\"call\":1}"),
        claim: claim(),
    }
}

pub fn event(seq: u64, name: EventName, data: &str) -> NewEvent {
    NewEvent { seq, name, data: blob(data), message: None }
}

pub fn step(kind: StepKind, text: &str) -> Step {
    Step { kind, bytes: blob(text) }
}

pub fn rewrite(condition: Condition, messages: &[&str]) -> Rewrite {
    Rewrite {
        nonce: Nonce::random(),
        condition,
        epoch: Epoch::random(),
        messages: blobs(messages),
        meta: blob("{\"rewritten\":true}"),
        turns: 7,
        revision: "r2".to_owned(),
    }
}

/// One conversation as one replica sees it.
#[derive(Clone)]
pub struct Talk {
    pub store: Arc<dyn Store>,
    pub slot: Slot,
}

impl Talk {
    pub async fn begin(&self, begin: &Begin) -> Begun {
        self.store.begin(&self.slot, begin).await.expect("begin")
    }

    /// Begins a call on a free slot.
    pub async fn granted(&self, call: &str) -> Grant {
        self.granted_by(&begin(call)).await
    }

    pub async fn granted_by(&self, begin: &Begin) -> Grant {
        match self.begin(begin).await {
            Begun::Granted(grant) => *grant,
            other => panic!("{} was not granted but {other:?}", begin.call),
        }
    }

    pub async fn waiting(&self, begin: &Begin, at: usize) {
        assert_eq!(self.begin(begin).await, Begun::Waiting { position: at });
    }

    pub async fn claim(&self, claim: &Claim) -> Claimed {
        self.store.claim(&self.slot, claim).await.expect("claim")
    }

    /// Claims until the lease is free.
    pub async fn takeover(&self, claim: &Claim) -> Grant {
        super::eventually("a lease that runs out", || async {
            match self.claim(claim).await {
                Claimed::Granted(grant) => Some(*grant),
                Claimed::Held { .. } => None,
                Claimed::Left => panic!("it was left where it is"),
                Claimed::NothingToDo => panic!("there is nothing to claim"),
            }
        })
        .await
    }

    pub async fn append(&self, append: &Append) -> Result<Pulse, StoreError> {
        self.store.append(&self.slot, append).await
    }

    pub async fn renew(&self, renew: &Renew) -> Result<Pulse, StoreError> {
        self.store.renew(&self.slot, renew).await
    }

    /// Ends a call; the next one, under the same lease.
    pub async fn commit(&self, commit: &Commit) -> Result<Option<Box<HeadCall>>, StoreError> {
        match self.store.commit(&self.slot, commit).await? {
            Committed::Done { next } => Ok(next),
            Committed::Marked(marks) => panic!("{:?} was not seen", String::from_utf8_lossy(&marks)),
        }
    }

    pub async fn suspend(&self, suspend: &Suspend) {
        self.store.suspend(&self.slot, suspend).await.expect("suspend");
    }

    /// A whole call that answers with one message.
    pub async fn turn(&self, call: &str) -> Grant {
        let grant = self.granted(call).await;
        self.commit(&commit(&grant)).await.expect("commit");
        grant
    }

    pub async fn load(&self) -> Loaded {
        self.store.load(&self.slot, None).await.expect("load").expect("a session")
    }

    pub async fn history(&self) -> Vec<String> {
        texts(&self.load().await.messages)
    }

    pub async fn status(&self, call: &str) -> CallStatus {
        self.store.status(&self.slot, &id(call)).await.expect("status")
    }

    pub async fn live(&self) -> Vec<LiveCall> {
        self.store.live(&self.slot).await.expect("live")
    }

    pub async fn events(&self, call: &str, after: Option<EventId>) -> EventPage {
        self.store.events(&self.slot, &id(call), after).await.expect("events")
    }

    pub async fn interrupt(&self, call: &str, mark: &str) -> Interrupted {
        self.store.interrupt(&self.slot, &id(call), &blob(mark)).await.expect("interrupt")
    }

    pub async fn rewrite(&self, rewrite: &Rewrite) -> Rewritten {
        self.store.rewrite(&self.slot, rewrite).await.expect("rewrite")
    }

    pub async fn retry(&self, retry: &Retry) -> Retried {
        self.store.retry(&self.slot, retry).await.expect("retry")
    }

    pub async fn delete(&self) -> bool {
        self.store.delete(&self.slot).await.expect("delete")
    }

    /// Whether a poller of all buckets finds this slot.
    pub async fn is_overdue(&self) -> bool {
        for bucket in 0..self.store.buckets() {
            if self.store.overdue(bucket, 1000).await.expect("overdue").contains(&self.slot) {
                return true;
            }
        }
        false
    }
}

pub fn texts(messages: &[Blob]) -> Vec<String> {
    messages.iter().map(|message| String::from_utf8_lossy(message).trim_matches('"').to_owned()).collect()
}

pub fn append(grant: &Grant, at: usize, steps: Vec<Step>) -> Append {
    Append { token: grant.token, call: grant.call.id.clone(), at, steps, ran: 1, events: Vec::new() }
}

pub fn renew(grant: &Grant) -> Renew {
    Renew { token: grant.token, call: grant.call.id.clone(), ran: 1, events: Vec::new() }
}

/// A holder that has seen these marks says so when it commits.
pub fn seen(marks: Option<&Blob>) -> usize {
    marks.map_or(0, |marks| marks.len())
}

pub fn commit(grant: &Grant) -> Commit {
    commit_of(grant, grant.session.version, &grant.call.id)
}

pub fn commit_of(grant: &Grant, version: u64, call: &CallId) -> Commit {
    Commit {
        token: grant.token,
        version,
        call: call.clone(),
        turns: version + 1,
        meta: Some(blob(&format!("{{\"after\":{}}}", version + 1))),
        revision: "r1".to_owned(),
        messages: vec![Blob::json(&format!("answer to {call}"))],
        ended: Ended::Completed,
        reply: blob("{\"ok\":true}"),
        marks_seen: seen(grant.call.mark.as_ref()),
        go_on: false,
        events: Vec::new(),
    }
}

pub fn suspend(grant: &Grant) -> Suspend {
    Suspend { token: grant.token, call: grant.call.id.clone(), ran: 5, park: false, events: Vec::new() }
}

pub fn retry(call: &str, seen: u32) -> Retry {
    Retry {
        call: id(call),
        seen,
        attempts: 0,
        context: blob("{\"again\":1}"),
        revision: "r3".to_owned(),
        stream: false,
        queued: blob("{\"call\":1}"),
        claim: claim(),
    }
}

pub fn known(loaded: &Loaded) -> Known {
    Known {
        epoch: loaded.head.epoch,
        version: loaded.head.version,
        len: loaded.messages.len(),
        tail: Tail::of(loaded.messages.last().map(|message| &**message)),
    }
}
