//! The operator: from an Agent manifest to replicas wired to their store, and a status that tells the truth.
//!
//! ```text
//! controller ──▶ reconcile = dereference → validate → build → apply → status
//! live, rollout           what the watches have told
//! store_check             what a Redis says of itself
//! leader, server          one process at a time; probes and metrics
//! ```
//! Knows Kubernetes and the Agent type; never a session.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod apply;
mod build;
mod cli;
mod conditions;
mod context;
mod controller;
mod dereference;
mod error;
mod leader;
mod live;
mod metrics;
mod names;
mod reconcile;
mod references;
mod rollout;
mod run;
mod server;
mod status;
mod store_check;
mod validate;

use clap::Parser as _;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli::Command::Run(args) = cli::Cli::parse().command;
    run::log(args.log_format);
    run::run(args).await
}
