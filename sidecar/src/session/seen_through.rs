//! Work that comes to its end whoever stops waiting for it.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

/// A future that is driven by whoever awaits it, and by a task of its own once nobody does: a task for each, from the
/// beginning, would cost every call two changes of tasks for the sake of few.
#[must_use]
pub struct SeenThrough<T: Send + 'static>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T: Send + 'static> SeenThrough<T> {
    pub fn new(tracker: &TaskTracker, work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(Some(Box::pin(tracker.track_future(work))))
    }
}

impl<T: Send + 'static> Future for SeenThrough<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let Some(work) = self.0.as_mut() else { return Poll::Pending };
        let done = work.as_mut().poll(context);
        if done.is_ready() {
            self.0 = None;
        }
        done
    }
}

impl<T: Send + 'static> Drop for SeenThrough<T> {
    fn drop(&mut self) {
        // Where the runtime itself has ended there is nobody to go on.
        if let Some(work) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            drop(runtime.spawn(work));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::sync::oneshot;
    use tokio::time::{sleep, timeout};

    #[tokio::test(start_paused = true)]
    async fn what_nobody_waits_for_any_more_is_done_all_the_same() {
        let tracker = TaskTracker::new();
        let (done, heard) = oneshot::channel();
        let work = SeenThrough::new(&tracker, async move {
            sleep(Duration::from_secs(2)).await;
            let _ = done.send(());
        });
        assert!(timeout(Duration::from_secs(1), work).await.is_err(), "its waiter has gone");
        tracker.close();
        tracker.wait().await;
        assert_eq!(heard.await, Ok(()), "and whoever waits for all of them waits for this one too");
    }
}
