//! Where conversations live. One contract, several stores.
//!
//! ```text
//! contract ── Store: the operations and their outcomes
//!    │
//!    ├── slot/      the contract as a pure state machine: decide(data, request) → outcome + changes
//!    │     ├── memory   the machine behind a lock
//!    │     └── file     the machine behind a lock, each change on disk before it is answered
//!    └── redis/     the same decisions as one Lua script an operation
//! ```
//!
//! Knows `state/` and nothing above it: a store keeps bytes in order and never asks what a message says.

mod blob;
pub mod contract;
mod error;
mod ids;
pub mod memory;
pub mod slot;

pub use blob::Blob;
pub use contract::*;
pub use error::StoreError;
pub use ids::{Epoch, EventId, Nonce, Tail, Token};
pub use memory::MemoryStore;
