//! The agent in every pod: a stateless engine around a store that never loses a conversation.
//!
//! Folders, in the order a call passes them; an arrow never points back:
//!
//! ```text
//! cli: a manifest becomes a config, a config an agent, and serve runs it until it is told to stop
//! api ──▶ session ──▶ engine            the next action, from the transcript alone
//!                ├──▶ store             where conversations live
//!                ├──▶ model             who answers
//!                └──▶ tools             what acts
//!                       └──▶ workspace  the files it acts on
//!                         all stand on  state; model and tools reach out by outbound, with secrets
//! ```

pub mod api;
pub mod assemble;
pub mod cli;
pub mod config;
pub mod engine;
#[cfg(feature = "failpoints")]
pub mod failpoints;
pub mod model;
pub mod mutants;
pub mod outbound;
pub mod secrets;
pub mod serve;
pub mod session;
pub mod state;
pub mod store;
pub mod telemetry;
pub mod tools;
pub mod workspace;

/// A place at which a test can kill this process; nothing in a build that serves anybody.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(feature = "failpoints")]
        $crate::failpoints::point($name)
    };
}
pub(crate) use failpoint;
