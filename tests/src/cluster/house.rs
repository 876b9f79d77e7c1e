//! Runs the suites of a cluster: one install of the operator for all of them, side by side those that hurt only what is their
//! own, one after the other those that take something away from everybody.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};

use super::{Namespace, install_operator};

/// A suite: its file's name, and what it does in a namespace of its own. What it gives back is printed, in one piece.
#[derive(Clone, Copy)]
pub struct Suite {
    pub name: &'static str,
    pub run: fn(&Namespace) -> Result<String>,
}

/// `suites![rollout_restart, …]`: each module has a `run`.
#[macro_export]
macro_rules! suites {
    ($($module:ident),* $(,)?) => {
        [$($crate::cluster::house::Suite { name: stringify!($module), run: $module::run }),*]
    };
}

/// How many suites run at once: each mostly waits for pods and for its slow model.
const SIDE_BY_SIDE: usize = 3;

/// So many lines of a failure are told again at the end.
const REASON: usize = 12;

pub fn run(alone_first: &[Suite], side_by_side: &[Suite], alone_last: &[Suite]) -> Result<ExitCode> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments = Arguments::from_args();
    let failed = Failed::default();
    if arguments.list {
        let all = [alone_first, side_by_side, alone_last].concat();
        libtest_mimic::run(&arguments, trials(&all, &failed)).exit();
    }
    install_operator()?;
    let mut all_well = true;
    for (suites, threads) in [(alone_first, 1), (side_by_side, SIDE_BY_SIDE), (alone_last, 1)] {
        let arguments = Arguments { test_threads: Some(threads), ..arguments.clone() };
        all_well &= !libtest_mimic::run(&arguments, trials(suites, &failed)).has_failed();
    }
    failed.tell();
    Ok(if all_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The suites that failed, and why: told once more at the end, where nobody has to look for it.
#[derive(Clone, Default)]
struct Failed(Arc<Mutex<Vec<(&'static str, String)>>>);

impl Failed {
    fn note(&self, suite: &'static str, why: &str) {
        // The last lines are the reason; what was counted stands before them.
        let lines: Vec<_> = why.trim_end().lines().collect();
        let why = lines[lines.len().saturating_sub(REASON)..].join("\n    ");
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((suite, why));
    }

    fn tell(&self) {
        let failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (suite, why) in failed.iter() {
            println!("  {suite} failed:\n    {why}");
        }
    }
}

fn trials(suites: &[Suite], failed: &Failed) -> Vec<Trial> {
    let trial = |suite: &Suite| {
        let (Suite { name, run }, failed) = (*suite, failed.clone());
        Trial::test(name, move || {
            let started = std::time::Instant::now();
            let namespace = format!("holdfast-{}", name.replace('_', "-"));
            let report = Namespace::scoped(&namespace, run).inspect_err(|why| failed.note(name, why))?;
            println!("\n{name}, {} s\n{report}", started.elapsed().as_secs());
            Ok(())
        })
    };
    suites.iter().map(trial).collect()
}
