//! What can be wrong with a store. Each says what to do; none ever stands for an empty answer.

/// A failed operation. Loads fail closed: nobody may take any of these for "no such session".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The request did not reach the store: nothing was written.
    #[error("the state store cannot be reached: {0}; nothing was written, try again")]
    Unavailable(String),
    /// The request may or may not have been carried out; sending the same one again is safe.
    #[error("the state store did not answer in time: {0}; send the same request again")]
    Unanswered(String),
    #[error("the state store is out of memory and refuses new data; raise its maxmemory or delete sessions")]
    OutOfMemory,
    #[error("the state store is a read-only replica; point the URL at the primary")]
    ReadOnly,
    #[error("the state store is still loading its data; try again in a moment")]
    Loading,
    /// The disk did not take it: nothing was written.
    #[error(
        "the disk of the state store refuses: {0}; nothing was changed, free space or repair it and try again"
    )]
    Disk(String),
    #[error("the state store refuses this agent: {0}; check the user, the password and its ACL")]
    Denied(String),
    #[error("what is stored for this session cannot be used: {0}; nothing was changed")]
    Corrupt(String),
    /// Another run holds the slot, or the session was deleted: whatever this run still has in hand is void.
    #[error("the lease on this session was lost; another replica goes on with it")]
    LeaseLost,
    #[error("the state store failed: {0}")]
    Failed(String),
}

impl StoreError {
    /// Whether the same request may succeed later without anybody's help.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_)
                | Self::Unanswered(_)
                | Self::OutOfMemory
                | Self::ReadOnly
                | Self::Loading
                | Self::Disk(_)
        )
    }

    /// Whether the operation may have been carried out although it failed here.
    pub fn may_have_happened(&self) -> bool {
        matches!(self, Self::Unanswered(_))
    }

    /// A static label for metrics and logs.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Unavailable(_) => "unavailable",
            Self::Unanswered(_) => "unanswered",
            Self::OutOfMemory => "out-of-memory",
            Self::ReadOnly => "read-only",
            Self::Loading => "loading",
            Self::Disk(_) => "disk",
            Self::Denied(_) => "denied",
            Self::Corrupt(_) => "corrupt",
            Self::LeaseLost => "lease-lost",
            Self::Failed(_) => "failed",
        }
    }
}
