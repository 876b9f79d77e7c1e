//! Why a model did not answer, and whether asking again may help.

use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Overloaded, failing or not to be reached, also after the provider's own retries.
    #[error("the model did not answer: {detail}; retry the call later")]
    Unavailable { detail: String, retry_after: Option<Duration> },
    /// It understood and will not: the request, the key or the content is refused.
    #[error("the model refused the request: {detail}")]
    Refused { detail: String },
    #[error(
        "the conversation does not fit the model's context: {detail}; lower contextWindow or start a new session"
    )]
    TooLong { detail: String },
    /// What came back is not its protocol.
    #[error("the model's answer makes no sense: {detail}; check baseUrl and provider")]
    Malformed { detail: String },
}

impl ModelError {
    /// The `type` of a failed call.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Unavailable { .. } => "model-unavailable",
            Self::Refused { .. } => "model-refused",
            Self::TooLong { .. } => "context-too-long",
            Self::Malformed { .. } => "model-malformed",
        }
    }

    pub const fn retryable(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Malformed { .. })
    }
}
