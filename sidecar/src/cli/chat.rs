//! `chat`.

use clap::Args;

use super::Failure;

#[derive(Debug, Args)]
pub struct ChatArguments {
    /// Where the agent listens.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    url: String,
}

pub fn chat(arguments: ChatArguments) -> Result<(), Failure> {
    Err(Failure::Failed(arguments.url))
}
