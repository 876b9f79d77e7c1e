//! What a disk may do: cut a write off, fill up, give back something else than it was given.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use holdfast_sidecar::state::Slot;
use holdfast_sidecar::store::file::{FileOptions, OpenError};
use holdfast_sidecar::store::*;

use crate::kit::*;

/// Everything a caller can see of a slot, as text.
async fn seen(store: &FileStore, slot: &Slot) -> String {
    let (loaded, live) = (store.load(slot, None).await, store.live(slot).await);
    let mut text = format!("{loaded:?} {live:?}");
    for call in ["c1", "c2", "c3"] {
        text += &format!("{:?}", store.events(slot, &id(call), None).await);
    }
    text
}

fn reopen(folder: &Path) -> FileStore {
    open(folder, &FileOptions::default())
}

/// A session with a finished call, and a second one that has come as far as `steps` says. Each of them is one line.
async fn second_call(store: &FileStore, slot: &Slot, steps: usize) {
    let grant = granted(store.begin(slot, &begin("c2", 7)).await.expect("begin"));
    if steps > 0 {
        store.append(slot, &append(grant.token, "c2", 0, "step")).await.expect("append");
    }
    if steps > 1 {
        store.commit(slot, &commit(grant.token, 1, "c2", "done")).await.expect("commit");
    }
}

#[tokio::test]
async fn a_write_cut_off_at_any_byte_leaves_the_state_before_it() {
    let mut cuts = 0;
    for steps in 0..3 {
        let folder = quick_folder();
        let slot = slot("alice", "s1");
        let store = reopen(folder.path());
        talk(&store, &slot, "c1", "hi").await;
        second_call(&store, &slot, steps).await;
        drop(store);
        let path = slot_files(folder.path()).remove(0);
        let whole = fs::read(&path).expect("the file");
        let last_line = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').expect("lines") + 1;

        let after = seen(&reopen(folder.path()), &slot).await;
        fs::write(&path, &whole[..last_line]).expect("cut");
        let before = seen(&reopen(folder.path()), &slot).await;
        assert_ne!(before, after);
        for cut in last_line + 1..whole.len() {
            fs::write(&path, &whole[..cut]).expect("cut");
            let store = reopen(folder.path());
            assert_eq!(seen(&store, &slot).await, before, "{steps} steps, cut at {cut}");
            cuts += 1;
            if cut % 16 == 0 {
                // Whatever comes next must not be written behind the remains.
                store.begin(&slot, &begin("c3", 9)).await.expect("begin");
                let next = seen(&store, &slot).await;
                drop(store);
                let found = seen(&reopen(folder.path()), &slot).await;
                // Who runs it is void after a restart; all else is as it was.
                assert_eq!(found, next.replace("running: true", "running: false"), "after a cut at {cut}");
            }
        }
    }
    assert!(cuts > 1000, "{cuts} cuts are too few to say anything");
}

#[tokio::test]
async fn nothing_is_left_of_a_long_write_behind_a_short_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let slot = slot("alice", "s1");
    let store = reopen(folder.path());
    talk(&store, &slot, "c1", "hi").await;
    let grant = granted(store.begin(&slot, &begin("c2", 7)).await.expect("begin"));
    let path = slot_files(folder.path()).remove(0);
    let remains = format!("{{\"at\":1,\"changes\":[{}", "\"long\",".repeat(1000));
    let leave_remains = || {
        let mut file = fs::OpenOptions::new().append(true).open(&path).expect("the file");
        std::io::Write::write_all(&mut file, remains.as_bytes()).expect("written");
    };
    leave_remains();
    store.append(&slot, &append(grant.token, "c2", 0, "one")).await.expect("append");
    drop(store);
    leave_remains();
    let store = reopen(folder.path());
    let mark = Blob::json(&serde_json::json!({}));
    assert_eq!(store.interrupt(&slot, &id("c2"), &mark).await, Ok(Interrupted::Marked));
    drop(store);
    let grant = taken(reopen(folder.path()).claim(&slot, &claim(9)).await.expect("claim"));
    assert_eq!((grant.call.steps.len(), grant.call.mark.is_some()), (1, true));
    assert!(!fs::read_to_string(&path).expect("text").contains("long"));
}

#[tokio::test]
async fn what_cannot_be_read_is_an_error_for_everybody_and_is_left_as_it_is() {
    type Damage = fn(&str) -> String;
    let damages: [(&str, Damage); 6] = [
        ("line 2", |text| text.replacen("{\"at\":", "{\"at\":x", 1)),
        ("format 2", |text| text.replacen("\"format\":1", "\"format\":2", 1)),
        ("no snapshot", |_| String::new()),
        ("no snapshot", |text| text.lines().next().expect("a line")[..40].to_owned()),
        ("holds session \"alice\"/\"s2\" where", |text| text.replacen("\"s1\"", "\"s2\"", 1)),
        ("unknown variant", |text| text.replacen("{\"Extend\":", "{\"Telepathy\":", 1)),
    ];
    for (sentence, damage) in damages {
        let folder = tempfile::tempdir().expect("a folder");
        let (damaged, whole) = (slot("alice", "s1"), slot("bob", "s1"));
        let store = reopen(folder.path());
        for slot in [&damaged, &whole] {
            talk(&store, slot, "c1", "hi").await;
            second_call(&store, slot, 2).await;
        }
        drop(store);
        let path = slot_files(folder.path())
            .into_iter()
            .find(|path| fs::read_to_string(path).expect("text").contains("alice"))
            .expect("a file");
        let text = damage(&fs::read_to_string(&path).expect("text"));
        fs::write(&path, &text).expect("damaged");

        let store = reopen(folder.path());
        let error = store.load(&damaged, None).await.expect_err(sentence);
        assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
        assert!(error.to_string().contains(sentence), "{error}");
        assert!(error.to_string().contains(path.to_str().expect("a path")), "{error}");
        assert_eq!(store.begin(&damaged, &begin("c9", 9)).await.err(), Some(error.clone()));
        assert_eq!(store.delete(&damaged).await.err(), Some(error.clone()));
        assert_eq!(store.rewrite(&damaged, &rewrite(3, Condition::Absent, &[])).await.err(), Some(error));
        assert_eq!(fs::read_to_string(&path).expect("text"), text, "left as it is");
        assert_eq!(store.load(&whole, None).await.expect("load").expect("it").messages.len(), 5);
    }
}

#[tokio::test]
async fn a_file_taken_from_under_the_store_is_an_error_and_not_a_fresh_session() {
    let folder = tempfile::tempdir().expect("a folder");
    let slot = slot("alice", "s1");
    let store = reopen(folder.path());
    talk(&store, &slot, "c1", "hi").await;
    let path = slot_files(folder.path()).remove(0);
    let bytes = fs::read(&path).expect("the file");
    fs::write(&path, &bytes[..bytes.len() / 2]).expect("cut short");
    let error = store.begin(&slot, &begin("c2", 2)).await.expect_err("cut short");
    assert!(matches!(error, StoreError::Corrupt(_)), "{error}");
    fs::remove_file(&path).expect("removed");
    let error = store.begin(&slot, &begin("c2", 2)).await.expect_err("removed");
    assert!(error.to_string().contains("was removed while this process used it"), "{error}");
    fs::write(&path, &bytes).expect("put back");
    granted(store.begin(&slot, &begin("c2", 2)).await.expect("begin"));
}

#[tokio::test]
async fn a_folder_that_is_not_the_one_locked_says_nothing_about_a_session() {
    let parent = tempfile::tempdir().expect("a folder");
    let (folder, away) = (parent.path().join("state"), parent.path().join("away"));
    let store = reopen(&folder);
    talk(&store, &slot("alice", "s1"), "c1", "hi").await;
    fs::rename(&folder, &away).expect("moved");
    for make in [false, true] {
        if make {
            fs::create_dir_all(folder.join("users")).expect("an empty folder, as below a lost mount");
            fs::write(folder.join("lock"), "").expect("a lock");
        }
        for error in [
            store.load(&slot("alice", "s2"), None).await.expect_err("gone"),
            store.list(slot("bob", "s").user.as_ref().expect("a user"), 9, None).await.expect_err("gone"),
            store.ping().await.expect_err("gone"),
        ] {
            assert!(matches!(error, StoreError::Disk(_)), "{error}");
        }
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_refuses_and_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let slot = slot("alice", "s1");
    for obstacle in ["users", "due"] {
        let store = reopen(folder.path());
        let path = folder.path().join(obstacle);
        fs::remove_dir_all(&path).expect("removed");
        fs::write(&path, "in the way").expect("written");
        let error = store.begin(&slot, &begin("c1", 1)).await.expect_err("in the way");
        assert!(matches!(error, StoreError::Disk(_)), "{error}");
        fs::remove_file(&path).expect("out of the way");
        fs::create_dir(&path).expect("made");
        assert_eq!(store.status(&slot, &id("c1")).await, Ok(CallStatus::Unknown));
        granted(store.begin(&slot, &begin("c1", 1)).await.expect("begin"));
        assert_eq!(store.delete(&slot).await, Ok(true));
        drop(store);
        for file in slot_files(folder.path()) {
            fs::remove_file(file).expect("removed");
        }
    }
    let file = folder.path().join("a file");
    fs::write(&file, "").expect("written");
    let error = FileStore::open(&file, limits(), FileOptions::default()).err().expect("not a folder");
    assert!(matches!(error, OpenError::Unusable { .. }), "{error}");
    assert!(error.to_string().contains("give a folder this process can write to"), "{error}");
}

/// The disk of the child is full as soon as a file has 48 KiB.
#[tokio::test]
async fn on_a_full_disk_a_call_is_refused_and_nothing_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 96; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "damage::child_on_a_full_disk", "--ignored", "--nocapture"])
        .env("HOLDFAST_TEST_FOLDER", folder.path())
        .output()
        .expect("sh");
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{output} {}", String::from_utf8_lossy(&child.stderr));
    let messages = output.lines().find_map(|line| line.strip_prefix("messages ")).expect("a line");
    let store = reopen(folder.path());
    let slot = slot("alice", "s1");
    let loaded = store.load(&slot, None).await.expect("load").expect("it");
    assert_eq!(loaded.messages.len().to_string(), messages);
    talk(&store, &slot, "after", "hi").await;
}

#[tokio::test]
#[ignore = "run by the test above, in a process of its own"]
async fn child_on_a_full_disk() {
    let Some(folder) = std::env::var_os("HOLDFAST_TEST_FOLDER").map(PathBuf::from) else { return };
    let store = reopen(&folder);
    let slot = slot("alice", "s1");
    let big = "word ".repeat(400);
    let mut refused = 0;
    let mut turn = 0;
    while refused < 3 {
        turn += 1;
        let before = seen(&store, &slot).await;
        let call = format!("c{turn}");
        let error = match store.begin(&slot, &begin(&call, rand_nonce())).await {
            Ok(begun) => {
                let grant = granted(begun);
                let before = seen(&store, &slot).await;
                let end = commit(grant.token, grant.session.version, &call, &big);
                let Err(error) = store.commit(&slot, &end).await else { continue };
                assert_eq!(seen(&store, &slot).await, before, "nothing was changed");
                // Ended with less, it fits.
                let small = commit(grant.token, grant.session.version, &call, "");
                if store.commit(&slot, &small).await.is_err() {
                    store.delete(&slot).await.expect("a delete needs less room than it frees");
                }
                error
            }
            Err(error) => {
                assert_eq!(seen(&store, &slot).await, before, "nothing was changed");
                error
            }
        };
        assert!(matches!(error, StoreError::Disk(_)), "{error}");
        assert!(error.is_transient());
        refused += 1;
    }
    let new = rewrite(5, Condition::Absent, &[&"word ".repeat(20_000)]);
    let error = store.rewrite(&Slot::new(None, "new").expect("ids"), &new).await.expect_err("too big");
    assert!(error.to_string().contains("free space"), "{error}");
    assert!(turn > 5, "{turn} calls are too few to say anything");
    let messages = store.load(&slot, None).await.expect("load").map_or(0, |loaded| loaded.messages.len());
    println!("\nmessages {messages}");
}
