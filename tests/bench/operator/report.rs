//! A table for people, JSON for programs, and whether the targets are met.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use crate::{measured, run::Measurement};

/// What 10 000 Agents may cost.
const AT: usize = 10_000;
const RESIDENT: u64 = 60_000_000;
const CPU_MS: f64 = 0.6;
const CHANGE_MS: f64 = 1000.0;

const BEGIN: &str = "<!-- make bench-operator: begin -->";
const END: &str = "<!-- make bench-operator: end -->";

pub fn section(measurements: &[Measurement]) -> String {
    let mut text = String::new();
    let head: String = measurements.iter().map(|one| format!(" {} |", thousands(one.agents))).collect();
    let _ = writeln!(text, "| Agents |{head}");
    let _ = writeln!(text, "|---|{}", "---|".repeat(measurements.len()));
    let mut row = |what: &str, value: &dyn Fn(&Measurement) -> String| {
        let cells: String = measurements.iter().map(|one| format!(" {} |", value(one))).collect();
        let _ = writeln!(text, "| {what} |{cells}");
    };
    row("CPU an Agent, from its manifest to Ready", &|one| format!("{:.2} ms", one.cpu_ms_per_agent));
    row("API calls an Agent", &|one| format!("{:.1}", one.calls_per_agent));
    row("all Ready after", &|one| format!("{:.1} s", one.ready_seconds));
    row("resident memory then (and at its peak)", &|one| both(one.resident_bytes, one.peak_bytes));
    row("a change reaches the Deployment: p50, p99, longest", &|one| {
        format!("{:.1}, {:.1}, {:.1} ms", one.change_ms_p50, one.change_ms_p99, one.change_ms_max)
    });
    row("writes in 20 s of rest, but for the Lease", &|one| one.rest_writes.to_string());
    row("CPU at rest", &|one| format!("{:.1} ms a second", one.rest_cpu_ms_per_second));
    row("restart with all of them there: CPU an Agent", &|one| {
        format!("{:.2} ms", one.restart.cpu_ms_per_agent)
    });
    row("… API calls an Agent, of which changed something", &|one| {
        format!("{:.1}, {}", one.restart.calls_per_agent, one.restart.changed)
    });
    row("… every Agent looked at after", &|one| format!("{:.1} s", one.restart.seconds));
    row("… resident memory then (and at its peak)", &|one| {
        both(one.restart.resident_bytes, one.restart.peak_bytes)
    });
    let _ = writeln!(text, "\n`make bench-operator` on {}.", measured::machine());
    text
}

fn both(now: u64, peak: u64) -> String {
    format!("{} ({}) MB", now / 1_000_000, peak / 1_000_000)
}

fn thousands(number: usize) -> String {
    if number >= 1000 { format!("{} {:03}", number / 1000, number % 1000) } else { number.to_string() }
}

pub fn write_json(path: &Path, measurements: &[Measurement]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let document = json!({"machine": measured::machine(), "measurements": measurements});
    Ok(fs::write(path, serde_json::to_string_pretty(&document)? + "\n")?)
}

/// Between the two marks of a document.
pub fn write_section(path: &Path, section: &str) -> Result<()> {
    let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let (before, rest) =
        text.split_once(BEGIN).with_context(|| format!("no {BEGIN} in {}", path.display()))?;
    let (_, after) = rest.split_once(END).with_context(|| format!("no {END} in {}", path.display()))?;
    Ok(fs::write(path, format!("{before}{BEGIN}\n{section}{END}{after}"))?)
}

pub fn judge(measurements: &[Measurement]) -> Result<()> {
    for one in measurements {
        ensure!(one.rest_writes == 0, "{} writes at rest with {} Agents", one.rest_writes, one.agents);
        ensure!(
            one.restart.changed == 0,
            "a restart with {} Agents changed {} objects",
            one.agents,
            one.restart.changed
        );
        ensure!(
            one.change_ms_p99 < CHANGE_MS,
            "a change took {:.0} ms at p99 with {} Agents",
            one.change_ms_p99,
            one.agents
        );
        if one.agents == AT {
            let resident = one.resident_bytes.max(one.restart.resident_bytes);
            ensure!(resident < RESIDENT, "{resident} bytes are resident with {} Agents", one.agents);
            ensure!(
                one.cpu_ms_per_agent < CPU_MS,
                "{:.2} CPU ms an Agent with {} Agents",
                one.cpu_ms_per_agent,
                one.agents
            );
        }
    }
    Ok(())
}
