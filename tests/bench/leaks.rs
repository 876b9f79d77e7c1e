//! What must not grow: threads, tasks, descriptors and memory of a sidecar that works for a long time.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::load::{Shape, round};
use crate::stand::{Server, Setup, Stand};

#[derive(Debug, Clone, Copy)]
struct Look {
    seconds: f64,
    memory: f64,
    threads: u64,
    tasks: f64,
    descriptors: u64,
    open: f64,
    active: f64,
    turns: usize,
}

/// Works for so long in waves (plain, streamed, many at once), rests, and looks at what is left after each. The first
/// third is for caches to fill; from then on nothing may grow.
pub async fn watch(stand: &Stand, length: Duration) -> Result<()> {
    let ours = stand.sidecar(&Setup { cache: "8Mi", ..Setup::model("stream/20/0") })?;
    ours.ready().await?;
    println!("running for {} s", length.as_secs());
    let (started, mut looks, mut turns) = (Instant::now(), Vec::new(), 0);
    while started.elapsed() < length {
        for (clients, stream) in [(16, false), (64, true), (200, false)] {
            let shape = Shape { clients, history: 10, sessions_each: 4, turns_each: 3, stream, warm: false };
            round(stand, &ours, shape).await?;
            turns += shape.turns();
        }
        // Clients are gone; what they had must go too.
        tokio::time::sleep(Duration::from_millis(500)).await;
        looks.push(look(&ours, started, turns).await?);
        let look = looks[looks.len() - 1];
        println!(
            "{:7.1} s  {:8} turns  {:6.1} MB  {} threads  {} tasks  {} descriptors  {} calls  {} requests",
            look.seconds,
            look.turns,
            look.memory,
            look.threads,
            look.tasks,
            look.descriptors,
            look.active,
            look.open
        );
    }
    judge(&looks[looks.len() / 3..])
}

async fn look(server: &Server, started: Instant, turns: usize) -> Result<Look> {
    let mut admin = crate::load::Connection::open(server.admin.as_deref().unwrap_or_default()).await?;
    let (_, metrics) = admin.send("GET", "/metrics", &[], bytes::Bytes::new()).await?;
    drop(admin);
    let metrics = String::from_utf8_lossy(&metrics).into_owned();
    let gauge = |name: &str| {
        metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(f64::NAN)
    };
    Ok(Look {
        seconds: started.elapsed().as_secs_f64(),
        memory: server.memory()? as f64 / 1e6,
        threads: server.threads()?,
        tasks: gauge("holdfast_tasks "),
        descriptors: server.descriptors()?,
        open: gauge("holdfast_requests_open "),
        active: gauge("holdfast_calls_active "),
        turns,
    })
}

fn judge(looks: &[Look]) -> Result<()> {
    ensure!(looks.len() >= 3, "too short to tell: three waves after the first third are needed");
    let (first, last) = (looks[0], looks[looks.len() - 1]);
    let slope = slope(looks);
    let hour = slope * 3600.0;
    println!(
        "0 of {} looks with anything left running; {slope:+.5} MB/s ({hour:+.1} MB an hour); threads {} → {}, tasks {} → {}, descriptors {} → {}, {} turns",
        looks.len(),
        first.threads,
        last.threads,
        first.tasks,
        last.tasks,
        first.descriptors,
        last.descriptors,
        last.turns
    );
    ensure!(
        looks.iter().all(|look| look.active == 0.0 && look.open == 0.0),
        "calls or requests were left over"
    );
    // The threads of name lookups and files come and go; they do not add up.
    ensure!(last.threads <= first.threads + 4, "threads grow");
    // A connection that has just closed may still have its task.
    ensure!(last.tasks <= first.tasks + 4.0, "tasks grow");
    ensure!(last.descriptors <= first.descriptors + 16, "descriptors grow");
    let grown = slope * (last.seconds - first.seconds);
    ensure!(grown < 4.0, "memory grows: {grown:.1} MB in {:.0} s", last.seconds - first.seconds);
    Ok(())
}

/// Megabytes a second, by least squares.
fn slope(looks: &[Look]) -> f64 {
    let n = looks.len() as f64;
    let mean = |figure: fn(&Look) -> f64| looks.iter().map(figure).sum::<f64>() / n;
    let (x, y) = (mean(|look| look.seconds), mean(|look| look.memory));
    let covariance: f64 = looks.iter().map(|look| (look.seconds - x) * (look.memory - y)).sum();
    let variance: f64 = looks.iter().map(|look| (look.seconds - x).powi(2)).sum();
    covariance / variance
}
