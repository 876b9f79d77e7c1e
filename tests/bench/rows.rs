//! The figures, row by row: each measured on the floor and on the sidecar in turns, in one run.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use holdfast_tests::fake_tools::{FakeTools, tool};
use serde_json::json;

use crate::load::{Connection, Sample, Shape, fresh_sessions, round};
use crate::report::{Bound, Report};
use crate::stand::{Server, Setup, Stand};

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Scale {
    pub rounds: usize,
    /// Turns of a round, about.
    pub turns: usize,
    pub starts: usize,
    pub cached: [usize; 2],
    pub stored: usize,
    pub concurrent: usize,
    pub drained: usize,
}

impl Scale {
    pub const FULL: Self = Self {
        rounds: 7,
        turns: 3200,
        starts: 9,
        cached: [1_000, 10_000],
        stored: 100_000,
        concurrent: 2_000,
        drained: 200,
    };
    pub const QUICK: Self = Self {
        rounds: 3,
        turns: 640,
        starts: 3,
        cached: [100, 1_000],
        stored: 2_000,
        concurrent: 500,
        drained: 50,
    };
}

const STREAMED_TOKENS: usize = 200;

fn shape(scale: &Scale, clients: usize, history: usize) -> Shape {
    // Longer histories cost more and grow less by a turn, so fewer turns and more of them in one session.
    let (turns, turns_each) = match history {
        0..=99 => (scale.turns, 5),
        100..=999 => (scale.turns / 2, 10),
        _ => (scale.turns / 10, 10),
    };
    let sessions_each = (turns / clients / turns_each).max(1);
    Shape { clients, history, sessions_each, turns_each, stream: false, warm: true }
}

/// Rounds in turns, so that what the machine does meanwhile happens to both; of each figure the median.
async fn compare<const N: usize>(
    stand: &Stand,
    scale: &Scale,
    servers: [&Server; N],
    shape: Shape,
) -> Result<[Sample; N]> {
    let mut samples: [Vec<Sample>; N] = std::array::from_fn(|_| Vec::new());
    for n in 0..scale.rounds {
        for place in 0..N {
            let place = (place + n) % N;
            samples[place].push(round(stand, servers[place], shape).await?);
        }
    }
    Ok(samples.map(|samples| median(&samples)))
}

fn median(samples: &[Sample]) -> Sample {
    let of = |figure: fn(&Sample) -> f64| median_of(samples.iter().map(figure).collect());
    Sample {
        cpu_us: of(|sample| sample.cpu_us),
        per_second: of(|sample| sample.per_second),
        latency_us: of(|sample| sample.latency_us),
        first_us: of(|sample| sample.first_us),
        bytes: of(|sample| sample.bytes),
        scripts: of(|sample| sample.scripts),
        commands: of(|sample| sample.commands),
    }
}

fn median_of(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

async fn both(stand: &Stand, model: &str, cache: bool, setup: &Setup) -> Result<(Server, Server)> {
    let (floor, ours) = (stand.floor(model, cache)?, stand.sidecar(setup)?);
    floor.ready().await?;
    ours.ready().await?;
    Ok((floor, ours))
}

/// CPU, throughput and latency of a short conversation.
pub async fn turns(stand: &Stand, scale: &Scale, report: &mut Report) -> Result<()> {
    let (floor, ours) = both(stand, "plain", false, &Setup::default()).await?;
    for clients in [1, 16, 64] {
        let [base, own] = compare(stand, scale, [&floor, &ours], shape(scale, clients, 10)).await?;
        let sessions = format!("{clients} session{}, 10 messages", if clients == 1 { "" } else { "s" });
        let row = report.row(&format!("CPU a turn, {sessions}"), "µs", base.cpu_us, own.cpu_us);
        row.must_hold_if(clients == 16, Bound::RatioAtMost(1.5));
        let row = report.row(&format!("turns a second, {sessions}"), "/s", base.per_second, own.per_second);
        row.must_hold_if(clients == 16, Bound::RatioAtLeast(0.7));
        if clients == 1 {
            let row =
                report.row("latency of a turn, 1 session (median)", "µs", base.latency_us, own.latency_us);
            row.must_hold(Bound::RatioAtMost(1.5));
        }
        if clients == 16 {
            report.row("scripts sent to Redis a turn", "", base.scripts, own.scripts);
            report.row("Redis commands a turn, those in scripts too", "", base.commands, own.commands);
        }
    }
    Ok(())
}

/// What a long history costs, with and without it in memory.
pub async fn histories(stand: &Stand, scale: &Scale, report: &mut Report) -> Result<()> {
    let warm = both(stand, "plain", true, &Setup::default()).await?;
    let cold = both(stand, "plain", false, &Setup { cache: "0", ..Setup::default() }).await?;
    let mut sent = Vec::new();
    for history in [10, 100, 1000] {
        let shape = shape(scale, 16, history);
        let [base, own, plain, uncached] =
            compare(stand, scale, [&warm.0, &warm.1, &cold.0, &cold.1], shape).await?;
        let what = format!("CPU a turn, {history} messages, 16 sessions");
        let row = report.row(&format!("{what}, warm, to a floor that caches"), "µs", base.cpu_us, own.cpu_us);
        row.must_hold_if(history == 1000, Bound::RatioAtMost(1.2));
        report.row(&format!("{what}, warm, to the floor"), "µs", plain.cpu_us, own.cpu_us);
        report.row(&format!("{what}, cold"), "µs", plain.cpu_us, uncached.cpu_us);
        let row = report.row(
            &format!("bytes sent to Redis a turn, {history} messages"),
            "B",
            plain.bytes,
            own.bytes,
        );
        row.must_hold(Bound::RatioAtMost(1.5));
        sent.push(own.bytes);
    }
    let row = report.figure("bytes sent a turn: 1 000 messages over 10", "×", sent[2] / sent[0]);
    row.must_hold(Bound::AtMost(1.05));
    Ok(())
}

/// What a token costs on its way, and when the first one comes.
pub async fn streaming(stand: &Stand, scale: &Scale, report: &mut Report) -> Result<()> {
    let model = format!("stream/{STREAMED_TOKENS}/2000");
    let (floor, ours) = both(stand, &model, false, &Setup::model(&model)).await?;
    let streamed = Shape { turns_each: 2, sessions_each: 1, stream: true, ..shape(scale, 32, 10) };
    let [base, own] = compare(stand, scale, [&floor, &ours], streamed).await?;
    drop((floor, ours));
    let (floor, ours) = both(stand, "plain", false, &Setup::default()).await?;
    let whole = Shape { stream: false, sessions_each: 10, ..streamed };
    let [base_whole, own_whole] = compare(stand, scale, [&floor, &ours], whole).await?;
    let tokens = STREAMED_TOKENS as f64;
    let (base_token, own_token) =
        ((base.cpu_us - base_whole.cpu_us) / tokens, (own.cpu_us - own_whole.cpu_us) / tokens);
    let row = report.row(
        "CPU a streamed token (200 tokens, one each 2 ms, 32 streams)",
        "µs",
        base_token,
        own_token,
    );
    row.must_hold(Bound::AtMost(15.0));
    report.row("time to the first token, 32 streams (median)", "µs", base.first_us, own.first_us);
    Ok(())
}

pub async fn one_tool(stand: &Stand, scale: &Scale, report: &mut Report) -> Result<()> {
    let tools = FakeTools::start([tool("lookup", &[], &json!({"readOnlyHint": true}))]).await?;
    let setup = Setup { model: "tool".into(), tools: Some(tools.url()), ..Setup::default() };
    let (floor, ours) = both(stand, "tool", false, &setup).await?;
    let shape = Shape { turns_each: 3, ..shape(scale, 16, 10) };
    let shape = Shape { sessions_each: shape.sessions_each.div_ceil(2), ..shape };
    let [base, own] = compare(stand, scale, [&floor, &ours], shape).await?;
    report.row("CPU a turn with one tool call, 16 sessions", "µs", base.cpu_us, own.cpu_us);
    report.row("scripts sent to Redis a turn with one tool call", "", base.scripts, own.scripts);
    Ok(())
}

/// From nothing to the first answer, and what lies in memory then.
pub async fn starting(stand: &Stand, scale: &Scale, report: &mut Report) -> Result<()> {
    let (mut times, mut memory) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..scale.starts {
        for place in 0..2 {
            let started = Instant::now();
            let server =
                if place == 0 { stand.floor("plain", false)? } else { stand.sidecar(&Setup::default())? };
            server.ready().await?;
            times[place].push(started.elapsed().as_secs_f64() * 1e3);
            tokio::time::sleep(Duration::from_millis(100)).await;
            memory[place].push(server.memory()? as f64 / 1e6);
        }
    }
    let [base, own] = times.map(median_of);
    report.row("start to first answer", "ms", base, own).must_hold(Bound::AtMost(60.0));
    let [base, own] = memory.map(median_of);
    report.row("resident memory, idle", "MB", base, own).must_hold(Bound::AtMost(12.0));
    Ok(())
}

pub async fn memory(stand: &Stand, scale: &Scale, report: &mut Report) -> Result<()> {
    for cached in scale.cached {
        let ours = stand.sidecar(&Setup::default())?;
        ours.ready().await?;
        let shape = Shape {
            clients: 50,
            history: 10,
            sessions_each: cached / 50,
            turns_each: 1,
            stream: false,
            warm: false,
        };
        round(stand, &ours, shape).await?;
        let what = format!("resident memory, {cached} sessions of 12 messages used (cacheSize 64Mi)");
        let row = report.figure(&what, "MB", ours.memory()? as f64 / 1e6);
        row.must_hold(Bound::AtMost(67.1 + 24.0));
    }
    Ok(())
}

/// Many sessions in the store, many calls at once.
pub async fn growth(stand: &Stand, scale: &Scale, report: &mut Report) -> Result<()> {
    let ours = stand.sidecar(&Setup::default())?;
    ours.ready().await?;
    let usual = shape(scale, 16, 10);
    let [before] = compare(stand, scale, [&ours], usual).await?;
    fill(stand, &ours, scale.stored).await?;
    let [after] = compare(stand, scale, [&ours], usual).await?;
    let what = format!("CPU a turn with {} sessions in Redis, to that with few", scale.stored);
    report.row(&what, "µs", before.cpu_us, after.cpu_us).must_hold(Bound::RatioAtMost(1.3));

    // Each call takes half a second, so that all of them run at once.
    let many = stand.sidecar(&Setup::model("slow/500"))?;
    many.ready().await?;
    let crowd = Shape {
        clients: scale.concurrent,
        history: 10,
        sessions_each: 1,
        turns_each: 4,
        stream: false,
        warm: true,
    };
    let idle = many.memory()?;
    let mut samples = Vec::new();
    let mut most = 0;
    for _ in 0..scale.rounds.div_ceil(2) {
        let round = round(stand, &many, crowd);
        tokio::pin!(round);
        let sample = loop {
            tokio::select! {
                sample = &mut round => break sample?,
                () = tokio::time::sleep(Duration::from_millis(50)) => most = most.max(many.memory()?),
            }
        };
        samples.push(sample);
    }
    let crowded = median(&samples);
    let what = format!("CPU a turn with {} concurrent calls, to that with 16", scale.concurrent);
    report.row(&what, "µs", before.cpu_us, crowded.cpu_us).must_hold(Bound::RatioAtMost(1.3));
    let kilobytes = most.saturating_sub(idle) as f64 / 1e3 / scale.concurrent as f64;
    report.figure(
        &format!("memory a running call, at most ({} of them, 10 messages each)", scale.concurrent),
        "kB",
        kilobytes,
    );
    Ok(())
}

async fn fill(stand: &Stand, server: &Server, sessions: usize) -> Result<()> {
    let sessions = fresh_sessions(sessions);
    let writers = sessions.chunks(sessions.len().div_ceil(16)).map(|some| stand.seed(server, some, 2));
    futures::future::try_join_all(writers).await?;
    Ok(())
}

/// A replica that is told to stop while its calls run: how soon another has all of them, and how soon it has one.
pub async fn drain(stand: &Stand, scale: &Scale, report: &mut Report) -> Result<()> {
    for calls in [1, scale.drained] {
        let mut times = Vec::new();
        let mut spent = Vec::new();
        for _ in 0..scale.starts.div_ceil(2) {
            let setup = Setup { drain: "0s", ..Setup::model("slow/3000") };
            let (old, new) = (stand.sidecar(&setup)?, stand.sidecar(&setup)?);
            old.ready_without_a_call().await?;
            new.ready_without_a_call().await?;
            let asked = stand.model.asked();
            let mut clients = tokio::task::JoinSet::new();
            for session in fresh_sessions(calls) {
                let url = old.url.clone();
                clients.spawn(async move { Connection::open(&url).await?.call(&session, "c", false).await });
            }
            until(|| stand.model.asked() >= asked + calls).await?;
            let (told, cpu) = (Instant::now(), old.cpu()?);
            old.terminate()?;
            until(|| stand.model.asked() >= asked + 2 * calls).await?;
            times.push(told.elapsed().as_secs_f64() * 1e3);
            spent.push((old.cpu().unwrap_or(cpu) - cpu).as_secs_f64() * 1e6 / calls as f64);
            while let Some(answered) = clients.join_next().await {
                let (status, answer) = answered??;
                ensure!(
                    status == 200,
                    "a client saw the rollout: {status} {}",
                    String::from_utf8_lossy(&answer)
                );
            }
        }
        let what = match calls {
            1 => "resume of one call: from SIGTERM to the model asked by another replica".to_owned(),
            _ => format!("drain of {calls} running calls: from SIGTERM to all of them asked elsewhere"),
        };
        report.figure(&what, "ms", median_of(times));
        if calls > 1 {
            report.figure(&format!("CPU of a drain, a call ({calls} calls)"), "µs", median_of(spent));
        }
    }
    Ok(())
}

async fn until(mut holds: impl FnMut() -> bool) -> Result<()> {
    let started = Instant::now();
    while !holds() {
        ensure!(started.elapsed() < Duration::from_secs(60), "it did not come to that");
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    Ok(())
}
