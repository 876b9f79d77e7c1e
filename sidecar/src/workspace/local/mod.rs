//! Trees in a folder: of one replica, or of all that mount the same volume.
//!
//! ```text
//! agents/<prefix>/users/<sha-256 of user>/
//! agents/<prefix>/sessions/<sha-256 of user, or "anonymous">.<sha-256 of session>/
//! agents/<prefix>/agent/
//! global/                           each of these is a tree:
//!     files/                        the files, as they are called
//!     meta/lock                     held while something is changed
//!     meta/used                     its time is when the tree was last used
//!     meta/usage                    how much is in it; `open` while that is being changed
//!     meta/floor                    no lower fence is taken: the session was deleted
//!     meta/writers/<session>        the highest fence seen, and what each tool call of the last call answered
//!     meta/temporary/               what is being written
//! ```
//!
//! Names above `files/` are hashes, so that no id is special; what is in `files/` is only ever reached through a handle of
//! that folder (`cap-std`), so that no link leads out of it.
//!
//! A write is: the content under a temporary name, synced; the record of the tool call, synced; one rename. A record
//! whose temporary file is still there tells of a write that did not come to its rename: it counts for nothing.

mod held;
mod records;
mod sweep;
mod walk;

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use sha2::{Digest, Sha256};
use tokio::task::AbortHandle;

use self::held::Held;
use super::contract::{
    Condition, Content, Done, FileError, Listing, Page, Part, Put, Stamp, Text, TreeLimits, Trees,
};
use super::path::FilePath;
use super::text::is_binary;
use super::tree::Tree;
use crate::state::Slot;
use crate::store::{Millis, StoreError};

/// Nothing larger is read, whoever put it there.
const LARGEST: u64 = 64 << 20;

pub struct Local {
    inner: Arc<Inner>,
    sweeping: Option<AbortHandle>,
}

struct Inner {
    folder: PathBuf,
    /// This agent's trees.
    own: PathBuf,
    limits: TreeLimits,
    /// Trees whose usage this process has counted: what people put there by hand is seen at the next start.
    counted: Mutex<HashSet<PathBuf>>,
}

impl Local {
    /// `prefix` names the agent among all that share the folder. Inside a runtime, trees that ran out are swept away
    /// from now on.
    pub fn open(folder: &Path, prefix: &str, limits: TreeLimits) -> Result<Self, StoreError> {
        let own = folder.join("agents").join(prefix);
        for below in ["users", "sessions"] {
            std::fs::create_dir_all(own.join(below)).map_err(|error| unusable(folder, &error))?;
        }
        let folder = folder.to_owned();
        let inner = Arc::new(Inner { folder, own, limits, counted: Mutex::default() });
        let rounds = tokio::runtime::Handle::try_current().ok();
        let sweeping =
            rounds.map(|runtime| runtime.spawn(sweep::forever(Arc::downgrade(&inner))).abort_handle());
        Ok(Self { inner, sweeping })
    }

    /// On a thread that may wait for the disk.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, FileError> {
        let inner = Arc::clone(&self.inner);
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|error| {
            Err(StoreError::Failed(format!("a file operation crashed: {error}")).into())
        })
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if let Some(sweeping) = &self.sweeping {
            sweeping.abort();
        }
    }
}

#[async_trait]
impl Trees for Local {
    fn limits(&self) -> &TreeLimits {
        &self.inner.limits
    }

    async fn read(&self, tree: &Tree, path: &FilePath, part: Part) -> Result<Option<Content>, FileError> {
        let (tree, path) = (tree.clone(), path.clone());
        self.on_disk(move |inner| {
            let Some(files) = inner.files(&tree)? else { return Ok(None) };
            inner.note_use(&tree);
            let found = walk::read(&files, &path)?;
            Ok(found.map(|(about, bytes)| Content { bytes: bytes.slice(part.of(bytes.len())), about }))
        })
        .await
    }

    async fn texts(&self, tree: &Tree, paths: &[String], budget: usize) -> Result<Vec<Text>, FileError> {
        let (tree, paths) = (tree.clone(), paths.to_vec());
        self.on_disk(move |inner| {
            let Some(files) = inner.files(&tree)? else { return Ok(vec![Text::Gone; paths.len()]) };
            let (mut texts, mut held) = (Vec::new(), 0);
            for path in paths {
                // One that vanished, became a folder or grew beyond all bounds is no reason to find nothing elsewhere.
                let found =
                    FilePath::new(&path).ok().and_then(|path| walk::read(&files, &path).ok().flatten());
                texts.push(match found {
                    None => Text::Gone,
                    Some((_, bytes)) if is_binary(&bytes) => Text::Binary,
                    Some((_, bytes)) => {
                        held += bytes.len();
                        Text::Lines(bytes)
                    }
                });
                if held >= budget {
                    break;
                }
            }
            Ok(texts)
        })
        .await
    }

    async fn list(&self, tree: &Tree, listing: &Listing) -> Result<Page, FileError> {
        let (tree, listing) = (tree.clone(), listing.clone());
        self.on_disk(move |inner| {
            let Some(files) = inner.files(&tree)? else { return Ok(Page::default()) };
            inner.note_use(&tree);
            walk::list(&files, &listing).map_err(|error| unusable(&inner.folder, &error).into())
        })
        .await
    }

    async fn put(&self, tree: &Tree, path: &FilePath, put: &Put) -> Result<Done, FileError> {
        let (tree, path, put) = (tree.clone(), path.clone(), put.clone());
        self.on_disk(move |inner| inner.hold(&tree)?.put(&path, &put)).await
    }

    async fn delete(&self, tree: &Tree, path: &FilePath, condition: &Condition) -> Result<bool, FileError> {
        let (tree, path, condition) = (tree.clone(), path.clone(), condition.clone());
        self.on_disk(move |inner| {
            if inner.files(&tree)?.is_none() {
                return if condition.holds(None) {
                    Ok(false)
                } else {
                    Err(FileError::Changed { path, now: None })
                };
            }
            inner.hold(&tree)?.delete(&path, &condition)
        })
        .await
    }

    async fn recall(&self, tree: &Tree, stamp: &Stamp) -> Result<Option<String>, FileError> {
        let (tree, stamp) = (tree.clone(), stamp.clone());
        self.on_disk(move |inner| {
            if inner.files(&tree)?.is_none() {
                return Ok(None);
            }
            inner.hold(&tree)?.recall(&stamp)
        })
        .await
    }

    async fn touch(&self, tree: &Tree) -> Result<(), FileError> {
        let tree = tree.clone();
        self.on_disk(move |inner| {
            inner.note_use(&tree);
            Ok(())
        })
        .await
    }

    async fn clock(&self, _: &Tree) -> Result<Millis, FileError> {
        Ok(now())
    }

    async fn erase(&self, tree: &Tree, floor: Millis) -> Result<(), FileError> {
        let tree = tree.clone();
        self.on_disk(move |inner| {
            // A floor is left even where there was nothing: a run of the deleted session may be about to write.
            inner.hold(&tree)?.erase(floor)
        })
        .await
    }
}

impl Inner {
    fn place(&self, tree: &Tree) -> PathBuf {
        match tree {
            Tree::User(user) => self.own.join("users").join(hash(user.as_str())),
            Tree::Session(slot) => self.own.join("sessions").join(slot_name(slot)),
            Tree::Agent => self.own.join("agent"),
            Tree::Global => self.folder.join("global"),
        }
    }

    /// A handle of the tree's files; `None` where there is no such tree.
    fn files(&self, tree: &Tree) -> Result<Option<Dir>, FileError> {
        let files = self.place(tree).join("files");
        match Dir::open_ambient_dir(&files, ambient_authority()) {
            Ok(files) => Ok(Some(files)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A volume that is gone must not be taken for an empty one.
                std::fs::metadata(&self.own).map_err(|error| unusable(&self.own, &error))?;
                Ok(None)
            }
            Err(error) => Err(unusable(&files, &error).into()),
        }
    }

    fn hold(&self, tree: &Tree) -> Result<Held<'_>, FileError> {
        let place = self.place(tree);
        std::fs::metadata(&self.own).map_err(|error| unusable(&self.own, &error))?;
        Held::take(self, &place).map_err(|error| unusable(&place, &error).into())
    }

    /// Puts off the tree's end, in strides. A mark that cannot be set costs nobody a file: the next use sets it.
    fn note_use(&self, tree: &Tree) {
        let used = self.place(tree).join("meta/used");
        let stale = || -> io::Result<bool> {
            let age = SystemTime::now().duration_since(std::fs::metadata(&used)?.modified()?);
            Ok(age.unwrap_or_default() > stride(self.limits.ttl))
        };
        if stale().unwrap_or(false)
            && let Err(error) = sweep::mark_used(&used)
        {
            tracing::warn!(%error, "a workspace could not be marked as used");
        }
    }

    fn first_time(&self, place: &Path) -> bool {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).insert(place.to_owned())
    }
}

/// How late a use may be noted: a tree is kept for its time and at most so much longer.
fn stride(ttl: Duration) -> Duration {
    ttl / 64
}

fn slot_name(slot: &Slot) -> String {
    let user = slot.user.as_ref().map_or_else(|| "anonymous".to_owned(), |user| hash(user.as_str()));
    format!("{user}.{}", hash(slot.session.as_str()))
}

fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().fold(String::with_capacity(64), |hex, byte| format!("{hex}{byte:02x}"))
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis::try_from(since.as_millis()).unwrap_or(Millis::MAX)
}

fn unusable(path: &Path, error: &io::Error) -> StoreError {
    StoreError::Disk(format!("{}: {error}", path.display()))
}
