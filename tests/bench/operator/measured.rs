//! What the kernel says of a process.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

/// On the processor so far, all threads together. To the nanosecond; `/proc/PID/stat` only knows hundredths of a second.
pub fn cpu(process: u32) -> Result<Duration> {
    let mut nanoseconds = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        // A thread that has just ended takes its share along; the operator's live as long as it does.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        nanoseconds += text.split(' ').next().and_then(|first| first.parse::<u64>().ok()).unwrap_or_default();
    }
    Ok(Duration::from_nanos(nanoseconds))
}

/// Resident now, and the most there ever was, in bytes.
pub fn memory(process: u32) -> Result<(u64, u64)> {
    let text = fs::read_to_string(format!("/proc/{process}/status"))?;
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
    };
    let now = field("VmRSS:").context("the kernel does not say how large the process is")?;
    Ok((now, field("VmHWM:").unwrap_or(now)))
}

/// The machine, in a few words.
pub fn machine() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map(|(_, model)| model);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores, {}", model.unwrap_or("unknown processor"))
}
