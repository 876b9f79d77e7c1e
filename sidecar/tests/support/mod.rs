//! Stores to test, and requests to send them.
#![allow(dead_code, reason = "each suite uses its own part")]

pub mod requests;
pub mod stores;

use std::future::Future;
use std::time::{Duration, Instant};

/// Asks again until there is an answer.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}
