//! The contract of whatever keeps trees of files. The suite in `tests/workspace_contract.rs` runs against each of them.
//!
//! - A file is written whole or not at all: whoever reads sees the old or the new one.
//! - A [`Stamp`] names the run that writes. A tree refuses a lower fence of a session than it has seen, and answers a
//!   tool call it has carried out with what it answered before, without doing anything.
//! - A [`Condition`] is checked in the same instant as the write.
//! - A path is a file or a folder, never both. Folders come and go with the files in them.
//! - A tree that nobody has used for the session's time is gone, all of it.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::path::{FilePath, PathError};
use super::tree::Tree;
use crate::state::{CallId, Slot};
use crate::store::{Millis, StoreError};

/// What one tree may hold, and for how long it is kept unused.
#[derive(Debug, Clone, PartialEq)]
pub struct TreeLimits {
    pub max_file: u64,
    pub max_tree: u64,
    /// Empty files take room too.
    pub max_files: u64,
    pub ttl: Duration,
}

/// How many files a tree may have.
pub const MAX_FILES: u64 = 100_000;

impl Default for TreeLimits {
    fn default() -> Self {
        Self {
            max_file: 1 << 20,
            max_tree: 64 << 20,
            max_files: MAX_FILES,
            ttl: Duration::from_secs(720 * 3600),
        }
    }
}

impl TreeLimits {
    pub fn check_file(&self, size: u64) -> Result<(), FileError> {
        if size > self.max_file { Err(FileError::TooLarge { size, limit: self.max_file }) } else { Ok(()) }
    }

    /// Whether a tree with so much in it, of so many files, takes a file of `new` bytes in place of one of `old`.
    pub fn check_tree(&self, held: u64, files: u64, new: u64, old: Option<u64>) -> Result<(), FileError> {
        let after = held.saturating_sub(old.unwrap_or(0)) + new;
        // What makes a full tree no larger is always welcome.
        if after > self.max_tree && old.is_none_or(|old| new > old) {
            return Err(FileError::TreeFull { after, limit: self.max_tree });
        }
        if old.is_none() && files >= self.max_files {
            return Err(FileError::TooManyFiles { limit: self.max_files });
        }
        Ok(())
    }
}

/// The name of a content: two files with the same have the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Etag(Box<str>);

impl Etag {
    pub fn of(bytes: &[u8]) -> Self {
        let digest = Sha256::digest(bytes);
        Self(
            digest[..16]
                .iter()
                .fold(String::with_capacity(32), |hex, byte| format!("{hex}{byte:02x}"))
                .into(),
        )
    }

    pub fn named(text: impl Into<Box<str>>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct About {
    pub size: u64,
    pub etag: Etag,
    pub modified: Millis,
    /// Not text: nothing to show by lines.
    pub binary: bool,
}

/// Which bytes of a file: from one on, and at most so many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    pub from: u64,
    pub len: u64,
}

impl Part {
    pub const WHOLE: Self = Self { from: 0, len: u64::MAX };

    /// The part of a file of `size` bytes.
    pub fn of(self, size: usize) -> std::ops::Range<usize> {
        let from = usize::try_from(self.from).unwrap_or(usize::MAX).min(size);
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        from..from.saturating_add(len).min(size)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    pub about: About,
    pub bytes: Bytes,
}

/// What must be true of a file before it is written or removed.
#[derive(Debug, Clone, PartialEq)]
pub enum Condition {
    Any,
    Exists,
    Absent,
    Is(Etag),
}

impl Condition {
    pub fn holds(&self, now: Option<&Etag>) -> bool {
        match self {
            Self::Any => true,
            Self::Exists => now.is_some(),
            Self::Absent => now.is_none(),
            Self::Is(etag) => now == Some(etag),
        }
    }
}

/// The tool call that writes, and the run it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Stamp {
    pub slot: Slot,
    pub call: CallId,
    /// Of the lease under which it runs.
    pub fence: u64,
    /// The same for every run of this tool call, and of no other.
    pub op: String,
}

#[derive(Debug, Clone)]
pub struct Put {
    pub bytes: Bytes,
    pub condition: Condition,
    /// `None`: a client's own doing.
    pub stamp: Option<Stamp>,
    /// What is recorded for the tool call, in the same instant as the write.
    pub answer: String,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Done {
    Written {
        about: About,
        created: bool,
    },
    /// This tool call was carried out before; nothing was done now.
    Recorded(String),
}

/// What to list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listing {
    /// Only what is in this folder; `None` is the top.
    pub below: Option<FilePath>,
    /// Only what comes after this path.
    pub after: Option<String>,
    pub limit: usize,
    /// Folders as one entry each, instead of all that is in them.
    pub folders: bool,
    /// Whether the entries' etags are worth reading the files for.
    pub etags: bool,
}

impl Listing {
    pub fn all(limit: usize) -> Self {
        Self { below: None, after: None, limit, folders: false, etags: false }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub path: String,
    pub what: Listed,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Listed {
    File { size: u64, modified: Millis, etag: Option<Etag> },
    Folder,
}

/// Entries in the order of their paths' bytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Page {
    pub entries: Vec<Entry>,
    /// Where the next page begins after; `None` on the last.
    pub next: Option<String>,
}

/// A file for a search.
#[derive(Debug, Clone, PartialEq)]
pub enum Text {
    Lines(Bytes),
    Binary,
    Gone,
}

/// Why a file was not read or written. Each says what to do; after each nothing has changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FileError {
    #[error("{0}")]
    Path(#[from] PathError),
    #[error("{0} does not exist; list the files there are")]
    NotFound(FilePath),
    #[error("{0} is a folder; name a file in it")]
    IsFolder(FilePath),
    #[error("{file} is a file, so that nothing can be in it; choose another path than {path}")]
    NotAFolder { path: FilePath, file: String },
    #[error("the file would have {size} bytes and may have {limit}; split it")]
    TooLarge { size: u64, limit: u64 },
    #[error("the workspace would hold {after} bytes and may hold {limit}; remove or shorten files first")]
    TreeFull { after: u64, limit: u64 },
    #[error("the workspace has {limit} files and may not have more; remove some first")]
    TooManyFiles { limit: u64 },
    #[error("{path} has changed meanwhile; nothing was written, read it again first")]
    Changed { path: FilePath, now: Option<Etag> },
    #[error("{0} is a link that leads out of the workspace; choose another path")]
    Outside(FilePath),
    #[error("another replica has taken over this conversation; nothing was written")]
    Fenced,
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl FileError {
    /// A word for numbers and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Path(_) => "bad-path",
            Self::NotFound(_) => "not-found",
            Self::IsFolder(_) | Self::NotAFolder { .. } => "path-conflict",
            Self::TooLarge { .. } => "too-large",
            Self::TreeFull { .. } | Self::TooManyFiles { .. } => "full",
            Self::Changed { .. } => "changed",
            Self::Outside(_) => "outside",
            Self::Fenced => "fenced",
            Self::Store(error) => error.label(),
        }
    }
}

#[async_trait]
pub trait Trees: Send + Sync + 'static {
    fn limits(&self) -> &TreeLimits;
    /// A part of a file, and what it is as a whole. `None` where there is no such file.
    async fn read(&self, tree: &Tree, path: &FilePath, part: Part) -> Result<Option<Content>, FileError>;
    /// The texts of these files, from the first on, until `budget` bytes are reached: at least one.
    async fn texts(&self, tree: &Tree, paths: &[String], budget: usize) -> Result<Vec<Text>, FileError>;
    async fn list(&self, tree: &Tree, listing: &Listing) -> Result<Page, FileError>;
    /// Checks in this order: the file's size, fence, record, path, condition, what the tree holds.
    async fn put(&self, tree: &Tree, path: &FilePath, put: &Put) -> Result<Done, FileError>;
    /// `false` where there is no such file.
    async fn delete(&self, tree: &Tree, path: &FilePath, condition: &Condition) -> Result<bool, FileError>;
    /// What this tool call answered, if it was carried out.
    async fn recall(&self, tree: &Tree, stamp: &Stamp) -> Result<Option<String>, FileError>;
    /// It is in use.
    async fn touch(&self, tree: &Tree) -> Result<(), FileError>;
    /// The time by which fences of this tree are counted.
    async fn clock(&self, tree: &Tree) -> Result<Millis, FileError>;
    /// Removes a tree and refuses every lower fence from then on.
    async fn erase(&self, tree: &Tree, floor: Millis) -> Result<(), FileError>;
}
