//! When to ask a provider again, and how long to wait before.

use std::time::Duration;

use rand::Rng;

/// After the first attempt, this many more.
pub(super) const MAX_RETRIES: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);

/// One request's attempts so far.
#[derive(Debug)]
pub(super) struct Attempts {
    failed: u32,
    /// The longest a provider may make us wait by `Retry-After`: asked for more, the call fails and says so.
    patience: Duration,
}

impl Attempts {
    pub(super) const fn new(patience: Duration) -> Self {
        Self { failed: 0, patience }
    }

    /// How long to wait before the next attempt; `None` when there is none left.
    ///
    /// Pauses double and are spread over their upper half, so that replicas which failed together do not come back
    /// together.
    pub(super) fn after_failure(&mut self, retry_after: Option<Duration>) -> Option<Duration> {
        if self.failed >= MAX_RETRIES || retry_after.is_some_and(|asked| asked > self.patience) {
            return None;
        }
        let ceiling = FIRST_PAUSE.saturating_mul(1 << self.failed.min(16)).min(LONGEST_PAUSE);
        self.failed += 1;
        let pause = ceiling.mul_f64(rand::rng().random_range(0.5..=1.0));
        // A provider that names a moment gets a small spread after it, never an attempt before it.
        Some(retry_after.map_or(pause, |asked| asked + pause.min(FIRST_PAUSE)))
    }
}

/// Statuses that mean "not now": overload, and failures of the server or of what stands before it.
pub(super) const fn worth_repeating(status: u16) -> bool {
    matches!(status, 408 | 409 | 429 | 500 | 502 | 503 | 504 | 529)
}

/// `Retry-After`, in seconds or as a date; also the milliseconds some providers send beside it.
pub(super) fn retry_after(headers: &http::HeaderMap, now: jiff::Timestamp) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    if let Some(millis) = text("retry-after-ms").and_then(|value| value.parse::<f64>().ok()) {
        return seconds(millis / 1000.0);
    }
    let value = text("retry-after")?;
    if let Ok(number) = value.parse::<f64>() {
        return seconds(number);
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value).ok()?;
    Some(Duration::try_from(date.duration_since(now)).unwrap_or(Duration::ZERO))
}

fn seconds(number: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue};

    fn headers(name: &'static str, value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), HeaderValue::from_static(value))])
    }

    #[test]
    fn retry_after_is_read_in_every_form_it_comes_in() {
        let now: jiff::Timestamp = "2026-11-18T09:00:00Z".parse().expect("a time");
        let read = |name, value| retry_after(&headers(name, value), now);
        assert_eq!(read("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(read("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(read("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        assert_eq!(read("retry-after", "Wed, 18 Nov 2026 09:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(read("retry-after", "Wed, 18 Nov 2026 08:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(read("retry-after", "-1"), None);
        assert_eq!(read("retry-after", "soon"), None);
    }

    #[test]
    fn pauses_grow_and_end() {
        let mut attempts = Attempts::new(Duration::from_secs(60));
        let mut ceiling = FIRST_PAUSE;
        for _ in 0..MAX_RETRIES {
            let pause = attempts.after_failure(None).expect("another attempt");
            assert!(pause >= ceiling / 2 && pause <= ceiling, "{pause:?} of {ceiling:?}");
            ceiling *= 2;
        }
        assert_eq!(attempts.after_failure(None), None);
    }

    #[test]
    fn a_provider_is_never_asked_before_the_moment_it_names() {
        let asked = Duration::from_secs(5);
        let pause =
            Attempts::new(Duration::from_secs(60)).after_failure(Some(asked)).expect("another attempt");
        assert!(pause >= asked && pause <= asked + FIRST_PAUSE, "{pause:?}");
        assert_eq!(Attempts::new(Duration::from_secs(4)).after_failure(Some(asked)), None);
    }
}
