//! Files that follow a conversation, whichever replica runs it.
//!
//! ```text
//! Workspace ── tree       who shares which files
//!     └── Trees           the contract: whole files, written at once or not at all, fenced, each tool call once
//!           ├── local     a folder
//!           └── remote    the agent's Redis
//! path                    what may name a file
//! ```
//!
//! Knows `state/` and, for Redis, the store's connection; nothing of sessions, models or HTTP. An object store would be
//! a third of the [`Trees`]: conditional writes, listings by prefix and a delimiter are all that is asked of it.

mod contract;
pub mod local;
mod path;
pub mod remote;
mod text;
mod tree;

use std::fmt;
use std::sync::Arc;

pub use contract::{
    About, Condition, Content, Done, Entry, Etag, FileError, Listed, Listing, Page, Part, Put, Stamp, Text,
    TreeLimits, Trees,
};
pub use path::{FilePath, MAX_PATH_BYTES, PathError};
pub use text::is_binary;
pub use tree::{Isolation, Tree};

use crate::state::Slot;

/// The files of one agent: where they are, and whose is which tree. Cheap to clone.
#[derive(Clone)]
pub struct Workspace {
    trees: Arc<dyn Trees>,
    isolation: Isolation,
}

impl Workspace {
    pub fn new(trees: Arc<dyn Trees>, isolation: Isolation) -> Self {
        Self { trees, isolation }
    }

    /// The tree a session works in.
    pub fn tree(&self, slot: &Slot) -> Tree {
        Tree::of(self.isolation, slot)
    }

    pub fn trees(&self) -> &dyn Trees {
        &*self.trees
    }

    /// The same, seen through something around its trees.
    #[must_use]
    pub fn over(&self, around: impl FnOnce(Arc<dyn Trees>) -> Arc<dyn Trees>) -> Self {
        Self { trees: around(Arc::clone(&self.trees)), isolation: self.isolation }
    }
}

impl fmt::Debug for Workspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspace").field("isolation", &self.isolation).finish_non_exhaustive()
    }
}
