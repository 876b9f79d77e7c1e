//! Where conversations live. One contract, several stores.
//!
//! ```text
//! contract ── Store: the operations and their outcomes
//!    │
//!    ├── slot/      the contract as a pure state machine: decide(data, request) → outcome + changes
//!    │     └── machine    the contract over anything that keeps slots
//!    │           ├── memory   slots behind a lock
//!    │           └── file/    slots behind a lock each, every change on disk before it is answered
//!    └── redis/     the same decisions as one Lua script an operation
//! ```
//!
//! Knows `state/` and nothing above it: a store keeps bytes in order and never asks what a message says.

mod blob;
mod clock;
pub mod contract;
mod error;
pub mod file;
mod ids;
pub mod machine;
pub mod memory;
pub mod redis;
pub mod slot;

pub use blob::Blob;
pub use clock::Clock;
pub use contract::*;
pub use error::StoreError;
pub use file::FileStore;
pub use ids::{Epoch, EventId, Nonce, Tail, Token};
pub use memory::MemoryStore;
pub use redis::RedisStore;
