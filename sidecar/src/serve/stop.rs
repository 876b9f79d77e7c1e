//! The drain, step by step. Each step has a deadline, and a second request to stop ends it.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use super::open::OpenRequests;
use crate::config::StopTimes;
use crate::mutants::{self, Mutant};
use crate::session::Sessions;
use crate::telemetry::Metrics;

/// No request open for this long means that nobody is left: a client that was just sending one is still heard.
const QUIET: Duration = Duration::from_millis(200);
/// Between closing the idle connections and refusing new calls.
const LAST_WORD: Duration = Duration::from_millis(100);
/// How long clients that were let go have to hear so.
const GOODBYE: Duration = Duration::from_secs(2);
/// How long connections have to close.
pub const CLOSE: Duration = Duration::from_secs(1);
/// How long the last spans may take on their way. With the two before it this is less than the 5 s that the grace period
/// leaves after everything else.
pub const LAST_SPANS: Duration = Duration::from_secs(1);

/// Why a replica stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// SIGTERM: another replica may take over; clients are kept until they have their answers.
    Terminate,
    /// Ctrl-C: somebody waits at the keyboard. Calls are given back at once.
    Interrupt,
}

/// Requests to stop, as they come.
pub struct Orders {
    stops: mpsc::Receiver<Stop>,
    /// The process is to end, not only to take no more calls.
    pub exit: bool,
}

impl Orders {
    pub fn new(stops: mpsc::Receiver<Stop>) -> Self {
        Self { stops, exit: false }
    }

    /// The first request to stop. Nobody left to make one is one too.
    pub async fn first(&mut self) -> Stop {
        let stop = self.stops.recv().await.unwrap_or(Stop::Terminate);
        self.exit = true;
        stop
    }

    /// Returns when somebody who has asked for the end before asks again.
    async fn hurried(&mut self) {
        while self.stops.recv().await.is_some() {
            if std::mem::replace(&mut self.exit, true) {
                return;
            }
        }
        std::future::pending::<()>().await;
    }
}

pub struct Drain<'a> {
    pub sessions: &'a Sessions,
    pub open: &'a OpenRequests,
    pub metrics: &'a Metrics,
    pub times: StopTimes,
}

/// How a step of the drain came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Over {
    Done,
    TimeUp,
    Hurried,
}

impl Drain<'_> {
    /// Returns when nothing runs here and nobody waits, or when its time is over.
    pub async fn run(&self, how: Stop, orders: &mut Orders) {
        let started = Instant::now();
        let StopTimes { drain, tools, save, relay } = self.times;
        tracing::info!(?how, running = self.sessions.running(), open = self.open.count(), "draining");
        self.open.start_draining();
        self.metrics.drain(Duration::ZERO);

        if how == Stop::Terminate {
            let over = before(started + drain, orders, self.nobody_left()).await;
            self.open.end_idle();
            if over == Over::TimeUp {
                // Whoever was just sending is still heard.
                sleep(LAST_WORD).await;
            }
            tracing::info!(?over, running = self.sessions.running(), "nothing new starts from now on");
        }

        // Tools end, calls are given back. Past its time it goes on instead of relaying: what is unsaved comes first.
        let saving = started + drain + tools + save;
        let given_back = self.sessions.stop();
        tokio::pin!(given_back);
        let over = before(saving, orders, given_back.as_mut()).await;
        let last = started + self.times.in_all();
        let over = match over {
            Over::TimeUp => {
                tracing::warn!(running = self.sessions.running(), "calls are not saved yet; still trying");
                before(last, orders, given_back.as_mut()).await
            }
            over => over,
        };
        tracing::info!(?over, running = self.sessions.running(), "calls were given back");

        let relays = !relay.is_zero() && !mutants::is(Mutant::NoRelay);
        if how == Stop::Terminate && over == Over::Done && relays {
            let over = before(last, orders, self.open.quiet(QUIET)).await;
            tracing::info!(?over, open = self.open.count(), "relaying is over");
        }
        self.metrics.drain(started.elapsed());
        self.sessions.let_go();
        let over = before(Instant::now() + GOODBYE, orders, self.open.quiet(Duration::ZERO)).await;
        self.metrics.drain(started.elapsed());
        tracing::info!(?over, open = self.open.count(), took = ?started.elapsed(), "drained");
    }

    async fn nobody_left(&self) {
        loop {
            self.open.quiet(QUIET).await;
            if self.sessions.running() == 0 {
                return;
            }
            sleep(QUIET / 10).await;
        }
    }
}

async fn before(deadline: Instant, orders: &mut Orders, step: impl Future<Output = ()>) -> Over {
    tokio::select! {
        done = timeout_at(deadline, step) => if done.is_ok() { Over::Done } else { Over::TimeUp },
        () = orders.hurried() => Over::Hurried,
    }
}
