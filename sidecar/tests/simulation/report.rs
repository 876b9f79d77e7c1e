//! Many schedules on every core, and what is said about them: per promise "0 of N", and what happened how often.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::plan::Plan;
use super::schedule;
use super::world::{Promise, Tally, Violation};

#[derive(Default)]
pub struct Report {
    schedules: u64,
    tally: Tally,
    broken: Vec<(u64, Violation)>,
    took: Duration,
}

impl Report {
    pub fn of_seeds(first: u64, schedules: u64) -> Self {
        let started = Instant::now();
        let (next, merged) = (AtomicU64::new(first), Mutex::new(Self::default()));
        let work = || {
            let mut own = Self::default();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= first + schedules {
                    break;
                }
                let outcome = schedule::run(Plan::new(seed), false);
                own.schedules += 1;
                own.tally.add(&outcome.tally);
                own.broken.extend(outcome.violations.into_iter().map(|violation| (seed, violation)));
            }
            merged.lock().expect("no thread panics with it").add(own);
        };
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..cores {
                let thread = std::thread::Builder::new().name("schedules".into());
                thread.spawn_scoped(scope, work).expect("a thread");
            }
        });
        let mut report = merged.into_inner().expect("no thread panics with it");
        report.broken.sort_by_key(|(seed, _)| *seed);
        report.took = started.elapsed();
        report
    }

    fn add(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.tally.add(&other.tally);
        self.broken.extend(other.broken);
    }

    /// No empty pass: so many of each in a thousand schedules, less than half of what is usual.
    pub fn assert_enough(&self) {
        let per_thousand = |n: u64| n * 1_000 / self.schedules.max(1);
        for (what, least) in USUAL {
            let seen = per_thousand(self.tally.of(what));
            assert!(seen >= least, "{what}: {seen} in a thousand schedules, and at least {least} are needed");
        }
        for promise in Promise::ALL {
            let judged = per_thousand(self.tally.judged.get(&promise).copied().unwrap_or(0));
            let least = if promise == Promise::Budget { 30 } else { 500 };
            assert!(
                judged >= least,
                "{promise:?} was put to the test {judged} times in a thousand schedules"
            );
        }
    }

    pub fn assert_kept(&self) {
        let Some((seed, first)) = self.broken.first() else { return };
        panic!(
            "{} violations; the first: {:?}: {}\nreplay: HOLDFAST_SIM_SEED={seed} cargo test -p holdfast-sidecar --test simulation -- --nocapture\n{}",
            self.broken.len(),
            first.promise,
            first.detail,
            self.broken
                .iter()
                .take(30)
                .map(|(seed, v)| format!("{seed}: {:?} {}\n", v.promise, v.detail))
                .collect::<String>()
        );
    }
}

/// What must happen, and how often in a thousand schedules at least.
const USUAL: [(&str, u64); 34] = [
    ("calls sent", 8_000),
    ("calls sent again", 5_000),
    ("calls abandoned", 400),
    ("clients disconnected", 2_000),
    ("clients let go", 30),
    ("connections broken", 600),
    ("finished calls sent again", 250),
    ("failed calls retried", 80),
    ("twins", 150),
    ("streams resumed", 400),
    ("deltas", 1_000),
    ("gaps", 1),
    ("interrupts", 60),
    ("interrupts too late", 90),
    ("annotations", 30),
    ("clears", 8),
    ("deletes", 30),
    ("redactions", 30),
    ("forks", 30),
    ("kills at a time", 300),
    ("kills before an operation", 100),
    ("kills after an operation", 100),
    ("kills by a poisonous message", 50),
    ("pauses past the lease", 90),
    ("drains", 120),
    ("outages", 60),
    ("partitions", 60),
    ("lost replies", 350),
    ("undelivered requests", 1_500),
    ("announcements dropped", 5_000),
    ("takeovers after a death", 300),
    ("takeovers after a suspension", 15),
    ("unsafe tool runs", 900),
    ("sessions outlasted", 30),
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} schedules in {:.1} s", self.schedules, self.took.as_secs_f32())?;
        for promise in Promise::ALL {
            let broken = self.broken.iter().filter(|(_, violation)| violation.promise == promise).count();
            let judged = self.tally.judged.get(&promise).copied().unwrap_or(0);
            writeln!(f, "  {:<9} {broken} of {judged:<9} {}", format!("{promise:?}"), promise.says())?;
        }
        for (what, n) in &self.tally.happened {
            writeln!(f, "  {n:>9} {what}")?;
        }
        Ok(())
    }
}
