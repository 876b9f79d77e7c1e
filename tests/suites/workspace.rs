//! Files under real processes: killed at every line of a write, told to stop in the middle of one, two at one file.
//! The judge reads only what clients were told and what the files hold.

#[path = "workspace/desk.rs"]
mod desk;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use desk::{Desk, Kind, OLD, edit, marks};
use futures::stream::{self, StreamExt};

/// Where a process can die while it writes, and whether the new file is there by then.
const LOCAL_LINES: [(&str, bool); 6] = [
    ("files.put.before", false),
    ("files.local.half", false),
    ("files.local.content", false),
    ("files.local.record", false),
    ("files.local.rename", true),
    ("files.put.after", true),
];
const REMOTE_LINES: [(&str, bool); 2] = [("files.put.before", false), ("files.put.after", true)];

/// `kill -9` in the middle of a write leaves the old or the new file, and the call that goes on edits it once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dying_at_any_line_of_a_write_leaves_a_whole_file_and_one_edit() -> Result<()> {
    let lines = LOCAL_LINES.map(|line| (Kind::Local, line)).into_iter();
    let lines = lines.chain(REMOTE_LINES.map(|line| (Kind::Remote, line)));
    let died: Vec<Result<()>> = stream::iter(lines)
        .map(|(kind, (point, written))| async move {
            die_at(kind, point, written).await.with_context(|| format!("{kind:?}, {point}"))
        })
        .buffer_unordered(3)
        .collect()
        .await;
    let failed: Vec<String> =
        died.iter().filter_map(|r| r.as_ref().err().map(|e| format!("{e:#}"))).collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    println!(
        "  died at {} lines of a write; each left a whole file, and each edit is there once",
        died.len()
    );
    Ok(())
}

async fn die_at(kind: Kind, point: &str, written: bool) -> Result<()> {
    let desk = Desk::set(kind).await?;
    let mut first = desk.replica(&[]).await?;
    desk.hand_in(&first, "log.md", OLD).await?;
    first.signal("TERM")?;
    first.ended(Duration::from_secs(20)).await?;

    let mut doomed = desk.replica(&[("FAILPOINTS", &format!("{point}=return"))]).await?;
    let refused = desk.call(&doomed, "s1", "c1", &edit("log.md", "one")).await;
    ensure!(refused.is_err(), "the process answered instead of dying there: {refused:?}");
    let status = doomed.ended(Duration::from_secs(20)).await.context("no process died there")?;
    ensure!(!status.success(), "the process ended well instead of dying there");

    let new = OLD.replace("END", "one\nEND");
    if let Some(left) = desk.on_disk("log.md")? {
        ensure!(
            left == if written { new.as_str() } else { OLD },
            "not the file it should have left: {left:?}"
        );
    }
    let next = desk.replica(&[]).await?;
    let left = desk.file(&next, "log.md").await?;
    ensure!(left == OLD || left == new, "a torn file: {left:?}");
    let ended = desk.call(&next, "s1", "c1", &edit("log.md", "one")).await?;
    ensure!(ended["status"] == "completed", "{ended}");
    let said = ended["text"].as_str().unwrap_or_default();
    ensure!(said.contains("Edited log.md at line 2"), "{said}");
    let after = desk.file(&next, "log.md").await?;
    ensure!(
        after == OLD.replace("END", "one\nEND"),
        "not edited once: {after:?}; it was written before: {written}"
    );
    ensure!(ended["resumes"].as_u64() > Some(0), "the call was not taken over: {ended}");
    Ok(())
}

/// The same at a random instant, over and over: a reader never sees anything but a whole file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_at_any_instant_leaves_the_old_or_the_new_file() -> Result<()> {
    let desk = Desk::set(Kind::Local).await?;
    let contents = ["a", "b"].map(|letter| letter.repeat(600_000));
    let mut kills = 0;
    for round in 0..5_u64 {
        let mut replica = desk.replica(&[]).await?;
        if round > 0 {
            let found = desk.file(&replica, "big").await?;
            ensure!(contents.contains(&found), "a torn file of {} bytes after {kills} kills", found.len());
        }
        desk.hand_in(&replica, "big", &contents[0]).await?;
        let writing = async {
            for n in 0.. {
                // Until the process is gone.
                desk.hand_in(&replica, "big", &contents[n % 2]).await?;
            }
            Ok::<(), anyhow::Error>(())
        };
        let _ = tokio::time::timeout(Duration::from_millis(30 + 23 * round), writing).await;
        replica.signal("KILL")?;
        replica.ended(Duration::from_secs(5)).await?;
        kills += 1;
    }
    let last = desk.replica(&[]).await?;
    let found = desk.file(&last, "big").await?;
    ensure!(contents.contains(&found), "a torn file of {} bytes after {kills} kills", found.len());
    println!("  {kills} kills in the middle of writing, 0 torn files");
    Ok(())
}

/// Two replicas, two sessions of one user, one file: what was said to be done is there once, what was said to be lost is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_edit_one_file() -> Result<()> {
    let desk = Desk::set(Kind::Remote).await?;
    let replicas = [desk.replica(&[]).await?, desk.replica(&[]).await?];
    desk.hand_in(&replicas[0], "log.md", OLD).await?;
    let (mut made, mut lost) = (Vec::new(), Vec::new());
    for round in 0..40 {
        let names = [format!("a{round}"), format!("b{round}")];
        let orders = [edit("log.md", &names[0]), edit("log.md", &names[1])];
        let (a, b) = tokio::join!(
            desk.call(&replicas[0], "s1", &names[0], &orders[0]),
            desk.call(&replicas[1], "s2", &names[1], &orders[1]),
        );
        for (ended, name) in [(a?, &names[0]), (b?, &names[1])] {
            let said = ended["text"].as_str().unwrap_or_default().to_owned();
            if said.contains("Edited") {
                made.push(name.clone());
            } else {
                ensure!(said.contains("changed meanwhile; nothing was written"), "{said}");
                lost.push(name.clone());
            }
        }
        if round >= 7 && lost.len() >= 2 {
            break;
        }
    }
    for replica in &replicas {
        let mut found = marks(&desk.file(replica, "log.md").await?);
        found.sort_unstable();
        made.sort();
        ensure!(found == made, "{found:?} is not what was said to be made: {made:?}");
    }
    println!("  {} edits made and there once, {} lost their race and said so", made.len(), lost.len());
    ensure!(!lost.is_empty(), "no two edits ever met");
    Ok(())
}

/// A rollout in the middle of a file-writing call: the client sees one answer, the file one edit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_in_the_middle_of_a_write_is_not_seen() -> Result<()> {
    for point in ["files.put.before", "files.put.after"] {
        let desk = Desk::set(Kind::Remote).await?;
        let mut old = desk.replica(&[("FAILPOINTS", &format!("{point}=sleep(1200)"))]).await?;
        let new = desk.replica(&[]).await?;
        desk.hand_in(&new, "log.md", OLD).await?;
        // The model answers slowly once the edit is made, so that the old replica must give the call back.
        let orders = edit("log.md", "one").replacen('{', "{\"delayMs\":1500,", 1);
        let (ended, stopped) = tokio::join!(desk.call(&old, "s1", "c1", &orders), async {
            // In the middle of the write: the tool has been started and has not answered.
            desk.until_tool_runs(&new, "s1", "c1").await?;
            old.signal("TERM")
        });
        stopped?;
        let ended = ended.context("the client was cut off")?;
        ensure!(ended["status"] == "completed" && ended["resumes"].as_u64() > Some(0), "{point}: {ended}");
        let status = old.ended(Duration::from_secs(60)).await?;
        ensure!(status.success(), "{point}: the old replica ended with {status}");
        let found = marks(&desk.file(&new, "log.md").await?);
        ensure!(found == ["one"], "{point}: {found:?}");
        ensure!(ended["text"].as_str().is_some_and(|said| said.contains("Edited log.md")), "{ended}");
    }
    Ok(())
}
