//! Programs that are not ours, found or made by the rig: a suite that is started alone finds the same ones as all of them together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Result, bail};

/// Asked of the rig once a process: a suite starts a hundred servers.
static FOUND: LazyLock<Mutex<BTreeMap<String, PathBuf>>> = LazyLock::new(Mutex::default);

/// The program that `HOLDFAST_<TOOL>` names, or the rig's.
pub fn program(tool: &str) -> Result<PathBuf> {
    let variable = format!("HOLDFAST_{}", tool.to_uppercase().replace('-', "_"));
    if let Some(path) = std::env::var_os(variable) {
        return Ok(path.into());
    }
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(path) = found.get(tool) {
        return Ok(path.clone());
    }
    let rig = concat!(env!("CARGO_MANIFEST_DIR"), "/rig/tools");
    let output = Command::new(rig).arg(tool).stderr(Stdio::inherit()).output()?;
    let path = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    if !output.status.success() || path.as_os_str().is_empty() {
        bail!("{rig} {tool} failed");
    }
    found.insert(tool.to_owned(), path.clone());
    Ok(path)
}
