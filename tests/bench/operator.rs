//! What an Agent costs the operator: against an API server without latency, with 100, 1 000 and 10 000 Agents.
//!
//! ```text
//! this program: fake API server ◀── HTTP ── holdfast-operator (release, measured through /proc)
//!               real redis-server ◀──────────┘  asked how durable it is
//! ```
//! `make bench-operator` builds both and runs it. A target that is missed ends it with an error.

#[path = "operator/measured.rs"]
mod measured;
#[path = "operator/report.rs"]
mod report;
#[path = "operator/run.rs"]
mod run;

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

const SIZES: [usize; 3] = [100, 1_000, 10_000];

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mut sizes, mut json, mut document) = (Vec::new(), None, None);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--agents" => sizes.push(value()?.parse()?),
            "--json" => json = Some(PathBuf::from(value()?)),
            "--document" => document = Some(PathBuf::from(value()?)),
            _ => bail!("usage: bench-operator [--agents N]... [--json FILE] [--document FILE]"),
        }
    }
    if sizes.is_empty() {
        sizes.extend(SIZES);
    }
    // One thread for the API server, so that on two cores the operator has one to itself.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let mut measurements = Vec::new();
    for agents in sizes {
        eprintln!("{agents} Agents…");
        measurements.push(runtime.block_on(run::run(agents))?);
    }
    let section = report::section(&measurements);
    println!("{section}");
    if let Some(path) = json {
        report::write_json(&path, &measurements)?;
    }
    if let Some(path) = document {
        report::write_section(&path, &section)?;
    }
    report::judge(&measurements)
}
