//! What a tree remembers beside its files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use rand::Rng;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::state::CallId;

/// A session that has written here.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Writer {
    /// The highest seen.
    pub(super) fence: u64,
    /// Calls of a session come one after the other: only the last one's tool calls can come again.
    pub(super) call: Option<CallId>,
    /// What each of its tool calls answered, by its key.
    pub(super) answers: BTreeMap<String, String>,
}

/// How much is in a tree.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    pub(super) files: u64,
    /// Somebody began to change it and has not said what came of it.
    pub(super) open: bool,
}

/// `None` where there is no such record. One that cannot be read is an error: it may be the one that counts.
pub(super) fn load<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whole and synced, or as it was.
pub(super) fn save(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let temporary = path.with_extension(format!("{:016x}.tmp", rand::rng().random::<u64>()));
    let written = (|| {
        let mut file = File::create_new(&temporary)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        file.sync_data()?;
        fs::rename(&temporary, path)
    })();
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written?;
    File::open(folder)?.sync_all()
}

/// Not synced: what it says is checked before it is believed.
pub(super) fn jot(path: &Path, record: &impl Serialize) -> io::Result<()> {
    fs::write(path, serde_json::to_vec(record)?)
}
