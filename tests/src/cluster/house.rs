//! Runs the suites of a cluster: one install of the operator for all of them, side by side those that hurt only what is their
//! own, one after the other those that take something away from everybody.

use std::process::ExitCode;

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

pub fn run(alone_first: &[Suite], side_by_side: &[Suite], alone_last: &[Suite]) -> Result<ExitCode> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let arguments = Arguments::from_args();
    if arguments.list {
        let all = [alone_first, side_by_side, alone_last].concat();
        libtest_mimic::run(&arguments, trials(&all)).exit();
    }
    install_operator()?;
    let mut failed = false;
    for (suites, threads) in [(alone_first, 1), (side_by_side, SIDE_BY_SIDE), (alone_last, 1)] {
        let arguments = Arguments { test_threads: Some(threads), ..arguments.clone() };
        failed |= libtest_mimic::run(&arguments, trials(suites)).has_failed();
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn trials(suites: &[Suite]) -> Vec<Trial> {
    let trial = |suite: &Suite| {
        let Suite { name, run } = *suite;
        Trial::test(name, move || {
            let started = std::time::Instant::now();
            let namespace = format!("holdfast-{}", name.replace('_', "-"));
            let report = Namespace::scoped(&namespace, run)?;
            println!("\n{name}, {} s\n{report}", started.elapsed().as_secs());
            Ok(())
        })
    };
    suites.iter().map(trial).collect()
}
