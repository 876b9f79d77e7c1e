//! Where this replica stands between its start and its end.

use tokio_util::sync::CancellationToken;

/// Serving, then no new calls, then no work. Never back.
#[derive(Debug, Default)]
pub struct Phase {
    closed: CancellationToken,
    stopped: CancellationToken,
    gone: CancellationToken,
}

impl Phase {
    /// New calls are taken, and work nobody has is looked for.
    pub fn accepting(&self) -> bool {
        !self.closed.is_cancelled()
    }

    /// Running calls must come to a safe point and be given back.
    pub fn stopping(&self) -> bool {
        self.stopped.is_cancelled()
    }

    /// Nothing new starts from now on, and what runs is given back.
    pub fn enter_stop(&self) {
        self.closed.cancel();
        self.stopped.cancel();
    }

    pub async fn stop(&self) {
        self.stopped.cancelled().await;
    }

    /// Clients that still wait are let go.
    pub fn enter_end(&self) {
        self.enter_stop();
        self.gone.cancel();
    }

    pub async fn end(&self) {
        self.gone.cancelled().await;
    }
}
