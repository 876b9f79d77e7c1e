//! What no kill can show: that everything is on disk, and not only in the kernel's memory, before it is answered.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::disk::watch::{Act, noted};
use super::*;
use crate::store::*;

/// What a power failure could take away at this moment.
#[derive(Default, Debug)]
struct AtRisk {
    contents: BTreeSet<PathBuf>,
    names: BTreeSet<PathBuf>,
}

impl AtRisk {
    fn after(&mut self, path: &Path, act: &Act) {
        match act {
            Act::Name => {
                self.names.insert(path.to_owned());
            }
            Act::Write => {
                self.contents.insert(path.to_owned());
            }
            Act::Sync => {
                self.contents.remove(path);
            }
            Act::Rename(to) => {
                assert!(
                    !self.contents.contains(path),
                    "{} was renamed before it was on disk",
                    path.display()
                );
                self.names.remove(path);
                self.names.insert(to.clone());
            }
            Act::SyncFolder => self.names.retain(|name| name.parent() != Some(path)),
            Act::Answer => {
                assert!(
                    self.contents.is_empty() && self.names.is_empty(),
                    "answered while at risk: {self:?}"
                );
            }
        }
    }
}

fn claim() -> Claim {
    Claim { holder: "test".into(), nonce: Nonce::random(), known: None, epoch: Epoch::random(), leave: 0..0 }
}

fn begin(call: &str) -> Begin {
    Begin {
        call: Id::new("call", call).expect("an id"),
        digest: String::new(),
        input: vec![Blob::json(&json!({"role": "user"}))],
        context: Blob::empty(),
        revision: String::new(),
        stream: false,
        on_busy: OnBusy::Enqueue,
        queued: Blob::json(&json!({"call": call})),
        claim: claim(),
    }
}

async fn run_a_call(store: &FileStore, slot: &Slot, call: &str, text: &str) {
    let Begun::Granted(grant) = store.begin(slot, &begin(call)).await.expect("begin") else {
        panic!("the session is free");
    };
    let (token, call) = (grant.token, grant.call.id.clone());
    let steps = vec![Step { kind: StepKind::Message, bytes: Blob::json(&json!({"text": text})) }];
    let append = Append { token, call: call.clone(), at: 0, steps, ran: 1, events: vec![] };
    store.append(slot, &append).await.expect("append");
    let suspend = Suspend { token, call: call.clone(), ran: 2, park: false, events: vec![] };
    store.suspend(slot, &suspend).await.expect("suspend");
    let Claimed::Granted(grant) = store.claim(slot, &claim()).await.expect("claim") else {
        panic!("it was given back");
    };
    let mark = Blob::json(&json!({}));
    store.interrupt(slot, &call, &mark).await.expect("interrupt");
    let commit = Commit {
        token: grant.token,
        version: grant.session.version,
        call,
        turns: 1,
        meta: None,
        revision: String::new(),
        messages: vec![Blob::json(&json!({"text": text}))],
        ended: Ended::Completed,
        reply: Blob::json(&json!({})),
        marks_seen: "[{}]".len(),
        go_on: true,
        events: vec![],
    };
    store.commit(slot, &commit).await.expect("commit");
}

fn clear() -> Rewrite {
    Rewrite {
        nonce: Nonce::random(),
        condition: Condition::Exists,
        epoch: Epoch::random(),
        messages: vec![],
        meta: Blob::empty(),
        turns: 0,
        revision: String::new(),
    }
}

#[tokio::test]
async fn what_is_answered_is_on_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let root = folder.path().join("state");
    let store = FileStore::open(&root, Limits::default(), FileOptions::default()).expect("a store");
    let slots = [Slot::new(None, "s").expect("ids"), Slot::new(Some("u"), "s").expect("ids")];
    let long = "word ".repeat(2000);
    for slot in &slots {
        for turn in 0..6 {
            run_a_call(&store, slot, &format!("c{turn}"), &long).await;
        }
        store.rewrite(slot, &clear()).await.expect("clear");
        run_a_call(&store, slot, "last", "").await;
        store.delete(slot).await.expect("delete");
        run_a_call(&store, slot, "after", "").await;
    }
    let noted = noted(&root);
    let mut at_risk = AtRisk::default();
    for (path, act) in &noted {
        at_risk.after(path, act);
    }
    let count = |wanted: fn(&Act) -> bool| noted.iter().filter(|(_, act)| wanted(act)).count();
    let answers = count(|act| *act == Act::Answer);
    assert_eq!(answers, 2 * (8 * 6 + 2), "every change was answered once");
    let snapshots = count(|act| matches!(act, Act::Rename(_)));
    assert!(snapshots > 2 * 3, "{snapshots} snapshots: no file was ever made shorter");
    let syncs = count(|act| matches!(act, Act::Sync | Act::SyncFolder));
    assert!(syncs < answers + 4 * snapshots + 20, "{syncs} syncs for {answers} answers");
}
