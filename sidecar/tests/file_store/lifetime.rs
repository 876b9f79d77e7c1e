//! From start to start: what the next process finds, and what is gone when its time is up.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use futures::FutureExt;
use holdfast_sidecar::state::Slot;
use holdfast_sidecar::store::file::FileOptions;
use holdfast_sidecar::store::*;

use crate::kit::*;

fn on(time: &Time) -> FileOptions {
    FileOptions { clock: time.clock(), ..FileOptions::default() }
}

#[tokio::test]
async fn after_a_restart_a_lease_is_void_at_once_and_counts_an_attempt() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = FileOptions::default();
    let slot = slot("alice", "s1");
    let store = open(folder.path(), &options);
    let first = granted(store.begin(&slot, &begin("c1", 1)).await.expect("begin"));
    store.append(&slot, &append(first.token, "c1", 0, "step")).await.expect("append");
    store.begin(&slot, &begin("c2", 2)).await.expect("begin");
    assert_eq!(store.overdue(0, 9).await.expect("overdue"), []);
    drop(store);

    let store = open(folder.path(), &options);
    assert_eq!(store.overdue(0, 9).await.expect("overdue"), std::slice::from_ref(&slot));
    let second = taken(store.claim(&slot, &claim(3)).await.expect("claim"));
    assert!(second.token.fence > first.token.fence);
    assert_eq!((second.call.id.as_str(), second.call.attempts, second.call.resumes), ("c1", 1, 1));
    assert_eq!((second.call.steps.len(), second.call.ran), (1, 5));
    assert_eq!(store.renew(&slot, &renew(first.token, "c1")).await, Err(StoreError::LeaseLost));

    // Given back, it counts none.
    let suspend = Suspend { token: second.token, call: id("c1"), ran: 9, park: false, events: vec![] };
    store.suspend(&slot, &suspend).await.expect("suspend");
    drop(store);
    let store = open(folder.path(), &options);
    let third = taken(store.claim(&slot, &claim(4)).await.expect("claim"));
    assert_eq!((third.call.attempts, third.call.resumes, third.call.ran), (1, 2, 9));
}

#[tokio::test]
async fn a_parked_call_waits_over_a_restart_until_somebody_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = FileOptions::default();
    let slot = slot("alice", "s1");
    let store = open(folder.path(), &options);
    let grant = granted(store.begin(&slot, &begin("c1", 1)).await.expect("begin"));
    let suspend = Suspend { token: grant.token, call: id("c1"), ran: 9, park: true, events: vec![] };
    store.suspend(&slot, &suspend).await.expect("suspend");
    drop(store);
    let store = open(folder.path(), &options);
    assert_eq!(store.overdue(0, 9).await.expect("overdue"), []);
    let grant = granted(store.begin(&slot, &begin("c2", 2)).await.expect("begin"));
    assert_eq!((grant.call.id.as_str(), grant.call.attempts), ("c1", 0));
}

#[tokio::test]
async fn a_slot_without_room_in_memory_keeps_a_lease_that_only_memory_knows() {
    let folder = tempfile::tempdir().expect("a folder");
    let time = Time::new();
    let store = open(folder.path(), &FileOptions { cache_bytes: 0, clock: time.clock() });
    let (ours, other) = (slot("alice", "s1"), slot("bob", "s1"));
    let grant = granted(store.begin(&ours, &begin("c1", 1)).await.expect("begin"));
    for turn in 0..8 {
        time.pass(Duration::from_secs(5));
        store.renew(&ours, &renew(grant.token, "c1")).await.expect("renew");
        talk(&store, &other, &format!("c{turn}"), "hi").await;
    }
    let held = store.claim(&ours, &claim(2)).await.expect("claim");
    assert!(matches!(held, Claimed::Held { .. }), "{held:?}");
}

#[tokio::test]
async fn ids_of_all_kinds_have_slots_of_their_own() {
    let long = "x".repeat(512);
    let ids =
        ["a", "A", "/", "..", ".", "*", "a/b", "b", "\n", "\0", "😀", "~", "anonymous", "con", "a b", &long];
    let mut slots: Vec<Slot> = ids.iter().map(|id| Slot::new(None, id).expect("ids")).collect();
    for user in ids {
        slots.extend(ids.iter().map(|session| slot(user, session)));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path(), &FileOptions::default());
    for (n, slot) in slots.iter().enumerate() {
        let put = rewrite(n as u128 + 1, Condition::Absent, &[&n.to_string()]);
        assert_eq!(store.rewrite(slot, &put).await, Ok(Rewritten::Done { version: 1 }), "{slot}");
    }
    drop(store);
    let store = open(folder.path(), &FileOptions::default());
    for (n, slot) in slots.iter().enumerate() {
        let loaded = store.load(slot, None).await.expect("load").expect("a session");
        assert_eq!(loaded.messages, [message(&n.to_string())], "{slot}");
    }
    for user in ids {
        let user = slot(user, "s").user.expect("a user");
        let page = store.list(&user, 100, None).await.expect("list");
        let found: BTreeSet<_> = page.sessions.iter().map(|row| row.session.as_str()).collect();
        assert_eq!(found, BTreeSet::from(ids));
    }
    let names: BTreeSet<_> =
        slot_files(folder.path()).iter().map(|path| path.to_string_lossy().to_lowercase()).collect();
    assert_eq!(names.len(), slots.len(), "a disk that ignores case would mix them up");
}

#[tokio::test]
async fn a_start_reads_no_session_without_live_calls() {
    let folder = tempfile::tempdir().expect("a folder");
    let time = Time::new();
    let store = open(folder.path(), &on(&time));
    talk(&store, &slot("alice", "done"), "c1", "hi").await;
    granted(store.begin(&slot("alice", "live"), &begin("c1", 1)).await.expect("begin"));
    let markers = || fs::read_dir(folder.path().join("due")).expect("due").count();
    assert_eq!(markers(), 2, "a marker stays for a while");
    time.pass(Duration::from_secs(61));
    store.overdue(0, 1).await.expect("overdue");
    drop(store);
    drop(open(folder.path(), &on(&time)));
    assert_eq!(markers(), 1);

    fs::remove_dir_all(folder.path().join("users")).expect("removed");
    let store = open(folder.path(), &on(&time));
    assert_eq!(markers(), 0, "a marker of a slot that is not there is not kept");
    assert_eq!(store.overdue(0, 9).await.expect("overdue"), []);
}

#[tokio::test]
async fn what_has_run_out_leaves_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let time = Time::new();
    let store = open(folder.path(), &on(&time));
    let (kept, deleted) = (slot("alice", "kept"), slot("bob", "deleted"));
    talk(&store, &kept, "c1", "hi").await;
    talk(&store, &deleted, "c1", "a secret").await;
    assert_eq!(store.delete(&deleted).await, Ok(true));
    assert_eq!(slot_files(folder.path()).len(), 2, "a tombstone is kept");
    for file in slot_files(folder.path()) {
        assert!(!fs::read_to_string(file).expect("text").contains("a secret"), "deleted is deleted");
    }
    assert_eq!(store.begin(&deleted, &begin("c1", 9)).await, Ok(Begun::Deleted));

    // A round is made in passing, by a thread that keeps the folder until it is done.
    let sweep = async |seconds: u64| {
        time.pass(Duration::from_secs(seconds));
        let store = open(folder.path(), &on(&time));
        time.pass(Duration::from_secs(61));
        store.overdue(0, 1).await.expect("overdue");
        drop(store);
        open(folder.path(), &on(&time))
    };
    drop(store);
    let store = sweep(1800).await;
    assert_eq!(slot_files(folder.path()).len(), 1, "the tombstone is gone, the session is not");
    assert!(store.load(&kept, None).await.expect("load").is_some());
    assert_eq!(fs::read_dir(folder.path().join("users")).expect("users").count(), 1);
    drop(store);
    let store = sweep(3600).await;
    assert_eq!(slot_files(folder.path()).len(), 0);
    assert_eq!(store.load(&kept, None).await, Ok(None));
    talk(&store, &kept, "c1", "again").await;
}

#[tokio::test]
async fn a_file_grows_with_what_is_new_and_shrinks_when_it_is_mostly_old() {
    let folder = tempfile::tempdir().expect("a folder");
    let time = Time::new();
    let store = open(folder.path(), &on(&time));
    let slot = slot("alice", "long");
    let (mut written, mut last, mut longest) = (0, 0, 0);
    for turn in 0..400 {
        talk(&store, &slot, &format!("c{turn}"), &"word ".repeat(40)).await;
        // Replies are kept for a while; the conversation goes on for longer.
        time.pass(Duration::from_secs(60));
        let len = fs::metadata(&slot_files(folder.path())[0]).expect("a file").len();
        written += if len >= last { len - last } else { len };
        (last, longest) = (len, longest.max(len));
    }
    let history: usize =
        store.load(&slot, None).await.expect("load").expect("it").messages.iter().map(|m| m.len()).sum();
    let history = history as u64;
    assert!(longest < 5 * history + (128 << 10), "{longest} bytes on disk for a history of {history}");
    assert!(written < 20 * history, "{written} bytes written for a history of {history}");
    drop(store);
    let store = open(folder.path(), &on(&time));
    assert_eq!(store.load(&slot, None).await.expect("load").expect("it").messages.len(), 800);
}

#[tokio::test]
async fn a_long_call_does_not_make_a_long_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let time = Time::new();
    let store = open(folder.path(), &on(&time));
    let slot = slot("alice", "s1");
    let grant = granted(store.begin(&slot, &begin("c1", 1)).await.expect("begin"));
    let mut longest = 0;
    for seq in 0..2000 {
        let events = vec![event(seq, EventName::Delta)];
        store.renew(&slot, &Renew { events, ..renew(grant.token, "c1") }).await.expect("renew");
        longest = longest.max(fs::metadata(&slot_files(folder.path())[0]).expect("a file").len());
    }
    assert!(longest > 64 << 10, "{longest} bytes: the log was never long enough to be made shorter");
    assert!(longest < 72 << 10, "{longest} bytes for events of which 512 bytes are kept");
    let page = store.events(&slot, &id("c1"), None).await.expect("events");
    drop(store);
    let store = open(folder.path(), &on(&time));
    assert_eq!(store.events(&slot, &id("c1"), None).await.expect("events").events, page.events);
}

#[tokio::test]
async fn the_time_a_call_has_run_is_known_to_the_next_process_within_seconds() {
    let folder = tempfile::tempdir().expect("a folder");
    let time = Time::new();
    let slot = slot("alice", "s1");
    let store = open(folder.path(), &on(&time));
    let grant = granted(store.begin(&slot, &begin("c1", 1)).await.expect("begin"));
    let path = slot_files(folder.path()).remove(0);
    let mut writes = BTreeSet::new();
    for ran in (0..=100_000).step_by(2000) {
        time.pass(Duration::from_secs(2));
        store.renew(&slot, &Renew { ran, ..renew(grant.token, "c1") }).await.expect("renew");
        writes.insert(fs::metadata(&path).expect("a file").len());
    }
    assert!((9..=11).contains(&writes.len()), "51 renewals in 102 s, and {} writes", writes.len());
    drop(store);
    let store = open(folder.path(), &on(&time));
    let grant = taken(store.claim(&slot, &claim(2)).await.expect("claim"));
    assert!((90_000..=100_000).contains(&grant.call.ran), "{} ms are remembered of 100 000", grant.call.ran);
}

#[tokio::test]
async fn cleared_is_gone_from_the_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = open(folder.path(), &FileOptions::default());
    let slot = slot("alice", "s1");
    store.rewrite(&slot, &rewrite(1, Condition::Absent, &["a secret"])).await.expect("put");
    store.rewrite(&slot, &rewrite(2, Condition::Exists, &[])).await.expect("clear");
    assert!(!fs::read_to_string(&slot_files(folder.path())[0]).expect("text").contains("a secret"));
}

#[tokio::test]
async fn a_line_break_between_the_parts_of_a_message_does_no_harm() {
    let folder = tempfile::tempdir().expect("a folder");
    let slot = slot("alice", "s1");
    let pretty = Blob::from(&b"{\n  \"role\": \"user\",\n  \"content\": \"a\\nb\"\n}"[..]);
    let store = open(folder.path(), &FileOptions::default());
    let mut first = begin("c1", 1);
    first.input = vec![pretty.clone()];
    let grant = granted(store.begin(&slot, &first).await.expect("begin"));
    let mut steps = append(grant.token, "c1", 0, "x");
    steps.steps[0].bytes = pretty.clone();
    store.append(&slot, &steps).await.expect("append");
    let mut end = commit(grant.token, 0, "c1", "x");
    end.messages = vec![pretty];
    store.commit(&slot, &end).await.expect("commit");
    let before = store.load(&slot, None).await.expect("load").expect("it");
    drop(store);
    let after =
        open(folder.path(), &FileOptions::default()).load(&slot, None).await.expect("load").expect("it");
    assert_eq!(before, after);
    assert_eq!(after.messages.len(), 3);
    for message in &after.messages {
        let value: serde_json::Value = serde_json::from_slice(message).expect("JSON");
        assert_eq!(value, serde_json::json!({"role": "user", "content": "a\nb"}));
    }
}

#[tokio::test]
async fn a_caller_that_gives_up_leaves_nothing_half_done() {
    let folder = tempfile::tempdir().expect("a folder");
    let slot = slot("alice", "s1");
    let store = open(folder.path(), &FileOptions::default());
    for call in 0..3 {
        let request = begin(&format!("c{call}"), call + 1);
        // The first look sends it on its way; nobody waits for the answer.
        let _ = store.begin(&slot, &request).now_or_never();
    }
    let grant = granted(store.begin(&slot, &begin("c0", 1)).await.expect("begin"));
    assert_eq!(grant.call.id.as_str(), "c0");
    let seen = store.live(&slot).await.expect("live");
    drop(store);
    let store = open(folder.path(), &FileOptions::default());
    let found = store.live(&slot).await.expect("live");
    let ids = |calls: &[LiveCall]| calls.iter().map(|call| call.id.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&seen), ids(&found));
}

#[tokio::test]
async fn different_slots_do_not_wait_for_one_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = std::sync::Arc::new(open(folder.path(), &FileOptions::default()));
    let tasks = (0..16).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let slot = slot(&format!("user {n}"), "s");
            for call in 0..10 {
                talk(&*store, &slot, &format!("c{call}"), "hi").await;
            }
            store.load(&slot, None).await.expect("load").expect("it").messages.len()
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        assert_eq!(task.await.expect("a task"), 20);
    }
}

#[tokio::test]
async fn a_list_reads_what_has_changed_since_the_last() {
    let folder = quick_folder();
    let store = open(folder.path(), &FileOptions::default());
    let user = slot("alice", "s").user.expect("a user");
    for n in 0..3 {
        talk(&store, &slot("alice", &n.to_string()), "c1", "hi").await;
    }
    let listed = store.list(&user, 9, None).await.expect("a list");
    assert_eq!(listed.sessions.len(), 3);

    // Somebody damages a file in a way that nothing but reading it can show.
    let path = slot_files(folder.path()).remove(0);
    let file = fs::File::options().write(true).open(&path).expect("the file");
    let unchanged = file.metadata().and_then(|about| about.modified()).expect("its time");
    std::os::unix::fs::FileExt::write_all_at(&file, b"#", 0).expect("damaged");
    file.set_modified(unchanged).expect("its time");
    assert_eq!(store.list(&user, 9, None).await.expect("a list"), listed, "it was read again");
    file.set_modified(unchanged + Duration::from_secs(1)).expect("its time");
    assert!(matches!(store.list(&user, 9, None).await, Err(StoreError::Corrupt(_))), "it was not read again");
    std::os::unix::fs::FileExt::write_all_at(&file, b"{", 0).expect("repaired");

    talk(&store, &slot("alice", "1"), "c2", "again").await;
    store.delete(&slot("alice", "2")).await.expect("deleted");
    let versions = |page: SessionPage| {
        page.sessions
            .into_iter()
            .map(|row| (row.session.as_str().to_owned(), row.version))
            .collect::<Vec<_>>()
    };
    let now = versions(store.list(&user, 9, None).await.expect("a list"));
    assert_eq!(
        now.iter().map(|(session, version)| (session.as_str(), *version)).collect::<Vec<_>>(),
        [("1", 2), ("0", 1)]
    );
}
