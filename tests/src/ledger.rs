//! What a fake server saw, written down by itself: the witness that a checker believes before any other.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::{Value, json};

/// Records in the order they were made, each with its number (`seq`) and its time (`at`, milliseconds since 1970).
#[derive(Clone, Default)]
pub struct Ledger(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    next: u64,
    file: Option<File>,
    records: Option<Vec<Value>>,
}

impl Ledger {
    /// Kept in memory: for tests that look at it themselves.
    pub fn in_memory() -> Self {
        Self(Arc::new(Mutex::new(Inner { records: Some(Vec::new()), ..Inner::default() })))
    }

    /// Appended to `path`, one JSON object a line, each on disk before what it tells of goes on.
    pub fn on_disk(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.with_context(|| format!("cannot open the ledger {}", path.display()))?;
        Ok(Self(Arc::new(Mutex::new(Inner { file: Some(file), ..Inner::default() }))))
    }

    /// Writes `record` down; its number.
    ///
    /// # Panics
    /// Where the disk does not take it: a witness that forgets is worse than none.
    #[allow(clippy::expect_used, clippy::missing_panics_doc)]
    pub fn write(&self, record: Value) -> u64 {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seq = inner.next;
        inner.next += 1;
        let mut whole = json!({"seq": seq, "at": now_millis()});
        if let (Some(whole), Value::Object(fields)) = (whole.as_object_mut(), record) {
            whole.extend(fields);
        }
        if let Some(file) = &mut inner.file {
            writeln!(file, "{whole}").expect("the ledger takes a line");
            file.sync_data().expect("the ledger's line reaches the disk");
        }
        if let Some(records) = &mut inner.records {
            records.push(whole);
        }
        seq
    }

    /// The records so far; empty unless kept in memory.
    pub fn records(&self) -> Vec<Value> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.records.clone().unwrap_or_default()
    }

    /// Reads a ledger from disk. A last line that was cut by a crash is left out: what it tells of did not happen.
    pub fn read(path: &Path) -> anyhow::Result<Vec<Value>> {
        let text = std::fs::read_to_string(path)?;
        let mut records = Vec::new();
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            records.push(serde_json::from_str(line).with_context(|| format!("not a record: {line}"))?);
        }
        Ok(records)
    }
}

/// Milliseconds since 1970.
pub fn now_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
