//! `run`: a manifest, served.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use holdfast_crds::Agent;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::Failure;
use crate::assemble::{Assembled, assemble};
use crate::config::{self, Config};
use crate::secrets::Secrets;
use crate::serve::{self, Listeners, Service, Stop};
use crate::telemetry::{self, LogFormat};

/// Threads that carry calls, however many cores there are.
const MOST_WORKERS: usize = 8;

const ENVIRONMENT: &str = "\
Environment:
  HOLDFAST_STATE_DIR             Where conversations are kept, if the manifest does not say
                                 [default: ~/.local/state/holdfast/<agent>]
  HOLDFAST_SECRETS_DIR           A Secret's key is read from the file <name>/<key> in it, or else from
  HOLDFAST_SECRET_<NAME>_<KEY>   (upper case, every other character _)
  HOLDFAST_LOG, RUST_LOG         What is logged [default: info]
  HOLDFAST_LOG_CONTENT=true      Log what is said, too

It ends with 0 when it was stopped, 1 when it failed, 2 when the manifest or the arguments are wrong.";

#[derive(Debug, Args)]
#[command(after_help = ENVIRONMENT)]
pub struct RunArguments {
    /// The Agent manifest.
    manifest: PathBuf,
    /// Where clients call.
    #[arg(long, env = "HOLDFAST_LISTEN", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: SocketAddr,
    /// Where the platform asks: /livez, /readyz, /metrics, /drain.
    #[arg(long, env = "HOLDFAST_ADMIN_LISTEN", default_value = "127.0.0.1:9090", value_parser = address)]
    admin_listen: SocketAddr,
    /// A name for this process, for people. Default: the host's.
    #[arg(long, env = "HOLDFAST_REPLICA")]
    replica: Option<String>,
    /// How to log.
    #[arg(long, env = "HOLDFAST_LOG_FORMAT", value_enum, default_value_t = LogFormat::Auto)]
    log_format: LogFormat,
}

pub fn run(arguments: RunArguments) -> Result<(), Failure> {
    let agent =
        config::read_manifest(&arguments.manifest).map_err(|error| Failure::Wrong(error.to_string()))?;
    telemetry::start(arguments.log_format);
    let runtime =
        runtime().map_err(|error| Failure::Failed(format!("no threads can be started: {error}")))?;
    let served = runtime.block_on(serve(&agent, arguments));
    // Whatever still hangs on a peer that does not answer has had its time.
    runtime.shutdown_background();
    served
}

/// A call mostly waits, for the store and for the model. `TOKIO_WORKER_THREADS` says otherwise.
fn runtime() -> std::io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        builder.worker_threads(cores.min(MOST_WORKERS));
    }
    builder.enable_all().build()
}

async fn serve(agent: &Agent, arguments: RunArguments) -> Result<(), Failure> {
    let replica = arguments.replica.or_else(host_name).unwrap_or_else(|| "local".to_owned());
    let config = Config::new(agent, &replica);
    let failed = |error: crate::assemble::AssembleError| Failure::Failed(error.to_string());
    let Assembled { sessions, auth, metrics } =
        assemble(agent, &config, &Secrets::from_env()).await.map_err(failed)?;
    let listeners =
        Listeners { clients: bind(arguments.listen).await?, platform: bind(arguments.admin_listen).await? };
    let stops =
        listen_for_signals().map_err(|error| Failure::Failed(format!("no signals can be heard: {error}")))?;

    let address = listeners.clients.local_addr().unwrap_or(arguments.listen);
    let settings = &config.settings;
    tracing::info!(agent = config::name(agent), %address, replica, revision = settings.revision, "serving");
    if !arguments.log_format.is_json() {
        greet(agent, address);
    }
    let service = Service { sessions, auth, metrics, times: config.stop, stalled: serve::STALLED };
    serve::run(service, listeners, stops).await;
    Ok(())
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse()
        .map_err(|_| "write an address and a port, such as 127.0.0.1:8080, or 0.0.0.0:8080 for all addresses")
}

fn host_name() -> Option<String> {
    let named = std::env::var("HOSTNAME").ok().or_else(|| std::fs::read_to_string("/etc/hostname").ok());
    named.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty())
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        Failure::Failed(format!(
            "cannot listen on {address}: {error}; stop what listens there, or choose another with --listen and --admin-listen"
        ))
    })
}

fn listen_for_signals() -> std::io::Result<mpsc::Receiver<Stop>> {
    let (stops, heard) = mpsc::channel(4);
    for (kind, stop) in
        [(SignalKind::terminate(), Stop::Terminate), (SignalKind::interrupt(), Stop::Interrupt)]
    {
        let (mut signals, stops): (Signal, _) = (signal(kind)?, stops.clone());
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                if stops.send(stop).await.is_err() {
                    return;
                }
            }
        });
    }
    Ok(heard)
}

/// For whoever sits before the terminal: what to type next.
fn greet(agent: &Agent, address: SocketAddr) {
    let token = match agent.spec.auth.kind {
        holdfast_crds::AuthType::None => "",
        holdfast_crds::AuthType::Token => " -H \"authorization: Bearer $TOKEN\"",
    };
    let name = config::name(agent);
    let greeting = format!(
        "{name} listens on http://{address}\n\
         Say something to it:\n  \
         curl -s http://{address}/v1/calls{token} -H 'content-type: application/json' -d '{{\"input\":\"hello\"}}'\n\
         or talk to it in another terminal: holdfast-sidecar chat --url http://{address}\n\
         Ctrl-C stops it; the conversation goes on when it is started again.\n"
    );
    // Nobody reading it is no reason not to serve.
    let _ = std::io::stdout().write_all(greeting.as_bytes());
}
