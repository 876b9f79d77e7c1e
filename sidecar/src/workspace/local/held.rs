//! A tree while somebody changes it: one at a time, in this process and in every other that has the folder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use rand::Rng;

use super::records::{self, Usage, Writer};
use super::walk::{self, is_absent, refused};
use super::{Inner, hash, slot_name, sweep};
use crate::failpoint;
use crate::state::Slot;
use crate::store::{Millis, StoreError};
use crate::workspace::contract::{About, Condition, Done, Etag, FileError, Put, Stamp};
use crate::workspace::path::FilePath;
use crate::workspace::text::is_binary;

pub(super) struct Held<'a> {
    inner: &'a Inner,
    place: PathBuf,
    meta: PathBuf,
    files: Dir,
    /// Let go when it is dropped, or when the process is.
    _lock: File,
}

impl<'a> Held<'a> {
    /// Waits for its turn. Makes the tree where there is none.
    pub(super) fn take(inner: &'a Inner, place: &Path) -> io::Result<Self> {
        let meta = place.join("meta");
        let mut tries = 100;
        loop {
            let lock = match Self::open_lock(place, &meta) {
                // A sweep took the folder away in between.
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries > 0 => {
                    tries -= 1;
                    continue;
                }
                opened => opened?,
            };
            lock.lock()?;
            // Whoever swept the tree away while we waited has left us with a lock that is nobody's.
            let ours = lock.metadata()?;
            match fs::metadata(meta.join("lock")) {
                Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {
                    make_rooms(place, &meta)?;
                    let files = Dir::open_ambient_dir(place.join("files"), ambient_authority())?;
                    sweep::mark_used(&meta.join("used"))?;
                    return Ok(Self { inner, place: place.to_owned(), meta, files, _lock: lock });
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn open_lock(place: &Path, meta: &Path) -> io::Result<File> {
        let path = meta.join("lock");
        if fs::symlink_metadata(&path).is_err() {
            make_rooms(place, meta)?;
            // So that the tree itself is there after a power failure.
            for folder in place.ancestors().take(3).filter(|folder| !folder.as_os_str().is_empty()) {
                File::open(folder)?.sync_all()?;
            }
        }
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
    }

    pub(super) fn put(&self, path: &FilePath, put: &Put) -> Result<Done, FileError> {
        self.inner.limits.check_file(put.bytes.len() as u64)?;
        if let Some(stamp) = &put.stamp
            && let Some(answer) = self.recall(stamp)?
        {
            return Ok(Done::Recorded(answer));
        }
        let before = self.before(path)?;
        check(path, &put.condition, before.as_ref())?;
        let (usage, size) = (self.usage()?, put.bytes.len() as u64);
        let old = before.as_ref().map(|about| about.size);
        self.inner.limits.check_tree(usage.bytes, usage.files, size, old)?;

        let temporary = match &put.stamp {
            Some(stamp) => Self::temporary_of(&stamp.op),
            None => format!("{:016x}.tmp", rand::rng().random::<u64>()),
        };
        let written = self.write(path, put, &temporary, usage, old);
        if let Err(error) = &written {
            tracing::warn!(%error, "a file could not be written");
            // Beside a record that is left, a temporary file says that the record tells of nothing.
            if put.stamp.is_none() {
                let _ = fs::remove_file(self.meta.join("temporary").join(&temporary));
            }
        }
        let modified = written?;
        let about = About { size, etag: Etag::of(&put.bytes), modified, binary: is_binary(&put.bytes) };
        Ok(Done::Written { about, created: old.is_none() })
    }

    /// Content, record, rename: in this order, each safe on disk before the next.
    fn write(
        &self,
        path: &FilePath,
        put: &Put,
        temporary: &str,
        usage: Usage,
        old: Option<u64>,
    ) -> Result<Millis, FileError> {
        let on_disk = |error: io::Error| FileError::from(StoreError::Disk(format!("{path}: {error}")));
        let place = self.meta.join("temporary");
        let write = || -> io::Result<()> {
            let mut file = File::create(place.join(temporary))?;
            let (first, second) = put.bytes.split_at(put.bytes.len() / 2);
            file.write_all(first)?;
            failpoint!("files.local.half");
            file.write_all(second)?;
            file.sync_all()
        };
        write().map_err(on_disk)?;
        failpoint!("files.local.content");
        let made = self.make_folders(path)?;
        if let Some(stamp) = &put.stamp {
            self.record(stamp, &put.answer).map_err(on_disk)?;
        }
        failpoint!("files.local.record");
        let size = put.bytes.len() as u64;
        let commit = || -> io::Result<Millis> {
            self.jot(Usage { open: true, ..usage })?;
            let from = Dir::open_ambient_dir(&place, ambient_authority())?;
            from.rename(temporary, &self.files, path.as_str())?;
            failpoint!("files.local.rename");
            let after = usage.bytes.saturating_sub(old.unwrap_or(0)) + size;
            let files = usage.files + u64::from(old.is_none());
            self.jot(Usage { bytes: after, files, open: false })?;
            self.sync_folders(path, made)?;
            Ok(walk::modified(&self.files.metadata(path.as_str())?))
        };
        commit().map_err(|error| refused(path, &error))
    }

    pub(super) fn delete(&self, path: &FilePath, condition: &Condition) -> Result<bool, FileError> {
        let before = self.before(path)?;
        check(path, condition, before.as_ref())?;
        let Some(about) = before else { return Ok(false) };
        let usage = self.usage()?;
        let remove = || -> io::Result<()> {
            self.jot(Usage { open: true, ..usage })?;
            self.files.remove_file(path.as_str())?;
            let mut left = path.parent();
            // A folder goes with the last file in it; one that is not empty refuses.
            for folder in path.ancestors().collect::<Vec<_>>().into_iter().rev() {
                if self.files.remove_dir(folder).is_err() {
                    left = Some(folder);
                    break;
                }
                left = None;
            }
            self.jot(Usage {
                bytes: usage.bytes.saturating_sub(about.size),
                files: usage.files.saturating_sub(1),
                open: false,
            })?;
            self.files.open(left.unwrap_or("."))?.sync_all()
        };
        remove().map_err(|error| refused(path, &error))?;
        Ok(true)
    }

    /// What this tool call answered, if it came to its rename. Notes the fence, or refuses a lower one.
    pub(super) fn recall(&self, stamp: &Stamp) -> Result<Option<String>, FileError> {
        let on_disk = |error: io::Error| FileError::from(StoreError::Disk(error.to_string()));
        let floor: u64 = records::load(&self.meta.join("floor")).map_err(on_disk)?.unwrap_or(0);
        let mut writer = self.writer(&stamp.slot).map_err(on_disk)?;
        if stamp.fence < writer.fence.max(floor) {
            return Err(FileError::Fenced);
        }
        if stamp.fence > writer.fence {
            writer.fence = stamp.fence;
            records::save(&self.writer_path(&stamp.slot), &writer).map_err(on_disk)?;
        }
        if writer.call.as_ref() != Some(&stamp.call) {
            return Ok(None);
        }
        let unfinished = self.meta.join("temporary").join(Self::temporary_of(&stamp.op));
        Ok(writer.answers.remove(&stamp.op).filter(|_| fs::symlink_metadata(unfinished).is_err()))
    }

    fn record(&self, stamp: &Stamp, answer: &str) -> io::Result<()> {
        let mut writer = self.writer(&stamp.slot)?;
        if writer.call.as_ref() != Some(&stamp.call) {
            for op in std::mem::take(&mut writer.answers).into_keys() {
                let _ = fs::remove_file(self.meta.join("temporary").join(Self::temporary_of(&op)));
            }
            writer.call = Some(stamp.call.clone());
        }
        writer.fence = writer.fence.max(stamp.fence);
        writer.answers.insert(stamp.op.clone(), answer.to_owned());
        records::save(&self.writer_path(&stamp.slot), &writer)
    }

    /// Takes all files away and leaves a floor.
    pub(super) fn erase(&self, floor: Millis) -> Result<(), FileError> {
        let erase = || -> io::Result<()> {
            let before: u64 = records::load(&self.meta.join("floor"))?.unwrap_or(0);
            records::save(&self.meta.join("floor"), &floor.max(before))?;
            for folder in ["files", "meta/writers", "meta/temporary"] {
                fs::remove_dir_all(self.place.join(folder))?;
                fs::create_dir(self.place.join(folder))?;
            }
            self.jot(Usage::default())?;
            File::open(&self.place)?.sync_all()
        };
        erase().map_err(|error| super::unusable(&self.place, &error).into())
    }

    /// What is there now, and that a file can be there at all.
    fn before(&self, path: &FilePath) -> Result<Option<About>, FileError> {
        for folder in path.ancestors() {
            match self.files.metadata(folder) {
                Ok(about) if about.is_dir() => {}
                Ok(_) => return Err(FileError::NotAFolder { path: path.clone(), file: folder.to_owned() }),
                Err(error) if is_absent(&error) => return Ok(None),
                Err(error) => return Err(refused(path, &error)),
            }
        }
        Ok(walk::read(&self.files, path)?.map(|(about, _)| about))
    }

    /// How many of the outer folders were there before.
    fn make_folders(&self, path: &FilePath) -> Result<usize, FileError> {
        let mut there = 0;
        for folder in path.ancestors() {
            match self.files.create_dir(folder) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => there += 1,
                Err(error) => return Err(refused(path, &error)),
            }
        }
        Ok(there)
    }

    /// Makes the names last: of the file, and of every folder that was made for it.
    fn sync_folders(&self, path: &FilePath, there: usize) -> io::Result<()> {
        let ancestors: Vec<&str> = std::iter::once(".").chain(path.ancestors()).collect();
        for folder in &ancestors[there.min(ancestors.len() - 1)..] {
            self.files.open(folder)?.sync_all()?;
        }
        Ok(())
    }

    fn usage(&self) -> Result<Usage, FileError> {
        let known: Option<Usage> = records::load(&self.meta.join("usage")).unwrap_or_default();
        match known {
            Some(known) if !known.open && !self.inner.first_time(&self.place) => Ok(known),
            _ => {
                self.inner.first_time(&self.place);
                let (bytes, files) =
                    walk::count(&self.files).map_err(|e| super::unusable(&self.place, &e))?;
                Ok(Usage { bytes, files, open: false })
            }
        }
    }

    fn jot(&self, usage: Usage) -> io::Result<()> {
        records::jot(&self.meta.join("usage"), &usage)
    }

    fn writer(&self, slot: &Slot) -> io::Result<Writer> {
        Ok(records::load(&self.writer_path(slot))?.unwrap_or_default())
    }

    fn writer_path(&self, slot: &Slot) -> PathBuf {
        self.meta.join("writers").join(slot_name(slot))
    }

    fn temporary_of(op: &str) -> String {
        format!("{}.op", hash(op))
    }
}

/// The folders of a tree. One is missing in a new tree, and where a process was killed while it emptied this one.
fn make_rooms(place: &Path, meta: &Path) -> io::Result<()> {
    for folder in [meta.join("writers"), meta.join("temporary"), place.join("files")] {
        if !folder.is_dir() {
            fs::create_dir_all(folder)?;
        }
    }
    Ok(())
}

fn check(path: &FilePath, condition: &Condition, before: Option<&About>) -> Result<(), FileError> {
    let now = before.map(|about| &about.etag);
    if condition.holds(now) {
        return Ok(());
    }
    Err(FileError::Changed { path: path.clone(), now: now.cloned() })
}
