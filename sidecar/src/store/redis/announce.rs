//! Hints from other replicas: a subscription of its own, for ever tried again. Nothing depends on it.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::sync::broadcast;
use tokio::task::JoinHandle;

use super::keys::parse_slot_name;
use super::link::Link;
use crate::store::contract::Announcement;

const FIRST_DELAY: Duration = Duration::from_millis(100);
const LONGEST_DELAY: Duration = Duration::from_secs(5);

/// Listens until it is dropped.
pub struct Subscriber(JoinHandle<()>);

impl Subscriber {
    pub fn start(
        link: Arc<dyn Link>,
        channel: String,
        announcements: broadcast::Sender<Announcement>,
    ) -> Self {
        Self(tokio::spawn(async move {
            let mut delay = FIRST_DELAY;
            loop {
                match link.subscribe(&channel).await {
                    Ok(mut names) => {
                        delay = FIRST_DELAY;
                        while let Some(name) = names.next().await {
                            // Nobody listening is fine, and so is a name that is none: a hint is all it is.
                            if let Some(announcement) = parse(&name) {
                                let _ = announcements.send(announcement);
                            }
                        }
                    }
                    Err(error) => tracing::debug!(%error, "announcements cannot be heard; waiting is slower"),
                }
                tokio::time::sleep(delay).await;
                delay = (delay * 2).min(LONGEST_DELAY);
            }
        }))
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The name of a slot, and `!` after it where the slot has work and nobody at it.
fn parse(payload: &[u8]) -> Option<Announcement> {
    let name = payload.strip_suffix(b"!").unwrap_or(payload);
    Some(Announcement { slot: parse_slot_name(name)?, orphaned: payload.ends_with(b"!") })
}
