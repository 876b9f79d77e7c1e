//! Instructions of one warm call, counted by callgrind: a figure that does not depend on what else the machine does.
//!
//! A program is run with few calls and with many; the difference is the calls' alone. What a replica does beside them
//! (it looks for work nobody has, once a second) is counted in a run that waits instead of calling, and taken off.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use holdfast_tests::replica;

use crate::load::{Connection, fresh_sessions};
use crate::stand::{Server, Setup, Stand, floor_program};

const FEW: usize = 50;
const MANY: usize = 450;
/// In one session, so that histories stay short.
const TURNS: usize = 10;

pub struct Instructions {
    pub floor: f64,
    pub ours: f64,
}

pub async fn count(stand: &Stand, folder: &Path) -> Result<Instructions> {
    std::fs::create_dir_all(folder)?;
    let floor =
        of_a_call(stand, folder, &floor_program()?, |command| stand.floor_by(command, "plain", false))
            .await?;
    let setup = Setup::default();
    let ours =
        of_a_call(stand, folder, &replica::program()?, |command| stand.sidecar_by(command, &setup)).await?;
    Ok(Instructions { floor, ours })
}

async fn of_a_call(
    stand: &Stand,
    folder: &Path,
    program: &Path,
    start: impl Fn(Command) -> Result<Server>,
) -> Result<f64> {
    let pause = Duration::from_secs(10);
    let mut counts = Vec::new();
    for (calls, pause) in [(FEW, Duration::ZERO), (FEW, pause), (MANY, Duration::ZERO)] {
        let server = start(under_callgrind(folder, program)?)
            .context("valgrind does not start; run `tests/rig/tools valgrind`")?;
        let seconds = work(stand, &server, calls).await?;
        tokio::time::sleep(pause).await;
        server.stop().await?;
        let log = std::fs::read_to_string(folder.join("callgrind.log"))?;
        let collected = log.lines().find_map(|line| line.split("Collected : ").nth(1));
        let instructions: f64 = collected.context("callgrind counted nothing")?.trim().parse()?;
        counts.push((instructions, seconds));
    }
    let [few, waiting, many] = counts[..] else { unreachable!("three runs") };
    let idle = (waiting.0 - few.0) / (pause.as_secs_f64() + waiting.1 - few.1);
    let calls = many.0 - few.0 - idle * (many.1 - few.1);
    Ok(calls / (MANY - FEW) as f64)
}

fn under_callgrind(folder: &Path, program: &Path) -> Result<Command> {
    let valgrind = std::env::var_os("HOLDFAST_VALGRIND").unwrap_or_else(|| "valgrind".into());
    let mut command = Command::new(valgrind);
    command.arg("--tool=callgrind").arg(format!("--log-file={}", folder.join("callgrind.log").display()));
    command.arg(format!("--callgrind-out-file={}", folder.join("callgrind.out").display())).arg(program);
    // One worker: what two of them do to wake each other differs from run to run.
    command.env("TOKIO_WORKER_THREADS", "1").stderr(Stdio::from(File::create(folder.join("stderr.log"))?));
    Ok(command)
}

/// Warm calls one after the other, in sessions that are all made before the first; how long they took.
async fn work(stand: &Stand, server: &Server, calls: usize) -> Result<f64> {
    server.ready().await?;
    let sessions = fresh_sessions(MANY / TURNS);
    stand.seed(server, &sessions, 8).await?;
    let mut connection = Connection::open(&server.url).await?;
    for session in &sessions {
        connection.call(session, "warm", false).await?;
    }
    let started = Instant::now();
    for turn in 0..calls {
        let session = &sessions[turn % sessions.len()];
        let (status, _) = connection.call(session, &format!("c{turn}"), false).await?;
        ensure!(status == 200, "a call failed: {status}");
    }
    Ok(started.elapsed().as_secs_f64())
}
