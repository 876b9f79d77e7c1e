//! How long a call stands still when the replica that runs it goes.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures::future::try_join_all;
use holdfast_tests::http::{Events, Http};
use holdfast_tests::stage::{LEASE, Stage};
use hyper::Method;
use serde_json::json;
use tokio::sync::watch;

/// Longer than a lease, a drain and a look for work together; a call that has not been taken up then is lost.
const TAKEN: Duration = Duration::from_secs(30);

/// Waits, sorted.
pub struct Waits {
    after: &'static str,
    each: Vec<Duration>,
}

impl Waits {
    pub fn percentile(&self, percent: usize) -> Duration {
        let last = self.each.len().saturating_sub(1);
        self.each.get((self.each.len() * percent / 100).min(last)).copied().unwrap_or_default()
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |wait: Duration| format!("{} ms", wait.as_millis());
        let [half, most, all] = [50, 99, 100].map(|percent| ms(self.percentile(percent)));
        write!(f, "| {} | {} | {half} | {most} | {all} |", self.after, self.each.len())
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Leaving {
    /// From the moment the call is given back, as its client sees it, on the connection it has.
    Term,
    /// From the moment of the kill, as a client sees it that asks the survivors again.
    Kill,
}

/// `rounds` times: `calls` streams on one replica, which then goes; the others take them up.
pub async fn measure(leaving: Leaving, rounds: usize, calls: usize) -> Result<Waits> {
    let stage = Stage::set("resume", 1).await?;
    let http = Http::default();
    let mut each = Vec::new();
    for round in 0..rounds {
        let survivor = stage.replicas.lock().await.last().context("a replica")?.url.clone();
        let mut doomed = stage.start_replica(&[]).await?;
        let (gone, when) = watch::channel(None);
        let watching: Vec<_> = (0..calls)
            .map(|n| {
                let path = format!("/v1/users/u{round}/sessions/s{n}");
                watch_one(&http, format!("{}{path}", doomed.url), format!("{survivor}{path}"), when.clone())
            })
            .collect();
        let leave = async {
            started(&http, &doomed.url, round, calls).await?;
            gone.send_replace(Some(Instant::now()));
            doomed.signal(if leaving == Leaving::Term { "TERM" } else { "KILL" })
        };
        let (waits, left) = tokio::join!(try_join_all(watching), leave);
        left?;
        each.extend(waits?);
        let status = doomed.ended(TAKEN).await?;
        ensure!(status.success() == (leaving == Leaving::Term), "{} ended with {status}", doomed.name);
    }
    each.sort_unstable();
    let after = match leaving {
        Leaving::Term => "SIGTERM, from the moment the call is given back",
        Leaving::Kill => "SIGKILL, from the kill",
    };
    Ok(Waits { after, each })
}

/// Waits until each call of this round has said something.
async fn started(http: &Http, url: &str, round: usize, calls: usize) -> Result<()> {
    let deadline = Instant::now() + TAKEN;
    for n in 0..calls {
        let call = format!("{url}/v1/users/u{round}/sessions/s{n}/calls");
        while http.get(&call).await?.body[0]["status"] != "running" {
            ensure!(Instant::now() < deadline, "call {n} does not start");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    Ok(())
}

async fn watch_one(
    http: &Http,
    here: String,
    there: String,
    gone: watch::Receiver<Option<Instant>>,
) -> Result<Duration> {
    let said = json!({"input": "go on #{\"words\":400,\"tokenDelayMs\":100}", "callId": "c", "stream": true});
    let first = http.events(Method::POST, &format!("{here}/calls"), Some(&said), None).await?;
    let Ok(mut events) = first else { bail!("the call was refused") };
    let (mut last, mut given_back) = (String::new(), None);
    let deadline = Instant::now() + 2 * TAKEN;
    loop {
        if let Some(resumed) = read(&mut events, &mut last, &mut given_back).await {
            let from = given_back.or(*gone.borrow()).context("it was taken up before anybody had left")?;
            // Enough was seen: the next round needs no audience for this one.
            let _ = http.post(&format!("{there}/interrupt"), &json!({})).await;
            return Ok(resumed.saturating_duration_since(from));
        }
        loop {
            ensure!(Instant::now() < deadline, "nobody took {there} up");
            let again = http.events(Method::GET, &format!("{there}/calls/c/events"), None, Some(&last)).await;
            if let Ok(Ok(again)) = again {
                events = again;
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Reads on to `call.resumed`; `None` where the connection breaks or ends first.
async fn read(events: &mut Events, last: &mut String, given_back: &mut Option<Instant>) -> Option<Instant> {
    while let Ok(Some(event)) = events.next().await {
        event.id.clone_into(last);
        match event.name.as_str() {
            "call.suspended" => *given_back = Some(Instant::now()),
            "call.resumed" => return Some(Instant::now()),
            _ => {}
        }
    }
    None
}

/// A call is taken up when its lease has run out and somebody has looked, which each replica does once a second.
pub const AFTER_A_KILL: Duration = LEASE.saturating_add(Duration::from_secs(4));
/// A call that was given back is announced; nobody waits for a lease.
pub const AFTER_A_STOP: Duration = Duration::from_secs(2);
