//! What lists have read of slots, for as long as their files stay as they were: a list reads what has changed since the last.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::folder::refused;
use super::slot_file;
use crate::state::Slot;
use crate::store::contract::{Millis, SessionRow};
use crate::store::error::StoreError;

/// Slots that are remembered; with more, all are read again once.
const REMEMBERED: usize = 50_000;

#[derive(Default)]
pub(super) struct Rows(Mutex<HashMap<PathBuf, (Stamp, Row)>>);

/// A file at one moment: each write makes it longer, or another.
#[derive(Clone, Copy, PartialEq)]
struct Stamp {
    inode: u64,
    len: u64,
    changed: (i64, i64),
}

#[derive(Clone)]
pub(super) struct Row {
    pub(super) slot: Slot,
    /// `None` where there is no session.
    row: Option<SessionRow>,
    expires: Millis,
}

impl Row {
    pub(super) fn at(self, now: Millis) -> Option<SessionRow> {
        self.row.filter(|_| self.expires > now)
    }
}

impl Rows {
    /// `None` where there is no such file.
    pub(super) fn of(&self, path: &Path) -> Result<Option<Row>, StoreError> {
        let about = match fs::metadata(path) {
            Ok(about) => about,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(refused(path, &error)),
        };
        // Taken before it is read: what is written in between is read the next time.
        let stamp =
            Stamp { inode: about.ino(), len: about.len(), changed: (about.mtime(), about.mtime_nsec()) };
        if let Some((known, row)) = self.remembered().get(path)
            && *known == stamp
        {
            return Ok(Some(row.clone()));
        }
        let Some((slot, head)) = slot_file::peek(path)? else { return Ok(None) };
        // Whether its time is up is asked anew each time.
        let row = Row { row: head.row(&slot.session, 0), expires: head.expires, slot };
        let mut remembered = self.remembered();
        if remembered.len() >= REMEMBERED {
            remembered.clear();
        }
        remembered.insert(path.to_owned(), (stamp, row.clone()));
        Ok(Some(row))
    }

    fn remembered(&self) -> std::sync::MutexGuard<'_, HashMap<PathBuf, (Stamp, Row)>> {
        // Every change of the map is a whole one.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
