//! Rounds through the folder: sessions and tombstones whose time is up go, markers of idle slots, and what a process
//! that was killed left unfinished.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use tracing::{debug, warn};

use super::Inner;
use super::folder::{TEMPORARY, is_slot_file};
use super::slot_file;
use crate::state::Slot;
use crate::store::contract::Millis;
use crate::store::error::StoreError;

/// Between two looks at the markers.
const ROUND: Millis = 60_000;
/// Between two sweeps through all files, in rounds.
const ROUNDS_A_SWEEP: u64 = 60;
/// No write takes this long.
const ABANDONED: Millis = 3_600_000;
/// What is left of a deleted session is short.
const SHORT: u64 = 64 << 10;

pub(super) struct Rounds {
    next: AtomicU64,
    made: AtomicU64,
}

impl Rounds {
    pub(super) fn new(now: Millis) -> Self {
        Self { next: AtomicU64::new(now + ROUND), made: AtomicU64::new(0) }
    }

    /// Yes, to one who asks, once a round.
    pub(super) fn is_time(&self, now: Millis) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        now >= next
            && self.next.compare_exchange(next, now + ROUND, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

impl Inner {
    pub(super) fn make_a_round(&self, now: Millis) {
        for slot in self.due.idle(now) {
            // Whoever is at it will leave it idle again.
            let Some(turn) = self.cache.try_turn(&slot) else { continue };
            if let Err(error) = self.due.unmark(&self.folder, &slot) {
                warn!(%error, "a marker in the state folder could not be removed");
            }
            self.cache.weigh(&slot, &turn);
        }
        if self.rounds.made.fetch_add(1, Ordering::Relaxed).is_multiple_of(ROUNDS_A_SWEEP)
            && let Err(error) = self.sweep(now)
        {
            warn!(%error, "the sweep through the state folder was cut short");
        }
    }

    fn sweep(&self, now: Millis) -> io::Result<()> {
        for folder in self.folder.slot_folders()? {
            let mut left = folder == self.folder.slots_of(None);
            for entry in fs::read_dir(&folder)? {
                let path = entry?.path();
                match self.sweep_file(&path, now) {
                    Ok(Swept::Gone) => {}
                    Ok(Swept::Kept) => left = true,
                    Err(error) => {
                        left = true;
                        warn!(%error, "a file in the state folder was left alone");
                    }
                }
            }
            if !left {
                // Refused while there is anything in it.
                let _ = fs::remove_dir(&folder);
            }
        }
        Ok(())
    }

    fn sweep_file(&self, path: &Path, now: Millis) -> Result<Swept, StoreError> {
        let Ok(about) = fs::metadata(path) else { return Ok(Swept::Gone) };
        let changed =
            about.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let age = Duration::from_millis(now).saturating_sub(changed);
        if path.extension().is_some_and(|extension| extension == TEMPORARY) {
            let abandoned = age >= Duration::from_millis(ABANDONED) && fs::remove_file(path).is_ok();
            return Ok(if abandoned { Swept::Gone } else { Swept::Kept });
        }
        // The file's own time only says which files are worth reading.
        let may_have_run_out =
            age >= self.limits.session_ttl || (age >= self.limits.reply_ttl && about.len() <= SHORT);
        if !is_slot_file(path) || !may_have_run_out {
            return Ok(Swept::Kept);
        }
        match slot_file::peek(path)? {
            Some((slot, head)) if head.row(&slot.session, now).is_none() => {
                self.remove_if_forgotten(&slot, now)
            }
            Some(_) => Ok(Swept::Kept),
            None => Ok(Swept::Gone),
        }
    }

    fn remove_if_forgotten(&self, slot: &Slot, now: Millis) -> Result<Swept, StoreError> {
        let Some(mut turn) = self.cache.try_turn(slot) else { return Ok(Swept::Kept) };
        self.read(slot, &mut turn)?;
        let forgotten = turn.as_mut().is_some_and(|file| file.data_at(now).is_forgotten());
        let mut swept = Swept::Kept;
        if let Some(file) = turn.as_ref().filter(|_| forgotten) {
            self.due.note(slot, file.data(), now);
            file.remove().map_err(|error| StoreError::Disk(error.to_string()))?;
            debug!(%slot, "a session whose time was up is gone");
            *turn = None;
            swept = Swept::Gone;
        }
        self.cache.weigh(slot, &turn);
        Ok(swept)
    }
}

#[derive(PartialEq)]
enum Swept {
    Gone,
    Kept,
}
