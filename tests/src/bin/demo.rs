//! `make demo`: a Redis, three replicas and a dozen conversations on one machine. Every replica is restarted in turn, one is
//! killed with -9, and the judge says what was lost.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_tests::live::Now;
use holdfast_tests::load::Client;
use holdfast_tests::stage::{Stage, Talk};

const REPLICAS: usize = 3;
/// How long conversations go on before the first replica is hurt, and between one and the next.
const PAUSE: Duration = Duration::from_secs(3);
/// A replica that was told to stop drains for 1 s and relays to its clients until they have their answers.
const STOPPED: Duration = Duration::from_secs(40);
/// How much of an answer is shown.
const SHOWN: usize = 44;

/// What has become of each replica, by name.
#[derive(Clone, Default)]
struct Fates(Arc<Mutex<BTreeMap<String, String>>>);

impl Fates {
    fn set(&self, name: &str, fate: &str) {
        let mut fates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        fates.insert(name.to_owned(), fate.to_owned());
        if !std::io::stdout().is_terminal() {
            println!("{name}: {fate}");
        }
    }

    fn all(&self) -> BTreeMap<String, String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let started = Instant::now();
    println!("starting a Redis and {REPLICAS} replicas…");
    let stage = Stage::set("demo", REPLICAS).await?;
    let fates = Fates::default();
    for replica in stage.replicas.lock().await.iter() {
        fates.set(&replica.name, "serves");
    }
    let talk = Talk { clients: 12, calls: 1, slow: true, ..Talk::default() };
    let picture = tokio::spawn(draw(stage.client.clone(), fates.clone(), started));
    let (hurt, ()) = tokio::join!(hurt(&stage, &fates), stage.talk(&talk));
    picture.abort();
    hurt?;
    let summary = stage.judge().await?;
    println!("\n{summary}");
    println!(
        "  {REPLICAS} replicas restarted, one killed with -9, {} calls, {} s",
        summary.calls(),
        started.elapsed().as_secs()
    );
    summary.nothing_is_lost()?;
    ensure!(summary.resumed > 0, "no call was taken over: nothing was shown");
    Ok(())
}

/// Each replica restarted, a new one before the old one goes; then one is killed. However it ends, clients may stop then.
async fn hurt(stage: &Stage, fates: &Fates) -> Result<()> {
    let hurt = async {
        for _ in 0..REPLICAS {
            tokio::time::sleep(PAUSE).await;
            restart_one(stage, fates).await?;
        }
        tokio::time::sleep(PAUSE).await;
        kill_one(stage, fates).await?;
        tokio::time::sleep(PAUSE).await;
        anyhow::Ok(())
    };
    let hurt = hurt.await;
    stage.hurting.store(false, Ordering::Relaxed);
    hurt
}

async fn restart_one(stage: &Stage, fates: &Fates) -> Result<()> {
    add(stage, fates).await?;
    let mut old = stage.replicas.lock().await.remove(0);
    // What the removal of an endpoint does: no new connections, the open ones stay.
    stage.client.doors.close(&old.url);
    tokio::time::sleep(Duration::from_millis(100)).await;
    fates.set(&old.name, "SIGTERM: drains, then relays to whoever still listens");
    old.signal("TERM")?;
    let status = old.ended(STOPPED).await?;
    fates.set(&old.name, &format!("stopped ({status})"));
    Ok(())
}

async fn kill_one(stage: &Stage, fates: &Fates) -> Result<()> {
    let mut victim = stage.replicas.lock().await.remove(0);
    victim.signal("KILL")?;
    victim.ended(STOPPED).await?;
    stage.client.doors.close(&victim.url);
    fates.set(&victim.name, "killed with -9");
    add(stage, fates).await
}

async fn add(stage: &Stage, fates: &Fates) -> Result<()> {
    stage.add_replica(&[]).await?;
    let replicas = stage.replicas.lock().await;
    fates.set(&replicas.last().context("a replica was added")?.name, "serves");
    Ok(())
}

async fn draw(client: Client, fates: Fates, started: Instant) {
    while std::io::stdout().is_terminal() {
        let frame = frame(&fates.all(), &client.live.now(), started.elapsed());
        let mut out = std::io::stdout();
        // From the top left corner, over what was there.
        let _ = write!(out, "\x1b[H\x1b[J{frame}").and_then(|()| out.flush());
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

fn frame(fates: &BTreeMap<String, String>, sessions: &BTreeMap<String, Now>, elapsed: Duration) -> String {
    let mut frame = format!(
        "\x1b[1mHoldfast\x1b[0m: live conversations while replicas come and go   {:>3} s\n\n",
        elapsed.as_secs()
    );
    for (name, fate) in fates {
        let colour = match fate.as_str() {
            "serves" => 32,
            fate if fate.starts_with("SIGTERM") => 33,
            fate if fate.starts_with("killed") => 31,
            _ => 90,
        };
        let _ = writeln!(frame, "  \x1b[{colour}m●\x1b[0m {name:<11} {fate}");
    }
    frame.push('\n');
    for (session, now) in sessions {
        let from = now.text.char_indices().rev().nth(SHOWN - 1).map_or(0, |(at, _)| at);
        let said = &now.text[from..];
        let colour = if now.note.starts_with("cut") { 31 } else { 36 };
        let _ = writeln!(
            frame,
            "  {session:<11} {:>3} answered  {said:<SHOWN$}  \x1b[{colour}m{}\x1b[0m",
            now.ended, now.note
        );
    }
    frame
}
