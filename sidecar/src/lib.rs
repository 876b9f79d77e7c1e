//! The agent in every pod: a stateless engine around a store that never loses a conversation.
//!
//! Folders, in the order a call passes them; an arrow never points back:
//!
//! ```text
//! api ──▶ session ──▶ engine            the next action, from the transcript alone
//!                ├──▶ store             where conversations live
//!                ├──▶ model             who answers
//!                └──▶ tools             what acts
//!                         all stand on  state; model and tools reach out by outbound, with secrets
//! ```

pub mod engine;
#[cfg(feature = "failpoints")]
pub mod failpoints;
pub mod model;
pub mod mutants;
pub mod outbound;
pub mod secrets;
pub mod session;
pub mod state;
pub mod store;
pub mod tools;
