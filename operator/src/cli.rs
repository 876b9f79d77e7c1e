//! The command line.

use std::net::SocketAddr;

use clap::{Parser, Subcommand, ValueEnum};

#[derive(Debug, Parser)]
#[command(
    name = "holdfast-operator",
    version,
    about = "Turns Agent manifests into replicas wired to their store."
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch Agents and run them.
    Run(Run),
    /// Find out whether operators work: all ready, one of them leading. Ends with an error where they do not.
    Check(Check),
}

#[derive(Debug, clap::Args)]
pub struct Check {
    /// Where they serve probes and metrics: host and port. A name may stand for several.
    #[arg(required = true)]
    pub addresses: Vec<String>,
    /// How long to go on asking, in seconds.
    #[arg(long, default_value_t = 60)]
    pub within: u64,
}

#[derive(Debug, clap::Args)]
pub struct Run {
    /// The agent's image, for Agents that name none.
    #[arg(long, env = "HOLDFAST_SIDECAR_IMAGE", default_value = concat!("holdfast-sidecar:", env!("CARGO_PKG_VERSION")))]
    pub sidecar_image: String,
    /// The image of a managed Redis, for Agents that name none.
    #[arg(long, env = "HOLDFAST_REDIS_IMAGE", default_value = "valkey/valkey:8")]
    pub redis_image: String,
    /// Only look at these namespaces. None: the whole cluster.
    #[arg(long = "watch-namespace", env = "HOLDFAST_WATCH_NAMESPACES", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
    /// Where probes and metrics are served.
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "0.0.0.0:8081")]
    pub listen: SocketAddr,
    /// Work only while holding a lease of this name. Off by default: for one process alone.
    #[arg(long, env = "HOLDFAST_LEASE")]
    pub lease: Option<String>,
    /// The namespace of the lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub lease_namespace: String,
    /// The name this process holds the lease by.
    #[arg(long, env = "POD_NAME", default_value = "holdfast-operator")]
    pub identity: String,
    /// How long one look at one Agent may take before it is given up and tried again, in seconds.
    #[arg(long, env = "HOLDFAST_RECONCILE_TIMEOUT", default_value_t = 60)]
    pub reconcile_timeout: u64,
    /// How logs are written. What is written is decided by RUST_LOG.
    #[arg(long, env = "HOLDFAST_LOG_FORMAT", value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}
