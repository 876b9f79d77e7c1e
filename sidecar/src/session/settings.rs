//! What the session layer is told about its agent. Fixed for the life of a process.

use std::sync::Arc;
use std::time::Duration;

use crate::store::OnBusy;
use crate::telemetry::Traces;

/// How much of a running call is journalled before its next side effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Every model reply, tool intent and tool result.
    Step,
    /// The input, the end, and around each unsafe tool.
    Call,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// Names the agent in the store; part of every tool call's idempotency key.
    pub prefix: String,
    /// This process, for people: the pod's name.
    pub replica: String,
    /// The manifest this process runs.
    pub revision: String,
    pub system_prompt: Option<Arc<str>>,
    /// The model that is asked, by the name its provider knows it by.
    pub model: String,
    pub max_iterations: u32,
    pub call_timeout: Duration,
    pub tool_timeout: Duration,
    /// The store's own: how long a holder may be silent.
    pub lease: Duration,
    pub on_busy: OnBusy,
    pub max_running_calls: usize,
    pub durability: Durability,
    /// A suspended call waits for its session's next call instead of being taken at once.
    pub park: bool,
    /// Takeovers from a dead holder without progress, after which a call is given up.
    pub recovery_attempts: u32,
    /// Tokens that may be sent to the model.
    pub context_window: usize,
    /// Bytes of one tool result; the rest is cut off before it is journalled.
    pub max_tool_result: usize,
    /// Bytes of histories kept in memory.
    pub cache_bytes: usize,
    pub drain_timeout: Duration,
    pub relay_timeout: Duration,
    pub traces: Traces,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            prefix: "agent".into(),
            replica: "local".into(),
            revision: String::new(),
            system_prompt: None,
            model: String::new(),
            max_iterations: 20,
            call_timeout: Duration::from_secs(600),
            tool_timeout: Duration::from_secs(60),
            lease: Duration::from_secs(6),
            on_busy: OnBusy::Enqueue,
            max_running_calls: 512,
            durability: Durability::Step,
            park: false,
            recovery_attempts: 3,
            context_window: 128_000,
            max_tool_result: 256 << 10,
            cache_bytes: 64 << 20,
            drain_timeout: Duration::from_secs(30),
            relay_timeout: Duration::from_secs(300),
            traces: Traces::default(),
        }
    }
}

/// Every wait that is not in the manifest, with its reason.
pub mod waits {
    use std::time::Duration;

    /// How often a replica looks for work nobody has, and a waiter for the end of its call, if nothing is announced.
    pub const POLL: Duration = Duration::from_secs(1);
    /// Text is gathered this long before it is stored and sent: fast for an eye, few writes for a store.
    pub const COALESCE: Duration = Duration::from_millis(50);
    /// How long a replica that has given a call back waits for another to take it before it lets its client go.
    pub const TAKEOVER: Duration = Duration::from_secs(10);
    /// How long a waiter bears a store that does not answer before it tells its client.
    pub const STORE_OUTAGE: Duration = Duration::from_secs(10);
    /// First and longest pause between two tries of a store operation that must not be given up.
    pub const RETRY_FIRST: Duration = Duration::from_millis(20);
    pub const RETRY_LONGEST: Duration = Duration::from_secs(1);
}

/// Deaths of its holders in a row after which a call runs only where no other such call does.
pub const SUSPICIOUS_DEATHS: u32 = 2;
/// Takeovers in all after which a call is given up, progress or not.
pub const MAX_TAKEOVERS: u32 = 10;
/// Slots taken from one bucket at a time when looking for work nobody has.
pub const OVERDUE_BATCH: usize = 16;
