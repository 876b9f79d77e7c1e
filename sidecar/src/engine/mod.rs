//! The agent's loop as a pure step: from what a call has done so far to what it does next.
//!
//! Knows `state/` and nothing else: no clock, no store, no provider. A call that was interrupted is rebuilt into the same
//! [`Turn`] from its journal and asks the same question, so that going on after a crash is not a special case.
//!
//! ```text
//!            ┌────────────── results ──────────────┐
//!            ▼                                     │
//! input ─▶ AskModel ── reply with tool calls ─▶ RunTools
//!            │
//!            └───────── reply without ───────▶ Finish
//! ```

mod turn;
mod window;

pub use turn::{Next, Pending, Turn};
pub use window::window;
