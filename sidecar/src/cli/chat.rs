//! `chat`: a conversation in the terminal, or one line after another from a pipe. It only knows the HTTP interface, and
//! goes on with an answer wherever it is continued.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use bytes::Bytes;
use clap::Args;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::client::proxy::matcher::Matcher;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::Failure;
use super::transcript::Screen;
use crate::api::encode;
use crate::outbound::{Events, Options, Outbound, OutboundError, Spliced, read_bounded};

/// How long an answer that has stopped is looked for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries to reach the agent again.
const PAUSE: Duration = Duration::from_millis(500);
const MAX_EVENT: usize = 64 << 20;
const MAX_PROBLEM: usize = 1 << 20;

#[derive(Debug, Args)]
pub struct ChatArguments {
    /// Where the agent listens.
    #[arg(long, env = "HOLDFAST_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// The conversation to go on with.
    #[arg(long, default_value = "default")]
    session: String,
    /// Whose conversation it is. Default: nobody's in particular.
    #[arg(long)]
    user: Option<String>,
    /// The agent's token, where it asks for one.
    #[arg(long, env = "HOLDFAST_TOKEN", hide_env_values = true)]
    token: Option<String>,
}

pub fn chat(arguments: ChatArguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("no thread can be started: {error}")))?;
    runtime.block_on(async {
        let chat = Chat::new(arguments)?;
        let prompt = std::io::stdin().is_terminal();
        loop {
            if prompt {
                print!("> ");
                let _ = std::io::stdout().flush();
            }
            let mut line = String::new();
            match std::io::stdin().lock().read_line(&mut line) {
                Ok(0) => return Ok(()),
                Ok(_) if line.trim().is_empty() => {}
                Ok(_) => chat.say(line.trim_end_matches(['\n', '\r'])).await?,
                Err(error) => return Err(Failure::Failed(format!("the input cannot be read: {error}"))),
            }
        }
    })
}

struct Chat {
    client: Outbound,
    url: String,
    calls: String,
    token: Option<String>,
}

/// What came of following an answer for a while.
enum Followed {
    Ended,
    /// The connection or the replica went away; the answer goes on elsewhere.
    Cut,
}

impl Chat {
    fn new(arguments: ChatArguments) -> Result<Self, Failure> {
        let url = arguments.url.trim_end_matches('/').to_owned();
        let session = encode(&arguments.session);
        let calls = match &arguments.user {
            Some(user) => format!("{url}/v1/users/{}/sessions/{session}/calls", encode(user)),
            None => format!("{url}/v1/sessions/{session}/calls"),
        };
        let wrong = || Failure::Wrong(format!("--url {url:?} is no address; write http://host:port"));
        let uri: Uri = calls.parse().map_err(|_| wrong())?;
        let host = uri.host().ok_or_else(wrong)?;
        let mut options = Options::from_env();
        if matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
            options.proxies = Matcher::builder().build();
        }
        let client = Outbound::new(&uri, options).map_err(|error| Failure::Failed(error.to_string()))?;
        Ok(Self { client, url, calls, token: arguments.token })
    }

    /// One message, and its answer to the end: over as many connections as it takes, as one call.
    async fn say(&self, text: &str) -> Result<(), Failure> {
        let call = format!("chat-{:032x}", rand::random::<u128>());
        let mut screen = Screen::default();
        let mut last_id = Bytes::new();
        let mut lost_since: Option<Instant> = None;
        loop {
            let pause = match self.ask(&call, text, &last_id).await {
                Ok(response) if response.status() == StatusCode::OK => {
                    let mut events = Events::new(response.into_body(), MAX_EVENT);
                    let before = last_id.clone();
                    let followed = follow(&mut events, &mut screen).await;
                    if !events.last_id().is_empty() {
                        last_id = events.last_id().clone();
                    }
                    if let Followed::Ended = followed {
                        return Ok(());
                    }
                    if last_id != before {
                        lost_since = None;
                    }
                    PAUSE
                }
                Ok(response) => match later(response).await {
                    Ok(pause) => pause,
                    Err(refusal) => {
                        screen.notice(&refusal);
                        return Ok(());
                    }
                },
                Err(error) if last_id.is_empty() && lost_since.is_none() => {
                    return Err(Failure::Failed(format!(
                        "nobody answers at {}: {error}; start an agent with: holdfast-sidecar run examples/hello.yaml",
                        self.url
                    )));
                }
                Err(_) => PAUSE,
            };
            let lost_since = *lost_since.get_or_insert_with(Instant::now);
            if lost_since.elapsed() > PATIENCE {
                let detail =
                    format!("the answer to call {call} was lost sight of; it is in the session's history");
                return Err(Failure::Failed(detail));
            }
            sleep(pause).await;
        }
    }

    /// Starts the call, or joins it after the last event seen.
    async fn ask(
        &self,
        call: &str,
        text: &str,
        last_id: &Bytes,
    ) -> Result<Response<Incoming>, OutboundError> {
        let request = Request::builder().header(ACCEPT, "text/event-stream");
        let request = match &self.token {
            Some(token) => request.header(AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        };
        let request = if last_id.is_empty() {
            let body = json!({"input": text, "stream": true, "callId": call}).to_string();
            let request = request.method(Method::POST).uri(&self.calls);
            request.header(CONTENT_TYPE, "application/json").body(Spliced::new(vec![body.into()]))
        } else {
            let request = request.uri(format!("{}/{call}/events", self.calls));
            request.header("last-event-id", last_id.as_ref()).body(Spliced::new(Vec::new()))
        };
        self.client.send(request.map_err(|error| OutboundError::Broken(error.to_string()))?).await
    }
}

async fn follow(events: &mut Events, screen: &mut Screen) -> Followed {
    loop {
        match events.next().await {
            Ok(Some(event)) => {
                if screen.show(&event.name, &event.data) {
                    return Followed::Ended;
                }
            }
            Ok(None) | Err(_) => return Followed::Cut,
        }
    }
}

/// When to ask again, or why not to.
async fn later(response: Response<Incoming>) -> Result<Duration, String> {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    let status = response.status();
    let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    if let Some(seconds) = seconds {
        return Ok(Duration::from_secs(seconds));
    }
    let body = read_bounded(response.into_body(), MAX_PROBLEM).await.unwrap_or_default();
    let problem = serde_json::from_slice::<Problem>(&body);
    Err(problem.map_or_else(|_| format!("it answered with status {status}"), |problem| problem.detail))
}
