//! `validate`: every mistake of a manifest at once.

use std::path::Path;

use super::Failure;
use crate::config;

pub fn validate(manifest: &Path) -> Result<(), Failure> {
    config::read_manifest(manifest).map_err(|error| Failure::Wrong(error.to_string()))?;
    println!("{}: no mistakes", manifest.display());
    Ok(())
}
