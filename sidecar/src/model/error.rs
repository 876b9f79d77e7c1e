//! Why a model did not answer, and whether asking again may help.

use std::time::Duration;

use super::retry::worth_repeating;

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

    /// What a provider meant by answering with `status` and saying `message`.
    pub(super) fn of_status(status: u16, message: &str, retry_after: Option<Duration>) -> Self {
        let detail = if message.is_empty() {
            format!("it answered with status {status}")
        } else {
            format!("it answered with status {status}: {}", excerpt(message))
        };
        match status {
            _ if speaks_of_overflow(message) => Self::TooLong { detail },
            413 => Self::TooLong { detail },
            _ if worth_repeating(status) || status >= 500 => Self::Unavailable { detail, retry_after },
            401 | 403 => {
                Self::Refused { detail: format!("{detail}; check apiKeySecretRef and what the key may do") }
            }
            404 => Self::Refused { detail: format!("{detail}; check model.name and baseUrl") },
            _ => Self::Refused { detail },
        }
    }
}

/// Providers agree on no code for a conversation that is too long; these are the words they use.
pub(super) fn speaks_of_overflow(message: &str) -> bool {
    const WORDS: [&str; 12] = [
        "context_length_exceeded",
        "context length",
        "context window",
        "maximum context",
        "token limit",
        "too many tokens",
        "exceeds the model's maximum",
        "exceed context",
        "exceed_context",
        "reduce the length",
        "prompt is too long",
        "input is too long",
    ];
    // A rate limit counted in tokens is not a conversation that is too long.
    let message = message.to_ascii_lowercase();
    !message.contains("rate limit")
        && !message.contains("per minute")
        && WORDS.iter().any(|words| message.contains(words))
}

/// The beginning of what a provider said: enough to act on, bounded, on one line.
pub(super) fn excerpt(text: &str) -> String {
    const LONGEST: usize = 500;
    let mut excerpt: String =
        text.trim().chars().take(LONGEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.trim().chars().nth(LONGEST).is_some() {
        excerpt.push('…');
    }
    excerpt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_provider_s_overflow_is_too_long_and_a_rate_limit_is_not() {
        for message in [
            "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.",
            "context_length_exceeded",
            "prompt is too long: 213462 tokens > 200000 maximum",
            "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000",
            "the request exceeds the available context size. try increasing the context window",
            "Input is too long for requested model.",
        ] {
            let error = ModelError::of_status(400, message, None);
            assert_eq!(error.kind(), "context-too-long", "{message}");
        }
        let limited = "Rate limit reached for gpt-4o: token limit 30000 tokens per minute";
        assert_eq!(ModelError::of_status(429, limited, None).kind(), "model-unavailable");
        assert_eq!(ModelError::of_status(400, "unknown field", None).kind(), "model-refused");
        assert_eq!(ModelError::of_status(501, "", None).kind(), "model-unavailable");
    }

    #[test]
    fn an_excerpt_is_bounded_and_on_one_line() {
        let long = format!("a\nb{}", "é".repeat(1000));
        let excerpt = excerpt(&long);
        assert!(excerpt.starts_with("a b") && excerpt.ends_with('…'));
        assert_eq!(excerpt.chars().count(), 501);
    }
}
