//! A session's files: whose tree they are in, and how long it is kept. What is in them is the tools' and the clients' affair.

use std::sync::Arc;

use super::{Sessions, Shared};
use crate::state::Slot;
use crate::store::StoreError;
use crate::workspace::{FileError, Tree, Workspace};

impl Sessions {
    /// `None` where the manifest has no filesystem.
    pub fn workspace(&self) -> Option<&Workspace> {
        self.shared.workspace.as_ref()
    }

    /// Ends a session, and with it the tree that is its alone. Where the second fails, the first was done: the same
    /// request again does the rest.
    pub async fn delete(&self, slot: &Slot) -> Result<bool, StoreError> {
        drop(self.shared.cache.take(slot));
        let own = self.shared.own_tree(slot);
        // Taken before: a run of the deleted session has a lower fence than this, one of its successor has not.
        let floor = match &own {
            Some((workspace, tree)) => workspace.trees().clock(tree).await.map_err(failed)?,
            None => 0,
        };
        let existed = self.shared.store.delete(slot).await?;
        if let Some((workspace, tree)) = own {
            workspace.trees().erase(&tree, floor).await.map_err(failed)?;
        }
        Ok(existed)
    }
}

impl Shared {
    fn own_tree(&self, slot: &Slot) -> Option<(Workspace, Tree)> {
        let workspace = self.workspace.clone()?;
        let tree = workspace.tree(slot);
        tree.belongs_to_a_session().then_some((workspace, tree))
    }

    /// A session that is used keeps the tree that is its alone, even where none of its files is looked at.
    pub fn keep_files(self: &Arc<Self>, slot: &Slot) {
        let Some((workspace, tree)) = self.own_tree(slot) else { return };
        self.errands.spawn(async move {
            if let Err(error) = workspace.trees().touch(&tree).await {
                tracing::warn!(%error, "a session's files could not be marked as used");
            }
        });
    }
}

fn failed(error: FileError) -> StoreError {
    match error {
        FileError::Store(error) => error,
        error => StoreError::Failed(error.to_string()),
    }
}
