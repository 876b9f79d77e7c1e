//! Images of the sidecar beside the one under test.

use anyhow::Result;

use super::run;

const RIG: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/rig");
/// What `make images` built.
pub const PRESENT: &str = "holdfast-sidecar:dev";
/// The same of the commit that `tests/rig/versions.env` records.
pub const EARLIER: &str = "holdfast-sidecar:earlier";

/// The same program under another tag, on every node.
pub fn another_tag() -> Result<&'static str> {
    const NEXT: &str = "holdfast-sidecar:next";
    run("docker", &["tag", PRESENT, NEXT], None)?;
    run(&format!("{RIG}/cluster"), &["load", NEXT], None)?;
    Ok(NEXT)
}
