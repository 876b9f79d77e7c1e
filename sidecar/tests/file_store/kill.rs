//! More than one process: one that is killed in the middle of its work, and two that want the same folder.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_sidecar::state::Slot;
use holdfast_sidecar::store::file::{FileOptions, OpenError};
use holdfast_sidecar::store::*;

use crate::kit::*;

const SLOTS: usize = 4;
const ROUNDS: usize = 8;

fn worker(folder: &Path, round: usize) -> Child {
    Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "kill::child_that_will_be_killed", "--ignored", "--nocapture"])
        .env("HOLDFAST_TEST_FOLDER", folder)
        .env("HOLDFAST_TEST_ROUND", round.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child")
}

fn conversation(n: usize) -> Slot {
    slot(&format!("user {n}"), "the only one")
}

/// What was answered, told by whoever got the answer.
#[derive(Default)]
struct Answered {
    admitted: Vec<String>,
    journalled: BTreeMap<String, usize>,
    committed: Vec<String>,
}

impl Answered {
    fn heard(&mut self, what: &str, call: &str) {
        match what {
            "begun" => self.admitted.push(call.to_owned()),
            "journalled" => *self.journalled.entry(call.to_owned()).or_default() += 1,
            "committed" => self.committed.push(call.to_owned()),
            other => panic!("unknown word {other:?}"),
        }
    }
}

#[tokio::test]
async fn all_that_was_answered_before_a_kill_is_there_after_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut answered: Vec<Answered> = (0..SLOTS).map(|_| Answered::default()).collect();
    let (mut answers, mut takeovers) = (0, 0);
    for round in 0..ROUNDS {
        let mut child = worker(folder.path(), round);
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut until = None;
        for line in lines {
            // The last line may have been cut off with its writer.
            let line = line.expect("a line");
            let words: Vec<_> = line.split(' ').collect();
            let ["answered", slot, what, call, "."] = words[..] else { continue };
            answered[slot.parse::<usize>().expect("a number")].heard(what, call);
            answers += 1;
            let until = *until.get_or_insert_with(|| {
                Instant::now() + Duration::from_millis(120 + 37 * u64::try_from(round).expect("small"))
            });
            if Instant::now() > until {
                child.kill().expect("killed");
            }
        }
        let end = child.wait().expect("ended");
        assert_eq!(end.signal(), Some(9), "it ended by itself: {end}");

        let store = open(folder.path(), &FileOptions::default());
        for (n, answered) in answered.iter().enumerate() {
            takeovers += check(&store, &conversation(n), answered).await;
        }
    }
    assert!(answers > 400, "{answers} answers are too few to say anything");
    assert!(takeovers > ROUNDS / 2, "{takeovers} takeovers are too few to say anything");
}

/// Everything answered is there, in order, once. Returns how many calls were found unfinished.
async fn check(store: &FileStore, slot: &Slot, answered: &Answered) -> usize {
    let history = store.load(slot, None).await.expect("load").map_or_else(Vec::new, |loaded| loaded.messages);
    let inputs: Vec<String> = history
        .iter()
        .filter_map(|message| {
            let message: serde_json::Value = serde_json::from_slice(message).expect("JSON");
            message["content"].as_str().filter(|text| text.starts_with("call-")).map(str::to_owned)
        })
        .collect();
    let mut once = inputs.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), inputs.len(), "no turn appears twice");
    let mut rest = inputs.iter();
    for call in &answered.committed {
        assert!(rest.any(|input| input == call), "{slot}: {call} was committed, and is not in its place");
    }
    let live = store.live(slot).await.expect("live");
    for call in &answered.admitted {
        let found = inputs.contains(call) || live.iter().any(|live| live.id.as_str() == call);
        assert!(found, "{slot}: {call} was admitted, and is gone");
    }
    for call in &live {
        let journalled = answered.journalled.get(call.id.as_str()).copied().unwrap_or(0);
        assert!(call.messages.len() >= journalled, "{slot}: journal entries of {} are gone", call.id);
        assert!(!call.running, "a lease of a dead process is void");
    }
    let overdue = store.overdue(0, 99).await.expect("overdue");
    assert_eq!(overdue.contains(slot), !live.is_empty(), "{slot} is looked after if and only if it has work");
    live.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "run by the test above, in a process of its own, and killed by it"]
async fn child_that_will_be_killed() {
    let Some(folder) = std::env::var_os("HOLDFAST_TEST_FOLDER").map(PathBuf::from) else { return };
    let round = std::env::var("HOLDFAST_TEST_ROUND").expect("a round");
    let store = Arc::new(open(&folder, &FileOptions { cache_bytes: 64 << 10, ..FileOptions::default() }));
    println!();
    let tasks = (0..SLOTS).map(|n| tokio::spawn(work(store.clone(), n, round.clone())));
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("a task");
    }
}

async fn work(store: Arc<FileStore>, n: usize, round: String) {
    let slot = conversation(n);
    let tell = |what: &str, call: &str| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("answered {n} {what} {call} .\n").as_bytes()).expect("the parent reads");
        out.flush().expect("the parent reads");
    };
    let big = "word ".repeat(500);
    for turn in 0..10_000 {
        let call = format!("call-{round}-{turn}");
        // The call at the head may be one that the process before left.
        let mut grant = granted(store.begin(&slot, &begin(&call, rand_nonce())).await.expect("begin"));
        tell("begun", &call);
        loop {
            let head = grant.call.id.to_string();
            for step in 0..2 {
                let at = grant.call.steps.len() + step;
                let text = format!("{head} {at} {big}");
                store.append(&slot, &append(grant.token, &head, at, &text)).await.expect("append");
                tell("journalled", &head);
            }
            let end = commit(grant.token, grant.session.version, &head, "done");
            let Committed::Done { next } = store.commit(&slot, &end).await.expect("commit") else {
                panic!("nobody has marked it");
            };
            tell("committed", &head);
            let Some(next) = next else { break };
            grant.call = *next;
            grant.session.version += 1;
        }
    }
}

#[test]
fn a_second_process_is_told_who_has_the_folder_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = worker(folder.path(), 0);
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let started = lines.any(|line| line.is_ok_and(|line| line.starts_with("answered")));
    assert!(started);
    let error = FileStore::open(folder.path(), limits(), FileOptions::default()).err().expect("in use");
    let sentence = error.to_string();
    assert!(matches!(error, OpenError::InUse { .. }), "{sentence}");
    for part in [
        format!("in use by process {} on ", child.id()),
        format!("{}", folder.path().display()),
        "stop that one, give this one another folder, or keep the state in Redis".to_owned(),
    ] {
        assert!(sentence.contains(&part), "{sentence:?} lacks {part:?}");
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    // What the dead one wrote into the lock file does not matter.
    drop(open(folder.path(), &FileOptions::default()));
}
