//! Which Agents are to be looked at, and when: each by one task at a time, so many at once, and again later where a
//! look asks for it.

use std::{collections::HashSet, panic::resume_unwind, pin::pin, task::Poll, time::Duration};

use futures::{StreamExt as _, stream};
use kube::runtime::scheduler::{ScheduleRequest, scheduler};
use tokio::{
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::live::Place;

/// Enough to keep the API server busy, few enough to be gentle with it.
const CONCURRENCY: usize = 32;

/// Looks at whatever is woken until told to stop; a look that has begun is finished. A look says when it wants to be
/// repeated, if nothing happens before.
pub async fn run<F>(mut woken: UnboundedReceiver<Place>, look: impl Fn(Place) -> F, stop: CancellationToken)
where
    F: Future<Output = Option<Duration>> + Send + 'static,
{
    let (again, mut later) = unbounded_channel::<ScheduleRequest<Place>>();
    let requests = stream::poll_fn(move |context| {
        if let Poll::Ready(Some(request)) = later.poll_recv(context) {
            return Poll::Ready(Some(request));
        }
        let at_once = |message| ScheduleRequest { message, run_at: Instant::now() };
        woken.poll_recv(context).map(|place| place.map(at_once))
    });
    let mut due = pin!(scheduler(requests));
    let (mut looks, mut looked_at) = (JoinSet::new(), HashSet::new());
    loop {
        let has_room = looked_at.len() < CONCURRENCY;
        let mut next = due.as_mut().hold_unless(|place| !looked_at.contains(place));
        let finished = tokio::select! {
            // Once told to stop nothing more begins, and what is over makes room first.
            biased;
            () = stop.cancelled() => break,
            Some(finished) = looks.join_next() => finished,
            Some(place) = next.next(), if has_room => {
                let look = look(place.clone());
                looked_at.insert(place.clone());
                looks.spawn(async move { (place, look.await) });
                continue;
            }
        };
        let (place, repeat): (Place, Option<Duration>) =
            finished.unwrap_or_else(|died| resume_unwind(died.into_panic()));
        looked_at.remove(&place);
        if let Some(wait) = repeat {
            // The other end is ours.
            let _ = again.send(ScheduleRequest { message: place, run_at: Instant::now() + wait });
        }
    }
    while looks.join_next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::sync::{Semaphore, mpsc::UnboundedSender};

    use super::*;

    /// A queue whose looks are counted, and end one by one as they are let.
    struct Bench {
        wake: UnboundedSender<Place>,
        begun: Arc<Mutex<Vec<Place>>>,
        end: Arc<Semaphore>,
        stop: CancellationToken,
        running: tokio::task::JoinHandle<()>,
    }

    fn start(repeat: Option<Duration>) -> Bench {
        let (wake, woken) = unbounded_channel();
        let (begun, end, stop) =
            (Arc::<Mutex<Vec<Place>>>::default(), Arc::new(Semaphore::new(0)), CancellationToken::new());
        let (told, let_end) = (Arc::clone(&begun), Arc::clone(&end));
        let look = move |place: Place| {
            let let_end = Arc::clone(&let_end);
            told.lock().unwrap().push(place);
            async move {
                let_end.acquire().await.unwrap().forget();
                repeat
            }
        };
        let running = tokio::spawn(run(woken, look, stop.clone()));
        Bench { wake, begun, end, stop, running }
    }

    impl Bench {
        async fn begun(&self) -> usize {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            self.begun.lock().unwrap().len()
        }
    }

    fn place(name: &str) -> Place {
        Place::new("ns", name)
    }

    #[tokio::test(start_paused = true)]
    async fn one_look_at_a_time_and_another_for_what_came_meanwhile() {
        let bench = start(None);
        bench.wake.send(place("a")).unwrap();
        assert_eq!(bench.begun().await, 1);
        (0..5).for_each(|_| bench.wake.send(place("a")).unwrap());
        assert_eq!(bench.begun().await, 1, "it is being looked at");
        bench.end.add_permits(1);
        assert_eq!(bench.begun().await, 2, "once for all five");
        bench.end.add_permits(1);
        assert_eq!(bench.begun().await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_at_once_and_the_others_in_turn() {
        let bench = start(None);
        (0..CONCURRENCY + 3).for_each(|number| bench.wake.send(place(&number.to_string())).unwrap());
        assert_eq!(bench.begun().await, CONCURRENCY);
        bench.end.add_permits(2);
        assert_eq!(bench.begun().await, CONCURRENCY + 2);
    }

    #[tokio::test(start_paused = true)]
    async fn again_when_the_look_says_so_or_sooner_when_woken() {
        let bench = start(Some(Duration::from_secs(60)));
        bench.end.add_permits(100);
        bench.wake.send(place("a")).unwrap();
        assert_eq!(bench.begun().await, 1);
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(bench.begun().await, 1);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(bench.begun().await, 2);
        bench.wake.send(place("a")).unwrap();
        assert_eq!(bench.begun().await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_begun_is_finished_and_nothing_more_begins() {
        let bench = start(None);
        bench.wake.send(place("a")).unwrap();
        assert_eq!(bench.begun().await, 1);
        bench.stop.cancel();
        bench.wake.send(place("b")).unwrap();
        assert_eq!(bench.begun().await, 1);
        assert!(!bench.running.is_finished());
        bench.end.add_permits(1);
        bench.running.await.unwrap();
    }
}
