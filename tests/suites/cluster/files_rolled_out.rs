//! `kubectl rollout restart`, twice, while agents edit files that live in the store: nobody sees anything, and every edit that
//! was asked for is in its file once, in order, whichever replica made it.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::Namespace;
use holdfast_tests::cluster::ran::Ran;
use holdfast_tests::cluster::stage::Stage;
use holdfast_tests::cluster::talk::{FILE, Talk};
use serde_json::json;

const RESTARTS: usize = 2;
const SESSIONS: usize = 20;

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set(namespace, &json!({"filesystem": {"type": "Remote"}}))?;
    for n in 0..SESSIONS {
        stage.hand_in(&file(n), FILE)?;
    }
    let ran = stage.under_load(Talk { sessions: SESSIONS, long: true, leave: false, files: true }, || {
        stage.until_handed_over(RESTARTS, || {
            stage.restart()?;
            stage.settled(3)
        })
    })?;
    let mut edits = 0;
    let report = stage.report("files_rolled_out", &ran, |ran| {
        ran.unseen(&stage)?;
        ensure!(ran.summary.resumed > 0, "no call was handed over");
        for n in 0..SESSIONS {
            let (asked, found) = (asked(ran, n), stage.read_file(&file(n))?);
            let found: Vec<_> = found.lines().filter(|line| !FILE.lines().any(|of| of == *line)).collect();
            ensure!(found == asked, "{}: {found:?} is not what was asked for: {asked:?}", Talk::file(n));
            edits += asked.len();
        }
        ensure!(edits >= SESSIONS, "only {edits} edits");
        Ok(())
    })?;
    Ok(format!("{report}  edits that were asked for, each in its file once, in order: {edits}\n"))
}

fn file(n: usize) -> String {
    format!("{}/files/{}", Talk::session(n).path(), Talk::file(n))
}

/// The marks that a session's calls were to leave, in the order they were made.
fn asked(ran: &Ran, n: usize) -> Vec<String> {
    let session = Talk::session(n).session;
    let of_it = ran.summary.told.iter().filter(|told| told.session == session);
    let edits = of_it.filter(|told| told.said.contains("edit_file"));
    edits.filter_map(|told| told.said.split_once(" #")).map(|(mark, _)| mark.to_owned()).collect()
}
