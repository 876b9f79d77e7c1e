//! Requests and stores for the tests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use holdfast_sidecar::state::{CallId, Id, Slot};
use holdfast_sidecar::store::file::{FileOptions, OpenError};
use holdfast_sidecar::store::*;
use serde_json::json;

pub fn id(text: &str) -> CallId {
    Id::new("call", text).expect("an id")
}

pub fn slot(user: &str, session: &str) -> Slot {
    Slot::new(Some(user), session).expect("ids")
}

pub fn message(text: &str) -> Blob {
    Blob::json(&json!({"id": format!("m-{text}"), "role": "user", "content": text}))
}

pub fn claim(nonce: u128) -> Claim {
    Claim { holder: "test".into(), nonce: Nonce(nonce), known: None, epoch: Epoch(nonce + 1), leave: 0..0 }
}

pub fn begin(call: &str, nonce: u128) -> Begin {
    Begin {
        call: id(call),
        digest: format!("digest of {call}"),
        input: vec![message(call)],
        context: Blob::json(&json!({"for": call})),
        revision: "r1".into(),
        stream: false,
        on_busy: OnBusy::Enqueue,
        queued: Blob::json(&json!({"call": call})),
        claim: claim(nonce),
    }
}

pub fn append(token: Token, call: &str, at: usize, text: &str) -> Append {
    let steps = vec![Step { kind: StepKind::Message, bytes: message(text) }];
    Append { token, call: id(call), at, steps, ran: 5, events: vec![] }
}

pub fn event(seq: u64, name: EventName) -> NewEvent {
    NewEvent { seq, name, data: Blob::json(&json!({"seq": seq})), message: None }
}

pub fn renew(token: Token, call: &str) -> Renew {
    Renew { token, call: id(call), ran: 0, events: vec![] }
}

pub fn commit(token: Token, version: u64, call: &str, text: &str) -> Commit {
    Commit {
        token,
        version,
        call: id(call),
        turns: version + 1,
        meta: Some(Blob::json(&json!({"summary": text}))),
        revision: "r1".into(),
        messages: vec![message(text)],
        ended: Ended::Completed,
        reply: Blob::json(&json!({"call": call})),
        marks_seen: 0,
        go_on: true,
        events: vec![event(900, EventName::Completed)],
    }
}

pub fn rewrite(nonce: u128, condition: Condition, texts: &[&str]) -> Rewrite {
    Rewrite {
        nonce: Nonce(nonce),
        condition,
        epoch: Epoch(nonce + 7),
        messages: texts.iter().map(|text| message(text)).collect(),
        meta: Blob::empty(),
        turns: 1,
        revision: "r2".into(),
    }
}

pub fn limits() -> Limits {
    Limits {
        lease: Duration::from_secs(6),
        session_ttl: Duration::from_secs(3600),
        reply_ttl: Duration::from_secs(1800),
        event_ttl: Duration::from_secs(600),
        queue_limit: 3,
        event_log_bytes: 512,
    }
}

/// A clock that stands still until it is told to go on.
#[derive(Clone)]
pub struct Time(Arc<AtomicU64>);

impl Time {
    pub fn new() -> Self {
        Self(Arc::new(AtomicU64::new(Clock::wall().now())))
    }

    pub fn pass(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_millis()).expect("a short time"), Ordering::SeqCst);
    }

    pub fn clock(&self) -> Clock {
        let now = self.0.clone();
        Clock::by(move || now.load(Ordering::SeqCst))
    }
}

/// A folder in memory where there is one, for tests that open and close a store thousands of times.
pub fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder")
}

/// A store just dropped has its folder until its last thread is done.
pub fn open(folder: &Path, options: &FileOptions) -> FileStore {
    for _ in 0..500 {
        match FileStore::open(folder, limits(), options.clone()) {
            Err(OpenError::InUse { .. }) => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.expect("the folder can be used"),
        }
    }
    panic!("the former store still has the folder after 5 s");
}

pub fn granted(begun: Begun) -> Grant {
    match begun {
        Begun::Granted(grant) => *grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

pub fn taken(claimed: Claimed) -> Grant {
    match claimed {
        Claimed::Granted(grant) => *grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// Every file of a slot in the folder.
pub fn slot_files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// One call from its beginning to its end.
pub async fn talk(store: &dyn Store, slot: &Slot, call: &str, answer: &str) {
    let grant = granted(store.begin(slot, &begin(call, rand_nonce())).await.expect("begin"));
    let version = grant.session.version;
    store.commit(slot, &commit(grant.token, version, call, answer)).await.expect("commit");
}

pub fn rand_nonce() -> u128 {
    Nonce::random().0 >> 8
}
