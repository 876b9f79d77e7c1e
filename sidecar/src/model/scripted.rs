//! The model that needs no network: it answers from the manifest's script, for demos and tests.
//!
//! What it says depends on the transcript alone, so a replica that takes a call over says the same. Only how often a
//! scripted failure has been played is counted in the process: after a takeover it may be played again, and what comes
//! after it is the same answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use holdfast_crds::{Script, ScriptedFailure, ScriptedReply};
use serde_json::{Map, Value};
use tokio::time::sleep;

use super::retry::{Attempts, worth_repeating};
use super::{Ask, Model, ModelError, ModelReply, Piece};
use crate::state::{Block, Entry, Message, Role, ToolUse, Usage};

/// How many places of how many conversations it remembers having failed at.
const MAX_FAILURES_REMEMBERED: usize = 10_000;

pub struct Scripted {
    script: Script,
    patience: Duration,
    /// By reply and by the last message of the transcript: how often the failure there has been played.
    played: Mutex<HashMap<(usize, String), u32>>,
}

impl Scripted {
    pub fn new(script: Script, patience: Duration) -> Self {
        Self { script, patience, played: Mutex::default() }
    }

    /// Fails as long as the script has it fail, and asks itself again as a provider's client would.
    async fn fail_first(
        &self,
        index: usize,
        failure: &ScriptedFailure,
        place: &Transcript,
    ) -> Result<(), ModelError> {
        let mut attempts = Attempts::new(self.patience);
        while self.fails_once_more(index, failure, place) {
            let message = failure.message.as_deref().unwrap_or("a scripted failure");
            let error = ModelError::of_status(failure.status, message, None);
            let again = worth_repeating(failure.status).then(|| attempts.after_failure(None)).flatten();
            match again {
                Some(pause) => sleep(pause).await,
                None => return Err(error),
            }
        }
        Ok(())
    }

    fn fails_once_more(&self, index: usize, failure: &ScriptedFailure, place: &Transcript) -> bool {
        let Some(times) = failure.times else { return true };
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        if played.len() >= MAX_FAILURES_REMEMBERED {
            played.clear();
        }
        let count = played.entry((index, place.last_id.clone())).or_default();
        let fails = *count < times;
        *count += u32::from(fails);
        fails
    }
}

#[async_trait]
impl Model for Scripted {
    async fn reply(&self, ask: Ask<'_>) -> Result<ModelReply, ModelError> {
        let place = Transcript::read(&ask)?;
        let echo = ScriptedReply { text: Some(place.echo()), ..ScriptedReply::default() };
        let reply = match choose(&self.script.replies, &place) {
            Choice::Scripted(index) => {
                let reply = &self.script.replies[index];
                if let Some(failure) = &reply.failure {
                    self.fail_first(index, failure, &place).await?;
                }
                reply
            }
            Choice::Echo => &echo,
        };
        sleep(reply.delay.unwrap_or_default().get()).await;
        let text = reply.text.as_deref().unwrap_or_default();
        let mut tokens = 0;
        for token in text.split_inclusive(char::is_whitespace) {
            if tokens > 0 {
                sleep(reply.token_delay.unwrap_or_default().get()).await;
            }
            tokens += 1;
            if let Some(pieces) = &ask.pieces {
                // Nobody listening is no reason to stop: the answer is still wanted.
                let _ = pieces.send(Piece::Text(token.to_owned()));
            }
        }
        let mut content = Vec::new();
        if !text.is_empty() {
            content.push(Block::text(text));
        }
        for (nth, call) in reply.tool_calls.iter().enumerate() {
            tokens += 1;
            content.push(Block::ToolUse(ToolUse {
                // Of the message it answers, which has an id of its own in the world: the same after a takeover.
                id: format!("call_{}_{nth}", place.last_id),
                name: call.name.clone(),
                input: Value::Object(call.input.clone()),
                extra: Map::new(),
            }));
        }
        let usage = Usage { input_tokens: place.tokens, output_tokens: tokens, cached_tokens: 0 };
        Ok(ModelReply::new(content, usage))
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Scripted(usize),
    Echo,
}

/// The replies that match the last user message follow each other, one for each time the model is asked since; then
/// the tools' results are repeated. Where none matches, the replies without a match take turns.
fn choose(replies: &[ScriptedReply], place: &Transcript) -> Choice {
    let heard = place.last_user_text.as_str();
    let first = replies.iter().filter_map(|reply| reply.matches.as_deref()).find(|text| heard.contains(text));
    if let Some(text) = first {
        let mut matching =
            replies.iter().enumerate().filter(|(_, reply)| reply.matches.as_deref() == Some(text));
        return match matching.nth(place.replies_since_user) {
            Some((index, _)) => Choice::Scripted(index),
            None => Choice::Echo,
        };
    }
    let unconditional: Vec<usize> =
        (0..replies.len()).filter(|&index| replies[index].matches.is_none()).collect();
    match unconditional.len() {
        0 => Choice::Echo,
        len => Choice::Scripted(unconditional[place.replies % len]),
    }
}

/// What the script looks at.
#[derive(Debug, Default)]
struct Transcript {
    last_user_text: String,
    last_id: String,
    /// The results of the tools called since the last user message.
    results: Vec<String>,
    earlier_turns: usize,
    replies: usize,
    replies_since_user: usize,
    tokens: u64,
}

impl Transcript {
    fn read(ask: &Ask<'_>) -> Result<Self, ModelError> {
        let mut read = Self::default();
        let mut users = 0usize;
        for entry in ask.transcript() {
            let message = parsed(entry)?;
            read.tokens += entry.raw().len() as u64 / 4;
            match message.role {
                Role::User => {
                    users += 1;
                    read.replies_since_user = 0;
                    read.results.clear();
                    read.last_user_text = message.text();
                }
                Role::Assistant => {
                    read.replies += 1;
                    read.replies_since_user += 1;
                    read.results.clear();
                }
                Role::Tool => read.results.extend(message.tool_results().map(|result| result.text())),
                Role::System => {}
            }
            read.last_id.clone_from(&message.id);
        }
        read.earlier_turns = users.saturating_sub(1);
        Ok(read)
    }

    fn echo(&self) -> String {
        if !self.results.is_empty() {
            return format!("The tools said: {}", self.results.join("; "));
        }
        let remembers = match self.earlier_turns {
            0 => "This is the first thing I remember.".to_owned(),
            1 => "I remember 1 earlier turn.".to_owned(),
            turns => format!("I remember {turns} earlier turns."),
        };
        format!("You said: {}. {remembers}", self.last_user_text)
    }
}

fn parsed(entry: &Entry) -> Result<Arc<Message>, ModelError> {
    entry.message().map_err(|error| super::unreadable(&error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CallContext;
    use crate::model::Rendering;
    use crate::state::ToolResult;
    use serde_json::json;
    use std::sync::Arc;
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    fn script(replies: &Value) -> Scripted {
        let script = serde_json::from_value(json!({ "replies": replies })).expect("a script");
        Scripted::new(script, Duration::from_secs(120))
    }

    async fn ask(model: &Scripted, transcript: &[Message]) -> Result<ModelReply, ModelError> {
        let history: Vec<Entry> = transcript.iter().cloned().map(Entry::new).collect();
        let context = Arc::new(CallContext::default());
        let ask = Ask {
            system: None,
            history: &history,
            rendering: &Rendering::default(),
            turn: &[],
            tools: &[],
            pieces: None,
            context: &context,
        };
        model.reply(ask).await
    }

    fn text(reply: &ModelReply) -> String {
        reply.content.iter().filter_map(Block::as_text).collect()
    }

    fn call(reply: &ModelReply) -> ToolUse {
        match reply.content.last() {
            Some(Block::ToolUse(call)) => call.clone(),
            other => panic!("no tool call: {other:?}"),
        }
    }

    #[tokio::test]
    async fn without_a_script_it_repeats_what_it_heard_and_counts_turns() {
        let model = script(&json!([]));
        let hello = Message::user("hello");
        let reply = ask(&model, std::slice::from_ref(&hello)).await.expect("a reply");
        assert_eq!(text(&reply), "You said: hello. This is the first thing I remember.");
        let history = [hello, Message::assistant(reply.content), Message::user("again")];
        let reply = ask(&model, &history).await.expect("a reply");
        assert_eq!(text(&reply), "You said: again. I remember 1 earlier turn.");
    }

    #[tokio::test]
    async fn a_match_wins_and_the_others_take_turns() {
        let model = script(&json!([{"text": "one"}, {"match": "weather", "text": "rain"}, {"text": "two"}]));
        let mut history = vec![Message::user("go")];
        for expected in ["one", "two", "one"] {
            let reply = ask(&model, &history).await.expect("a reply");
            assert_eq!(text(&reply), expected);
            history.extend([Message::assistant(reply.content), Message::user("go")]);
        }
        history.push(Message::user("how is the weather?"));
        assert_eq!(text(&ask(&model, &history).await.expect("a reply")), "rain");
    }

    #[tokio::test]
    async fn matching_replies_follow_each_other_within_a_turn_and_end() {
        let model = script(&json!([
            {"match": "refund", "text": "Looking.", "toolCalls": [{"name": "lookup", "input": {"order": 7}}]},
            {"match": "refund", "toolCalls": [{"name": "refund"}]},
        ]));
        let mut history = vec![Message::user("refund order 7")];
        let mut ids = Vec::new();
        for name in ["lookup", "refund"] {
            let reply = ask(&model, &history).await.expect("a reply");
            let again = ask(&model, &history).await.expect("a reply");
            assert_eq!(reply, again, "a takeover hears the same");
            let call = call(&reply);
            assert_eq!(call.name, name);
            ids.push(call.id.clone());
            history.push(Message::assistant(reply.content));
            history.push(Message::tool(ToolResult::new(&call, false, format!("{name} done"))));
        }
        assert_ne!(ids[0], ids[1]);
        let last = ask(&model, &history).await.expect("a reply");
        assert_eq!(text(&last), "The tools said: refund done");
    }

    #[tokio::test(start_paused = true)]
    async fn text_comes_word_by_word_at_its_pace() {
        let model = script(&json!([{"text": "one two three", "delay": "1s", "tokenDelay": "100ms"}]));
        let (pieces, mut heard) = mpsc::unbounded_channel();
        let history = [Entry::new(Message::user("count"))];
        let context = Arc::new(CallContext::default());
        let ask = Ask {
            system: None,
            history: &history,
            rendering: &Rendering::default(),
            turn: &[],
            tools: &[],
            pieces: Some(pieces),
            context: &context,
        };
        let start = Instant::now();
        model.reply(ask).await.expect("a reply");
        assert_eq!(start.elapsed(), Duration::from_millis(1200));
        let mut words = Vec::new();
        while let Some(Piece::Text(word)) = heard.recv().await {
            words.push(word);
        }
        assert_eq!(words, ["one ", "two ", "three"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_tried_again_where_a_provider_s_would_be() {
        let history = [Message::user("go")];
        let twice = script(&json!([{"text": "there", "failure": {"status": 503, "times": 2}}]));
        assert_eq!(text(&ask(&twice, &history).await.expect("the third attempt")), "there");
        let always = script(&json!([{"failure": {"status": 429}}]));
        assert_eq!(ask(&always, &history).await.expect_err("never").kind(), "model-unavailable");
        let refused = script(&json!([{"text": "there", "failure": {"status": 400, "times": 1}}]));
        assert_eq!(ask(&refused, &history).await.expect_err("once").kind(), "model-refused");
        assert_eq!(text(&ask(&refused, &history).await.expect("asked again by a caller")), "there");
        let long = script(&json!([{"failure": {"status": 400, "message": "prompt is too long"}}]));
        assert_eq!(ask(&long, &history).await.expect_err("too long").kind(), "context-too-long");
    }
}
