//! Every condition and every reason the operator can give, in one place. Users and dashboards match on these words.

/// The manifest keeps the rules.
pub const ACCEPTED: &str = "Accepted";
/// Everything it points at exists.
pub const RESOLVED_REFS: &str = "ResolvedRefs";
/// The store can be used.
pub const STATE_STORE_READY: &str = "StateStoreReady";
/// The store loses nothing it has acknowledged.
pub const STATE_STORE_DURABLE: &str = "StateStoreDurable";
/// Replicas are being made, replaced or taken away.
pub const PROGRESSING: &str = "Progressing";
/// The agent answers, with as many replicas as were asked for.
pub const READY: &str = "Ready";

/// Reasons. A broken rule's own name is a reason of `Accepted` too.
pub mod reason {
    pub const ACCEPTED: &str = "Accepted";
    pub const UNREADABLE: &str = "Unreadable";

    pub const RESOLVED: &str = "Resolved";
    pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
    pub const CONFIG_MAP_NOT_FOUND: &str = "ConfigMapNotFound";
    pub const CLAIM_NOT_FOUND: &str = "ClaimNotFound";
    pub const KEY_NOT_FOUND: &str = "KeyNotFound";
    pub const CLAIM_ACCESS_MODE: &str = "ClaimAccessMode";

    pub const LOCAL: &str = "Local";
    pub const CONNECTED: &str = "Connected";
    pub const AUTHENTICATION_FAILED: &str = "AuthenticationFailed";
    pub const UNSUPPORTED_VERSION: &str = "UnsupportedVersion";
    pub const READ_ONLY: &str = "ReadOnly";
    pub const INVALID_ADDRESS: &str = "InvalidAddress";
    pub const UNREACHABLE: &str = "Unreachable";
    pub const CHECK_FORBIDDEN: &str = "CheckForbidden";
    pub const NOT_CHECKED: &str = "NotChecked";

    pub const ALWAYS: &str = "Always";
    pub const EVERY_SECOND: &str = "EverySecond";
    pub const MEMORY_ONLY: &str = "MemoryOnly";
    pub const EVICTING: &str = "Evicting";
    pub const UNKNOWN: &str = "Unknown";

    pub const ROLLING_OUT: &str = "RollingOut";
    pub const COMPLETE: &str = "Complete";
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    pub const HELD: &str = "Held";
    pub const PAUSED: &str = "Paused";
    pub const APPLY_FAILED: &str = "ApplyFailed";
    pub const LOOKUP_FAILED: &str = "LookupFailed";
    pub const TIMED_OUT: &str = "TimedOut";

    pub const READY: &str = "Ready";
    pub const SCALED_TO_ZERO: &str = "ScaledToZero";
    pub const REPLICAS_UNAVAILABLE: &str = "ReplicasUnavailable";
    pub const NOT_ACCEPTED: &str = "NotAccepted";
    pub const UNRESOLVED_REFS: &str = "UnresolvedRefs";
    pub const STATE_STORE_NOT_READY: &str = "StateStoreNotReady";
}

/// A condition's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Truth {
    True,
    False,
    Unknown,
}

impl Truth {
    pub fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// What was found about one condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub truth: Truth,
    pub reason: &'static str,
    pub message: String,
}

impl Finding {
    pub fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { truth: Truth::True, reason, message: message.into() }
    }

    pub fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { truth: Truth::False, reason, message: message.into() }
    }

    pub fn unknown(reason: &'static str, message: impl Into<String>) -> Self {
        Self { truth: Truth::Unknown, reason, message: message.into() }
    }
}
