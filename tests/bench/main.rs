//! `make bench`: what a turn costs, beside the least it can cost.
//!
//! ```text
//! clients (load) ─▶ holdfast-floor   ─┬─▶ Redis      the same Redis and the same model for both,
//!                ─▶ holdfast-sidecar ─┴─▶ model      in turns, medians of several rounds
//! rows ─▶ report ─▶ the table, target/bench/sidecar.{json,svg}, docs/performance.md
//! ```
//!
//! `holdfast-bench [--quick] [--only turns,histories,…] [--publish docs/performance.md]`, or `holdfast-bench leaks SECONDS`.

mod chart;
mod instructions;
mod leaks;
mod load;
mod model;
mod report;
mod rows;
mod stand;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use report::Report;
use rows::Scale;
use stand::Stand;

const PARTS: [&str; 9] =
    ["turns", "histories", "streaming", "tool", "starting", "memory", "drain", "growth", "instructions"];

/// What to type for the same figures.
fn command(quick: bool, only: Option<&str>) -> String {
    let quick = quick.then(|| "--quick".to_owned());
    let said: Vec<String> = quick.into_iter().chain(only.map(|parts| format!("--only {parts}"))).collect();
    if said.is_empty() { "make bench".to_owned() } else { format!("make bench BENCH=\"{}\"", said.join(" ")) }
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mut scale, mut quick, mut only, mut page) = (Scale::FULL, false, None, None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} wants a value"));
        match argument.as_str() {
            "leaks" => {
                let seconds = value()?.parse().context("how many seconds?")?;
                return leaks::watch(&Stand::new()?, Duration::from_secs(seconds)).await;
            }
            "--quick" => (scale, quick) = (Scale::QUICK, true),
            "--only" => only = Some(value()?),
            "--publish" => page = Some(PathBuf::from(value()?)),
            other => bail!("{other} is not an argument; see the first lines of tests/bench/main.rs"),
        }
    }
    let parts: Vec<&str> = match &only {
        Some(names) => names.split(',').collect(),
        None => PARTS.to_vec(),
    };
    let mut report = Report::new(&command(quick, only.as_deref()));
    let target = std::env::current_exe()?
        .ancestors()
        .nth(2)
        .map(|target| target.join("bench"))
        .context("no target folder")?;
    for part in parts {
        eprintln!("{part} …");
        // A Redis of its own each: none inherits another's sessions.
        let stand = Stand::new()?;
        match part {
            "turns" => rows::turns(&stand, &scale, &mut report).await?,
            "histories" => rows::histories(&stand, &scale, &mut report).await?,
            "streaming" => rows::streaming(&stand, &scale, &mut report).await?,
            "tool" => rows::one_tool(&stand, &scale, &mut report).await?,
            "starting" => rows::starting(&stand, &scale, &mut report).await?,
            "memory" => rows::memory(&stand, &scale, &mut report).await?,
            "drain" => rows::drain(&stand, &scale, &mut report).await?,
            "growth" => rows::growth(&stand, &scale, &mut report).await?,
            "instructions" => {
                let counted = instructions::count(&stand, &target).await?;
                let what = "instructions of a warm call (callgrind, one worker)";
                report.row(what, "thousand", counted.floor / 1e3, counted.ours / 1e3);
            }
            other => bail!("{other} is none of {}", PARTS.join(", ")),
        }
    }
    println!("{}", report.table());
    report.write(&target)?;
    if let Some(page) = page {
        report.publish(&page)?;
    }
    let broken: Vec<&str> =
        report.rows.iter().filter(|row| row.holds == Some(false)).map(|row| row.what.as_str()).collect();
    if !broken.is_empty() {
        eprintln!("not within their targets:\n  {}", broken.join("\n  "));
    }
    Ok(())
}
