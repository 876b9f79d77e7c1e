//! The contract in a folder: the machine of `slot/`, every change on disk before it is answered. For one process.
//!
//! ```text
//! Files ── cache      slots in memory, one turn at a time
//!      ├── due        which of them have live calls
//!      ├── slot_file  a slot and its file
//!      ├── rows       what a list has read of them
//!      ├── sweep      what has run out goes
//!      ├── folder     names, the lock, how a file gets in place
//!      └── disk       all that is asked of a disk
//! ```
//!
//! A decision is made on the caller's task; only reading and writing goes to a thread of its own, and it takes the
//! slot's turn along: a caller that gives up leaves nothing half done. Different slots never wait for one another.

mod cache;
mod disk;
mod due;
mod folder;
mod rows;
mod slot_file;
mod sweep;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use tokio::sync::oneshot;
use tokio::task::spawn_blocking;
use tracing::warn;

use self::cache::{Cache, Turn};
use self::due::Due;
use self::folder::Folder;
use self::rows::Rows;
use self::slot_file::SlotFile;
use self::sweep::Rounds;
use super::clock::Clock;
use super::contract::{Limits, Millis, SessionRow};
use super::error::StoreError;
use super::machine::{Cells, Decided, Machine};
use super::slot::{Change, Decision, SlotData};
use crate::state::{Id, Slot};

pub type FileStore = Machine<Files>;

/// Why a store could not be opened. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "the state folder {} is in use by {owner}; only one process may use it at a time: stop that one, give this one \
         another folder, or keep the state in Redis",
        folder.display()
    )]
    InUse { folder: PathBuf, owner: String },
    #[error("the state folder {} cannot be used: {error}; give a folder this process can write to", folder.display())]
    Unusable { folder: PathBuf, error: io::Error },
}

/// What a store may use beside its folder.
#[derive(Clone)]
pub struct FileOptions {
    /// Slots kept in memory, in bytes. Those in use come on top.
    pub cache_bytes: usize,
    pub clock: Clock,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { cache_bytes: 64 << 20, clock: Clock::wall() }
    }
}

impl FileStore {
    /// Locks the folder, and finds the calls a former process left. Reads files: for the start of a process.
    pub fn open(folder: &Path, limits: Limits, options: FileOptions) -> Result<Self, OpenError> {
        let files = Inner {
            folder: Folder::open(folder)?,
            rounds: Rounds::new(options.clock.now()),
            clock: options.clock,
            limits: limits.clone(),
            cache: Cache::new(options.cache_bytes),
            due: Due::default(),
            rows: Rows::default(),
        };
        files.find_due().map_err(|error| OpenError::Unusable { folder: files.folder.due(), error })?;
        Ok(Self::over(Files(Arc::new(files)), limits))
    }
}

/// Slots in a folder. A thread that still writes keeps it, and so the lock, alive.
pub struct Files(Arc<Inner>);

struct Inner {
    folder: Folder,
    clock: Clock,
    limits: Limits,
    cache: Cache,
    due: Due,
    rows: Rows,
    rounds: Rounds,
}

impl Inner {
    fn find_due(&self) -> io::Result<()> {
        let now = self.clock.now();
        for marker in fs::read_dir(self.folder.due())? {
            let marker = marker?;
            let Some(path) = self.folder.marked_file(&marker.file_name()) else { continue };
            let found = match slot_file::peek(&path) {
                Ok(Some((slot, _))) => SlotFile::load(&self.folder, &slot),
                // Marked for a call whose admission was never written.
                Ok(None) => {
                    fs::remove_file(marker.path())?;
                    continue;
                }
                Err(error) => Err(error),
            };
            match found {
                Ok(file) => self.due.found(file.slot(), file.data(), now),
                // The others must not wait for this one; whoever asks for it is told.
                Err(error) => warn!(%error, "a session with unfinished calls cannot be read"),
            }
        }
        Ok(())
    }

    /// Waits for a slot's turn, and has it read.
    async fn turn(self: &Arc<Self>, slot: &Slot) -> Result<Turn, StoreError> {
        let mut turn = self.cache.turn(slot).await;
        if turn.as_ref().is_some_and(SlotFile::is_settled) {
            return Ok(turn);
        }
        let (inner, slot) = (self.clone(), slot.clone());
        on_a_thread(move || {
            inner.read(&slot, &mut turn)?;
            Ok(turn)
        })
        .await
    }

    fn read(&self, slot: &Slot, turn: &mut Turn) -> Result<(), StoreError> {
        if let Some(file) = turn.as_mut() {
            return file.settle();
        }
        let file = SlotFile::load(&self.folder, slot)?;
        if !file.data().queue.is_empty() {
            let now = self.clock.now();
            self.due.mark(&self.folder, slot, now)?;
            self.due.note(slot, file.data(), now);
        }
        **turn = Some(file);
        Ok(())
    }

    /// Writes, answers whether the slot is orphaned now, and then tidies up before the turn ends.
    fn write(
        &self,
        mut turn: Turn,
        now: Millis,
        changes: Vec<Change>,
        answer: oneshot::Sender<Result<bool, StoreError>>,
    ) {
        // Taken out, so that a panic leaves a slot that is read again.
        let Some(mut file) = turn.take() else { return };
        let slot = file.slot().clone();
        let admits = changes.iter().any(|change| matches!(change, Change::Admit(..)));
        let marked = if admits { self.due.mark(&self.folder, &slot, now) } else { Ok(()) };
        let written = marked.and_then(|()| file.change(now, changes));
        self.due.note(&slot, file.data(), now);
        if written.is_ok() {
            disk::answered(file.path());
        }
        // The caller may have gone; what it asked for was done all the same.
        let _ = answer.send(written.map(|()| file.data().is_orphaned()));
        if file.has_outgrown_its_snapshot()
            && let Err(error) = file.compact(now)
        {
            warn!(%error, "a session's file could not be made shorter; it is good as it is");
        }
        *turn = Some(file);
        self.cache.weigh(&slot, &turn);
    }

    fn sessions(&self, user: &Id) -> Result<Vec<SessionRow>, StoreError> {
        let folder = self.folder.slots_of(Some(user));
        let now = self.clock.now();
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.folder.check().map(|()| Vec::new());
            }
            Err(error) => return Err(folder::refused(&folder, &error)),
        };
        let mut rows = Vec::new();
        for entry in entries {
            let path = entry.map_err(|error| folder::refused(&folder, &error))?.path();
            if !folder::is_slot_file(&path) {
                continue;
            }
            let Some(row) = self.rows.of(&path)? else { continue };
            if row.slot.user.as_ref() != Some(user) {
                let what = format!("it holds session {}, of another user", row.slot);
                return Err(slot_file::corrupt(&path, &what));
            }
            rows.extend(row.at(now));
        }
        Ok(rows)
    }
}

impl Cells for Files {
    async fn decide<T: Send>(
        &self,
        slot: &Slot,
        decide: impl FnOnce(&SlotData, Millis) -> Result<Decision<T>, StoreError> + Send,
    ) -> Result<Decided<T>, StoreError> {
        let inner = &self.0;
        let mut turn = inner.turn(slot).await?;
        let Some(file) = turn.as_mut() else { return Err(panicked()) };
        let now = inner.clock.now();
        let Decision { outcome, changes, announce } = match decide(file.data_at(now), now) {
            Ok(decision) => decision,
            Err(error) => {
                inner.cache.weigh(slot, &turn);
                return Err(error);
            }
        };
        let orphaned = match file.change_in_memory(now, changes) {
            Ok(()) => {
                let orphaned = file.data().is_orphaned();
                inner.due.note(slot, file.data(), now);
                inner.cache.weigh(slot, &turn);
                orphaned
            }
            Err(changes) => {
                let (answer, written) = oneshot::channel();
                let inner = inner.clone();
                spawn_blocking(move || inner.write(turn, now, changes, answer));
                written.await.map_err(|_| panicked())??
            }
        };
        Ok(Decided { outcome, announce, orphaned })
    }

    async fn look<T: Send>(
        &self,
        slot: &Slot,
        look: impl FnOnce(&SlotData, Millis) -> T + Send,
    ) -> Result<T, StoreError> {
        let inner = &self.0;
        let mut turn = inner.turn(slot).await?;
        let Some(file) = turn.as_mut() else { return Err(panicked()) };
        let now = inner.clock.now();
        let seen = look(file.data_at(now), now);
        inner.due.note(slot, file.data(), now);
        inner.cache.weigh(slot, &turn);
        Ok(seen)
    }

    async fn sessions(&self, user: &Id) -> Result<Vec<SessionRow>, StoreError> {
        let (inner, user) = (self.0.clone(), user.clone());
        on_a_thread(move || inner.sessions(&user)).await
    }

    /// Everybody who serves asks this once a second: a good moment to see whether it is time to tidy up.
    async fn overdue(&self, limit: usize) -> Result<Vec<Slot>, StoreError> {
        let now = self.0.clock.now();
        if self.0.rounds.is_time(now) {
            let inner = self.0.clone();
            spawn_blocking(move || inner.make_a_round(now));
        }
        Ok(self.0.due.overdue(now, limit))
    }

    async fn ping(&self) -> Result<(), StoreError> {
        let inner = self.0.clone();
        on_a_thread(move || inner.folder.check()).await
    }
}

async fn on_a_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    spawn_blocking(work).await.unwrap_or_else(|_| Err(panicked()))
}

/// A thread of the store died, or the runtime is going down.
fn panicked() -> StoreError {
    StoreError::Unanswered("the store stopped in the middle of it".to_owned())
}
