//! All that this store asks of a disk, in one place, so that a test can watch in what order it asks.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A new file, open for writing.
pub(super) fn create(path: &Path) -> io::Result<File> {
    watch::note(path, watch::Act::Name);
    File::create_new(path)
}

/// An empty file, whether it is there already or not.
pub(super) fn touch(path: &Path) -> io::Result<()> {
    watch::note(path, watch::Act::Name);
    File::create(path).map(drop)
}

pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).open(path)
}

pub(super) fn write(path: &Path, file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    watch::note(path, watch::Act::Write);
    file.write_all_at(bytes, at)
}

/// Drops what is behind the first `len` bytes.
pub(super) fn cut(path: &Path, file: &File, len: u64) -> io::Result<()> {
    watch::note(path, watch::Act::Write);
    file.set_len(len)
}

/// Makes the content of a file last.
pub(super) fn sync(path: &Path, file: &File) -> io::Result<()> {
    file.sync_data()?;
    watch::note(path, watch::Act::Sync);
    Ok(())
}

pub(super) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    watch::note(from, watch::Act::Rename(to.to_owned()));
    fs::rename(from, to)
}

pub(super) fn make_folder(folder: &Path) -> io::Result<()> {
    watch::note(folder, watch::Act::Name);
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Makes the names in a folder last.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()?;
    watch::note(folder, watch::Act::SyncFolder);
    Ok(())
}

/// Says that a caller is about to be told that its changes were made.
pub(super) fn answered(path: &Path) {
    watch::note(path, watch::Act::Answer);
}

#[cfg(not(test))]
mod watch {
    use std::path::{Path, PathBuf};

    #[expect(dead_code, reason = "only a test reads what is noted")]
    pub(super) enum Act {
        Name,
        Write,
        Sync,
        Rename(PathBuf),
        SyncFolder,
        Answer,
    }

    #[inline(always)]
    pub(super) fn note(_: &Path, _: Act) {}
}

#[cfg(test)]
pub(super) mod watch {
    use std::path::{Path, PathBuf};
    use std::sync::{Mutex, PoisonError};

    #[derive(Debug, Clone, PartialEq)]
    pub(in super::super) enum Act {
        Name,
        Write,
        Sync,
        Rename(PathBuf),
        SyncFolder,
        Answer,
    }

    static NOTED: Mutex<Vec<(PathBuf, Act)>> = Mutex::new(Vec::new());

    pub(super) fn note(path: &Path, act: Act) {
        NOTED.lock().unwrap_or_else(PoisonError::into_inner).push((path.to_owned(), act));
    }

    /// What was asked of one folder and all in it, in order.
    pub(in super::super) fn noted(root: &Path) -> Vec<(PathBuf, Act)> {
        let noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
        noted.iter().filter(|(path, _)| path.starts_with(root)).cloned().collect()
    }
}
