//! The clocks of the stores that run in this process.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use tokio::time::Instant;

use super::contract::Millis;

/// Where a store reads the time. Clones tell the same time; none ever goes back.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Millis + Send + Sync>);

impl Clock {
    pub fn now(&self) -> Millis {
        (self.0)()
    }

    pub fn by(now: impl Fn() -> Millis + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Goes with tokio's, so that a test with paused time can run years of leases in a moment.
    pub fn tokio() -> Self {
        let (epoch, started) = (wall(), Instant::now());
        Self::by(move || epoch + elapsed(started))
    }

    /// For times that outlive the process. It follows the wall clock forwards; when that is set back, it goes on at its
    /// own pace instead, so that no lease stands still and none is granted in the past.
    pub fn wall() -> Self {
        let anchor = Mutex::new((wall(), Instant::now()));
        Self::by(move || {
            let mut anchor = anchor.lock().unwrap_or_else(PoisonError::into_inner);
            let (wall, steady) = (wall(), anchor.0 + elapsed(anchor.1));
            if wall > steady {
                *anchor = (wall, Instant::now());
            }
            wall.max(steady)
        })
    }
}

fn wall() -> Millis {
    Millis::try_from(Timestamp::now().as_millisecond()).unwrap_or(0)
}

fn elapsed(since: Instant) -> Millis {
    Millis::try_from(since.elapsed().as_millis()).unwrap_or(0)
}
