//! The command line: what may be asked of the program, and how it ends.
//!
//! ```text
//! run       serve an Agent manifest            0 stopped as asked, 1 failed, 2 the manifest or the arguments are wrong
//! validate  say everything that is wrong       0 nothing, 2 something
//! chat      talk to a running one              0 the input ended, 1 it could not be reached
//! openapi   print the interface's description
//! ```

mod chat;
mod run;
mod transcript;
mod validate;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

const FIRST_STEPS: &str = "\
First steps:
  holdfast-sidecar run examples/hello.yaml      in one terminal
  holdfast-sidecar chat                         in another";

/// Runs LLM agents that never lose a conversation.
#[derive(Debug, Parser)]
#[command(name = "holdfast-sidecar", bin_name = "holdfast-sidecar", version, arg_required_else_help = true)]
#[command(after_help = FIRST_STEPS)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the agent of a manifest until SIGTERM or Ctrl-C.
    Run(run::RunArguments),
    /// Say everything that is wrong with a manifest, with its line and what to write instead.
    Validate {
        /// The Agent manifest.
        manifest: PathBuf,
    },
    /// Talk to a running agent in the terminal.
    Chat(chat::ChatArguments),
    /// Print the OpenAPI description of the interface.
    Openapi,
}

/// How a command ends when it does not end well.
#[derive(Debug)]
pub enum Failure {
    /// Exit code 1.
    Failed(String),
    /// Exit code 2: what was asked is wrong; the text says what to write instead.
    Wrong(String),
}

impl Arguments {
    pub fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::Run(arguments) => run::run(arguments),
            Command::Validate { manifest } => validate::validate(&manifest),
            Command::Chat(arguments) => chat::chat(arguments),
            Command::Openapi => {
                print!("{}", crate::api::openapi::document());
                Ok(())
            }
        }
    }
}
