//! A script that the user's own words write.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::{Answer, Ask, Ending, Reply, Seen};

/// What may stand after `#` in what the user says.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Orders {
    /// Tools to call, all at once, before anything is answered.
    tools: Vec<OrderedTool>,
    /// So many rounds of them, one after the other.
    rounds: Option<usize>,
    say: Option<String>,
    words: Option<usize>,
    delay_ms: u64,
    token_delay_ms: u64,
    /// Ends as for want of room.
    cut_short: bool,
    /// Says that this one answered, whichever was asked.
    model: Option<String>,
    fail: Option<Failure>,
    cut_after: Option<usize>,
    hang_up: bool,
    /// How often the same question is cut or hung up on before it is answered. Absent: always.
    times: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct OrderedTool {
    name: String,
    #[serde(default)]
    input: Value,
}

#[derive(Debug, Deserialize)]
struct Failure {
    status: u16,
    times: Option<u32>,
}

/// Does what the last user message orders; without orders it repeats the message and counts the turns it was sent.
pub fn obey(seen: &Seen) -> Reply {
    let heard = seen.last_user_text();
    let orders = match heard.split_once('#').map(|(_, orders)| orders) {
        Some(text) if text.starts_with('{') => {
            let mut values = serde_json::Deserializer::from_str(text).into_iter::<Orders>();
            match values.next() {
                Some(Ok(orders)) => orders,
                other => return Reply::refuse(400, &format!("these orders are not understood: {other:?}")),
            }
        }
        _ => Orders::default(),
    };
    let still = |times: Option<u32>| times.is_none_or(|times| seen.repeats < times);
    if let Some(failure) = orders.fail.as_ref().filter(|failure| still(failure.times)) {
        return Reply::refuse(failure.status, "as ordered");
    }
    if orders.hang_up && still(orders.times) {
        return Reply::HangUp;
    }
    let results = seen.fresh_results();
    let (delay, token_delay) =
        (Duration::from_millis(orders.delay_ms), Duration::from_millis(orders.token_delay_ms));
    let mut answer = Answer { delay, token_delay, ..Answer::default() };
    let rounds = results.len().checked_div(orders.tools.len()).unwrap_or(0);
    if !orders.tools.is_empty() && rounds < orders.rounds.unwrap_or(1) {
        answer.tools = orders.tools.iter().map(ordered).collect();
        return Reply::Say(answer);
    }
    let said: Vec<&str> = results.iter().map(|result| result.text.as_str()).collect();
    answer.text = text(&orders, heard, seen, &said);
    answer.cut_short = orders.cut_short;
    answer.model = orders.model;
    if let Some(words) = orders.cut_after.filter(|_| still(orders.times)) {
        answer.ending = Ending::CutAfter(words);
    }
    Reply::Say(answer)
}

fn ordered(tool: &OrderedTool) -> Ask {
    Ask { id: None, name: tool.name.clone(), arguments: tool.input.to_string() }
}

fn text(orders: &Orders, heard: &str, seen: &Seen, results: &[&str]) -> String {
    match (&orders.say, orders.words) {
        (Some(text), _) => text.clone(),
        (None, Some(words)) => (0..words).map(|n| format!("w{n} ")).collect::<String>().trim_end().to_owned(),
        (None, None) if !results.is_empty() => format!("The tools said: {}", results.join("; ")),
        (None, None) => {
            let turns =
                seen.transcript.iter().filter(|turn| turn.role == "user" && turn.tool_results.is_empty());
            format!("You said: {heard} (turn {})", turns.count())
        }
    }
}
