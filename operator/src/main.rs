//! The operator: from an Agent manifest to replicas wired to their store, and a status that tells the truth.
//!
//! ```text
//! controller ──▶ queue ──▶ reconcile = dereference → validate → build → apply → status
//! seen, agents, live,
//! rollout                 what the watches have told
//! optional                kinds that not every cluster has
//! stores, store_check     which stores there are, and what each says of itself
//! leader, server, traces  one process at a time; probes and metrics; spans
//! check                   whether operators work, for `helm test`
//! ```
//! Knows Kubernetes and the Agent type; never a session.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod agents;
mod apply;
mod build;
mod check;
mod cli;
mod conditions;
mod context;
mod controller;
mod dereference;
mod error;
mod events;
mod leader;
mod live;
mod lookup;
mod metrics;
mod names;
mod optional;
mod queue;
mod reconcile;
mod references;
mod rollout;
mod run;
mod seen;
mod server;
mod status;
mod store_check;
mod stores;
mod traces;
mod validate;
mod word;

use std::time::Duration;

use clap::Parser as _;

// One thread: the work is requests and their answers, and handing each from thread to thread cost more than it.
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match cli::Cli::parse().command {
        cli::Command::Run(args) => {
            run::log(args.log_format);
            run::run(args).await
        }
        cli::Command::Check(args) => {
            run::log(cli::LogFormat::Text);
            let operators = check::check(&args.addresses, Duration::from_secs(args.within)).await?;
            println!("{operators} operators are ready, and one leads");
            Ok(())
        }
    }
}
