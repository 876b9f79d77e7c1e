//! What a run in a cluster came to, and somebody who reads every session's state while it goes on.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::sync::Mutex;

use super::pods::Pods;
use super::stage::Stage;
use super::talk::Talk;
use crate::http::Http;
use crate::load::How;
use crate::summary::{Summary, Trouble};

/// So many troubles of a run are told: the first explain the rest.
const TOLD: usize = 6;
/// In milliseconds, longer than any stop: what happened to a pod before that explains nothing.
const SHORTLY: u64 = 60_000;

/// What somebody who reads states all the time has seen.
#[derive(Debug, Default)]
pub struct Watched {
    /// Sessions seen with `shutdownInterrupted`.
    pub interrupted: BTreeSet<usize>,
    pub reads: usize,
    pub failures: Vec<String>,
}

/// What a run came to.
pub struct Ran {
    pub summary: Summary,
    pub watched: Watched,
}

impl Ran {
    /// All of it ended pods by SIGTERM: no client may have seen anything, and every process must have ended by itself.
    pub fn unseen(&self, stage: &Stage<'_>) -> Result<()> {
        self.summary.nobody_saw_anything()?;
        ensure!(self.watched.failures.is_empty(), "reading states failed: {:?}", self.watched.failures);
        ensure!(stage.pods.ended_well()? > 0, "no pod was ended");
        Ok(())
    }

    /// Something died: clients may have been cut off, and every one of them came back and got the rest.
    pub fn recovered(&self) -> Result<()> {
        self.summary.nothing_is_lost()?;
        ensure!(self.summary.cut_clients() > 0, "nobody was cut off: the fault reached no client");
        ensure!(self.summary.count(How::Background) > 0, "no client left its call behind");
        Ok(())
    }

    /// What the first few clients met, each with the pods that were being stopped or had just started at that time.
    pub fn troubles(&self, pods: &Pods) -> String {
        let lives = pods.lives();
        let mut text = String::new();
        for Trouble { at, told, what } in self.summary.troubles().into_iter().take(TOLD) {
            let _ = write!(text, "\n  {} ({:?}), at {at}: {what}", told.call, told.how);
            for (name, life) in &lives {
                let happened = [("told to stop", life.deleted), ("ready", life.ready), ("gone", life.gone)];
                let ends = life.ends.iter().map(|end| ("ended", Some(end.at)));
                for (what, then) in happened.into_iter().chain(ends) {
                    if let Some(ago) = then.and_then(|then| at.checked_sub(then)).filter(|ago| *ago < SHORTLY)
                    {
                        let _ = write!(text, "\n    {name} was {what} {:.1} s before", ago as f64 / 1000.0);
                    }
                }
            }
        }
        text
    }
}

/// Reads the states of all sessions, over and over, as a dashboard would.
pub async fn watch(http: Http, door: String, sessions: usize, hurting: Arc<AtomicBool>) -> Watched {
    let seen = Arc::new(Mutex::new(Watched::default()));
    while hurting.load(Relaxed) {
        let reads = (0..sessions).map(|n| {
            let (http, seen) = (&http, &seen);
            let url = format!("{door}{}/state?last=1", Talk::session(n).path());
            async move {
                let answer = http.get(&url).await;
                let mut seen = seen.lock().await;
                seen.reads += 1;
                match answer {
                    Ok(answer) if answer.status == 200 => {
                        if answer.body["shutdownInterrupted"] == true {
                            seen.interrupted.insert(n);
                        }
                    }
                    // Before a session's first call is admitted there is none.
                    Ok(answer) if answer.status == 404 => {}
                    Ok(answer) => seen.failures.push(format!("{} {}", answer.status, answer.body)),
                    Err(error) => seen.failures.push(format!("{error:#}")),
                }
            }
        });
        futures::future::join_all(reads).await;
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    Arc::into_inner(seen).map(Mutex::into_inner).unwrap_or_default()
}
