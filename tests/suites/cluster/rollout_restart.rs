//! The sentence on the box: `kubectl rollout restart`, three times in a row, under load. Nobody sees anything: answers that take
//! longer than a drain are given back, finished by another replica, and relayed to the client that never hung up.

use anyhow::{Result, ensure};
use holdfast_tests::cluster::Namespace;
use holdfast_tests::cluster::ran::Ran;
use holdfast_tests::cluster::stage::Stage;
use holdfast_tests::cluster::talk::Talk;
use holdfast_tests::load::{Happened, How};
use serde_json::json;

const RESTARTS: usize = 3;
const REPLICAS: usize = 3;

pub fn run(namespace: &Namespace) -> Result<String> {
    let stage = Stage::set(namespace, &json!({}))?;
    let talk = Talk { sessions: 44, long: true, leave: false, files: false };
    let ran = stage.under_load(talk, || {
        for _ in 0..RESTARTS {
            stage.restart()?;
        }
        stage.settled(REPLICAS)
    })?;
    stage.report("rollout_restart", &ran, |ran| {
        ran.unseen(&stage)?;
        ensure!(
            stage.pods.ended_well()? >= RESTARTS * REPLICAS,
            "not every replica was replaced {RESTARTS} times"
        );
        long_calls_were_handed_over(ran)
    })
}

fn long_calls_were_handed_over(ran: &Ran) -> Result<()> {
    let (summary, watched) = (&ran.summary, &ran.watched);
    ensure!(!watched.interrupted.is_empty(), "no call was seen in the store with shutdownInterrupted");
    // Given back and taken over while its client listened, on one connection.
    let relayed = summary.told.iter().filter(|told| {
        told.how == How::Stream
            && !told.was_cut()
            && told.marks.iter().any(|mark| mark.what == Happened::Suspended)
            && told.marks.iter().any(|mark| matches!(mark.what, Happened::Resumed(_)))
    });
    ensure!(relayed.count() > 0, "no stream was relayed across a takeover");
    ensure!(summary.sessions >= 40 && summary.count(How::Plain) > 40, "too little happened");
    Ok(())
}
