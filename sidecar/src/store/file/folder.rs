//! The folder a store lives in: what is where, who has it, and how a file gets there to stay.
//!
//! ```text
//! lock                                     held for the life of the process
//! users/<sha-256 of user>/<sha-256 of session>.jsonl
//! anonymous/<sha-256 of session>.jsonl
//! due/<sha-256 of user, or "anonymous">.<sha-256 of session>     an empty file: this slot may have live calls
//! ```
//!
//! Names are hashes in lower-case hex: any id fits, on any disk, and none is special. The ids are inside the files.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rand::Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{OpenError, disk};
use crate::state::{Id, Slot};
use crate::store::error::StoreError;

const ANONYMOUS: &str = "anonymous";
const SLOT_FILE: &str = "jsonl";
pub(super) const TEMPORARY: &str = "tmp";

pub(super) struct Folder {
    root: PathBuf,
    lock: File,
}

/// Who has a folder. For people: what counts is the lock itself.
#[derive(Serialize, Deserialize)]
struct Owner {
    pid: u32,
    host: String,
    since: Timestamp,
}

impl Folder {
    pub(super) fn open(root: &Path) -> Result<Self, OpenError> {
        let unusable = |error| OpenError::Unusable { folder: root.to_owned(), error };
        fs::create_dir_all(root).map_err(unusable)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join("lock"))
            .map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { folder: root.to_owned(), owner: owner(&mut lock) });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        sign(&mut lock).map_err(unusable)?;
        let folder = Self { root: root.to_owned(), lock };
        for name in ["users", ANONYMOUS, "due"] {
            disk::make_folder(&root.join(name)).map_err(unusable)?;
        }
        disk::sync_folder(root).map_err(unusable)?;
        if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            // A parent nobody may open is no reason not to start: it was there before.
            let _ = disk::sync_folder(parent);
        }
        Ok(folder)
    }

    /// Whether the path still leads to the folder that was locked. Where it does not (a volume was unmounted, the folder
    /// was replaced), a missing file says nothing about a session.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let path = self.root.join("lock");
        let same = || -> io::Result<bool> {
            let (here, ours) = (fs::metadata(&path)?, self.lock.metadata()?);
            Ok((here.dev(), here.ino()) == (ours.dev(), ours.ino()))
        };
        match same() {
            Ok(true) => Ok(()),
            Ok(false) => Err(StoreError::Disk(format!(
                "{} is not the folder this process started with; it was replaced or unmounted, restart the process",
                self.root.display()
            ))),
            Err(error) => Err(refused(&path, &error)),
        }
    }

    pub(super) fn slot_file(&self, slot: &Slot) -> PathBuf {
        self.slots_of(slot.user.as_ref()).join(hash(slot.session.as_str())).with_extension(SLOT_FILE)
    }

    /// Where the sessions of a user are; there may be no such folder.
    pub(super) fn slots_of(&self, user: Option<&Id>) -> PathBuf {
        match user {
            Some(user) => self.root.join("users").join(hash(user.as_str())),
            None => self.root.join(ANONYMOUS),
        }
    }

    /// Every folder that has slots in it.
    pub(super) fn slot_folders(&self) -> io::Result<Vec<PathBuf>> {
        let mut folders = vec![self.root.join(ANONYMOUS)];
        for entry in fs::read_dir(self.root.join("users"))? {
            folders.push(entry?.path());
        }
        Ok(folders)
    }

    pub(super) fn due(&self) -> PathBuf {
        self.root.join("due")
    }

    pub(super) fn marker(&self, slot: &Slot) -> PathBuf {
        let user = slot.user.as_ref().map_or_else(|| ANONYMOUS.to_owned(), |user| hash(user.as_str()));
        self.due().join(format!("{user}.{}", hash(slot.session.as_str())))
    }

    /// The file of the slot a marker stands for.
    pub(super) fn marked_file(&self, marker: &OsStr) -> Option<PathBuf> {
        let (user, session) = marker.to_str()?.split_once('.')?;
        let folder = match user {
            ANONYMOUS => self.root.join(ANONYMOUS),
            user => self.root.join("users").join(user),
        };
        Some(folder.join(session).with_extension(SLOT_FILE))
    }
}

pub(super) fn is_slot_file(path: &Path) -> bool {
    path.extension() == Some(OsStr::new(SLOT_FILE))
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::with_capacity(64), |mut hex, byte| {
        for digit in [byte >> 4, byte & 15] {
            hex.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
        hex
    })
}

fn sign(lock: &mut File) -> io::Result<()> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname")
        .or_else(|_| std::env::var("HOSTNAME").map_err(io::Error::other))
        .unwrap_or_else(|_| "this host".to_owned());
    let owner = Owner { pid: std::process::id(), host: host.trim().to_owned(), since: Timestamp::now() };
    lock.set_len(0)?;
    lock.rewind()?;
    lock.write_all(&serde_json::to_vec(&owner)?)?;
    lock.sync_data()
}

fn owner(lock: &mut File) -> String {
    let mut text = String::new();
    let read = lock.read_to_string(&mut text).ok().and_then(|_| serde_json::from_str::<Owner>(&text).ok());
    match read {
        Some(Owner { pid, host, since }) => format!("process {pid} on {host} since {since:.0}"),
        None => "another process".to_owned(),
    }
}

pub(super) fn refused(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Disk(format!("{}: {error}", path.display()))
}

/// Why a file was not put in its place for good.
pub(super) enum Replace {
    /// The old one is still there.
    Refused(io::Error),
    /// The new one is there, and may be gone after a power failure.
    Unsettled(io::Error),
}

/// Puts a file in its place whole, under a name of its own until it is safe on disk.
pub(super) fn replace(path: &Path, bytes: &[u8]) -> Result<(), Replace> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_stem()) else {
        return Err(Replace::Refused(io::ErrorKind::InvalidInput.into()));
    };
    let random: u64 = rand::rng().random();
    let temporary = folder.join(format!("{}.{random:016x}.{TEMPORARY}", name.display()));
    let new = path.symlink_metadata().is_err();
    let written = create(folder, &temporary, new)
        .and_then(|file| {
            disk::write(&temporary, &file, bytes, 0)?;
            disk::sync(&temporary, &file)
        })
        .and_then(|()| disk::rename(&temporary, path));
    if let Err(error) = written {
        // A leftover is swept later.
        let _ = fs::remove_file(&temporary);
        return Err(Replace::Refused(error));
    }
    disk::sync_folder(folder).map_err(Replace::Unsettled)?;
    match folder.parent() {
        // The folder itself may be as new as the file.
        Some(parent) if new => disk::sync_folder(parent).map_err(Replace::Unsettled),
        _ => Ok(()),
    }
}

/// Creates a file and, for the first one, its folder. The sweep may remove an empty folder in between.
fn create(folder: &Path, file: &Path, may_be_first: bool) -> io::Result<File> {
    let mut tries = 3;
    loop {
        match disk::create(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_be_first && tries > 0 => {
                disk::make_folder(folder)?;
                tries -= 1;
            }
            created => return created,
        }
    }
}
