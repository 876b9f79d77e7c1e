//! The agent in every pod, as a program. See `holdfast-sidecar --help`.

use std::process::ExitCode;

use clap::Parser;
use holdfast_sidecar::cli::{Arguments, Failure};

fn main() -> ExitCode {
    // First of all: two TLS stacks in one process agree on nothing by themselves.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        eprintln!("holdfast-sidecar: another TLS provider was installed before this one");
        return ExitCode::from(1);
    }
    match Arguments::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Failed(why)) => {
            eprintln!("holdfast-sidecar: {why}");
            ExitCode::from(1)
        }
        Err(Failure::Wrong(why)) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
