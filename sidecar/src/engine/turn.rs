//! One call's part of a conversation, and the step from it to the next action.

use std::sync::Arc;

use crate::state::{Entry, Message, Role, ToolResult, ToolUse, Usage};

/// What the runner must do now.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    AskModel,
    /// These tool calls have no result yet. They are independent of each other.
    RunTools(Vec<Pending>),
    Finish,
    /// The model wanted to go on longer than it may.
    TooManyIterations,
}

/// A tool call without a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Pending {
    pub tool_use: ToolUse,
    /// Which reply of this call asked for it, and its place there: together they name it for ever.
    pub step: usize,
    pub index: usize,
    /// Its intent was journalled: it may have run.
    pub started: bool,
}

/// What a call has been given and what it has done, in order.
#[derive(Debug, Clone, Default)]
pub struct Turn {
    entries: Vec<Entry>,
    given: usize,
    replies: usize,
    results: usize,
    open: Vec<Pending>,
    answered: bool,
    usage: Usage,
}

impl Turn {
    pub fn new(input: Vec<Entry>) -> Self {
        Self { given: input.len(), entries: input, ..Self::default() }
    }

    /// The model has spoken.
    pub fn reply(&mut self, entry: Entry, message: &Message) {
        let step = self.replies;
        let pending = |(index, tool_use): (usize, &ToolUse)| Pending {
            tool_use: tool_use.clone(),
            step,
            index,
            started: false,
        };
        self.open = message.tool_uses().enumerate().map(pending).collect();
        self.answered = self.open.is_empty();
        self.replies += 1;
        let usage = message.usage.unwrap_or_default();
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.usage.input_tokens, usage.input_tokens);
        add(&mut self.usage.output_tokens, usage.output_tokens);
        add(&mut self.usage.cached_tokens, usage.cached_tokens);
        self.entries.push(entry);
    }

    /// A tool is about to run.
    pub fn intend(&mut self, tool_use_id: &str) {
        for pending in &mut self.open {
            pending.started |= pending.tool_use.id == tool_use_id;
        }
    }

    /// A tool has answered, or somebody has answered for it.
    pub fn result(&mut self, entry: Entry, message: &Message) {
        for result in message.tool_results() {
            self.open.retain(|pending| pending.tool_use.id != result.tool_use_id);
            self.results += 1;
        }
        self.entries.push(entry);
    }

    /// A message of somebody else's: what an interrupt wants said.
    pub fn say(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub fn next(&self, max_iterations: u32) -> Next {
        if !self.open.is_empty() {
            return Next::RunTools(self.open.clone());
        }
        if self.answered {
            return Next::Finish;
        }
        if self.replies >= max_iterations as usize {
            return Next::TooManyIterations;
        }
        Next::AskModel
    }

    /// Answers every open tool call with the same error, so that the transcript is valid wherever the call ends.
    pub fn close(&self, why: impl Fn(&Pending) -> &'static str) -> Vec<Message> {
        let answer =
            |pending: &Pending| Message::tool(ToolResult::new(&pending.tool_use, true, why(pending)));
        self.open.iter().map(answer).collect()
    }

    /// Input and all that came after, as a model is to see it.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// What came after the input.
    pub fn added(&self) -> &[Entry] {
        &self.entries[self.given..]
    }

    pub fn open(&self) -> &[Pending] {
        &self.open
    }

    pub fn replies(&self) -> usize {
        self.replies
    }

    pub fn results(&self) -> usize {
        self.results
    }

    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// The last thing the assistant said.
    pub fn last_reply(&self) -> Option<Arc<Message>> {
        self.added()
            .iter()
            .rev()
            .filter_map(|entry| entry.message().ok())
            .find(|message| message.role == Role::Assistant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Block, check_pairing};
    use serde_json::{Map, Value};

    fn asks(ids: &[&str]) -> Message {
        let call = |id: &&str| {
            Block::ToolUse(ToolUse {
                id: (*id).into(),
                name: "f".into(),
                input: Value::Null,
                extra: Map::new(),
            })
        };
        Message::assistant(ids.iter().map(call).collect())
    }

    fn replied(turn: &mut Turn, message: &Message) {
        turn.reply(Entry::new(message.clone()), message);
    }

    fn answered(turn: &mut Turn, index: usize) {
        let message = Message::tool(ToolResult::new(&turn.open()[index].tool_use.clone(), false, "ok"));
        turn.result(Entry::new(message.clone()), &message);
    }

    #[test]
    fn a_plain_answer_takes_one_question() {
        let mut turn = Turn::new(vec![Message::user("hi").into()]);
        assert_eq!(turn.next(20), Next::AskModel);
        replied(&mut turn, &Message::assistant(vec![Block::text("hello")]));
        assert_eq!(turn.next(20), Next::Finish);
    }

    #[test]
    fn tools_run_until_each_has_its_result_and_then_the_model_is_asked_again() {
        let mut turn = Turn::new(vec![Message::user("go").into()]);
        replied(&mut turn, &asks(&["a", "b"]));
        turn.intend("b");
        let Next::RunTools(open) = turn.next(20) else { panic!("tools must run") };
        assert_eq!(
            open.iter().map(|open| (open.index, open.started)).collect::<Vec<_>>(),
            [(0, false), (1, true)]
        );
        answered(&mut turn, 1);
        answered(&mut turn, 0);
        assert_eq!(turn.next(20), Next::AskModel);
        assert_eq!(turn.next(1), Next::TooManyIterations);
    }

    #[test]
    fn closing_leaves_a_valid_transcript_wherever_the_call_ends() {
        let mut turn = Turn::new(vec![Message::user("go").into()]);
        replied(&mut turn, &asks(&["a", "b"]));
        answered(&mut turn, 0);
        let closers = turn.close(|_| "interrupted");
        assert_eq!(closers.len(), 1);
        for message in closers {
            turn.result(Entry::new(message.clone()), &message);
        }
        let messages: Vec<_> = turn.entries().iter().map(|entry| entry.message().expect("ours")).collect();
        assert_eq!(check_pairing(messages.iter().map(AsRef::as_ref)), Ok(()));
    }
}
