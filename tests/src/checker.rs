//! The judge: reads what the clients were told, what the fakes wrote down and what the sessions hold in the end, and
//! says of every promise how often it was broken. It knows nothing of how the product works.
//!
//! Conversations are told apart by the messages in them: every message a client sends is unique.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde_json::Value;

use crate::load::Told;
use crate::papers;

/// Everything there is to judge by.
#[derive(Default)]
pub struct Evidence {
    pub told: Vec<Told>,
    /// The model's ledger: `asked` records with whole transcripts.
    pub model: Vec<Value>,
    /// The tools' ledger: `executed` records with `tool` and `arguments`.
    pub tools: Vec<Value>,
    /// The final state of each session, by (user, session).
    pub states: BTreeMap<(String, String), Value>,
    /// Tools that must never run twice.
    pub unsafe_tools: BTreeSet<String>,
    /// The files that were ordered, as they are in the end.
    pub files: papers::Found,
}

/// `broken` of `of`, with the first few cases.
#[derive(Debug, Clone, Default)]
pub struct Count {
    pub broken: usize,
    pub of: usize,
    pub cases: Vec<String>,
}

impl Count {
    fn judge(&mut self, kept: bool, case: impl FnOnce() -> String) {
        self.of += 1;
        if !kept {
            self.broken += 1;
            if self.cases.len() < 5 {
                self.cases.push(case());
            }
        }
    }
}

#[derive(Debug, Default)]
pub struct Verdict(pub BTreeMap<&'static str, Count>);

impl Verdict {
    pub fn is_clean(&self) -> bool {
        self.0.values().all(|count| count.broken == 0)
    }

    pub fn count(&mut self, promise: &'static str, kept: bool, case: impl FnOnce() -> String) {
        self.0.entry(promise).or_default().judge(kept, case);
    }

    pub fn broken(&self, promise: &str) -> usize {
        self.0.get(promise).map_or(0, |count| count.broken)
    }

    pub fn of(&self, promise: &str) -> usize {
        self.0.get(promise).map_or(0, |count| count.of)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (promise, count) in &self.0 {
            writeln!(f, "  {promise:<52} {:>5} of {}", count.broken, count.of)?;
            for case in &count.cases {
                writeln!(f, "      {case}")?;
            }
        }
        Ok(())
    }
}

pub const LOST: &str = "I1 messages accepted and not in the history";
pub const UNFINISHED: &str = "calls whose end no client could get";
pub const NOT_KEPT: &str = "I2 completed calls not in the history";
pub const TWICE: &str = "I3 turns that appear twice";
pub const ORDER: &str = "I4 sessions out of order";
pub const PREFIX: &str = "I5 transcripts that are no prefix of the history";
pub const VERSIONS: &str = "I5 sessions whose version is not their calls";
pub const UNSAFE_TWICE: &str = "I6 unsafe tool calls run twice";
pub const UNPAIRED: &str = "I7 transcripts with an unpaired tool call";
pub const LEAKED: &str = "I8 transcripts with another session's message";
pub const STREAMED: &str = "streams whose text is not the answer's";

pub fn judge(evidence: &Evidence) -> Verdict {
    let mut verdict = Verdict::default();
    let histories: BTreeMap<_, _> =
        evidence.states.iter().map(|(who, state)| (who, History::of(state))).collect();
    let owner: HashMap<&str, (&str, &str)> = evidence
        .told
        .iter()
        .map(|told| (told.said.as_str(), (told.user.as_str(), told.session.as_str())))
        .collect();
    judge_calls(evidence, &histories, &mut verdict);
    judge_sessions(evidence, &histories, &mut verdict);
    judge_transcripts(evidence, &histories, &owner, &mut verdict);
    judge_tools(evidence, &mut verdict);
    papers::judge(&evidence.told, &evidence.files, &mut verdict);
    verdict
}

/// A final history, reduced to what is judged.
struct History {
    /// What users said, in order.
    said: Vec<String>,
    /// Ids of all messages.
    ids: BTreeSet<String>,
    version: u64,
}

impl History {
    fn of(state: &Value) -> Self {
        let messages = state["context"].as_array().cloned().unwrap_or_default();
        let said = messages.iter().filter(|message| message["role"] == "user").map(text).collect();
        let ids = messages.iter().filter_map(|message| message["id"].as_str()).map(str::to_owned).collect();
        Self { said, ids, version: state["version"].as_u64().unwrap_or(0) }
    }
}

fn text(message: &Value) -> String {
    let blocks = message["content"].as_array().cloned().unwrap_or_default();
    blocks.iter().filter_map(|block| block["text"].as_str()).collect()
}

type Histories<'a> = BTreeMap<&'a (String, String), History>;

fn judge_calls(evidence: &Evidence, histories: &Histories<'_>, verdict: &mut Verdict) {
    for told in &evidence.told {
        let who = (told.user.clone(), told.session.clone());
        let history = histories.get(&who);
        let times =
            history.map_or(0, |history| history.said.iter().filter(|said| **said == told.said).count());
        let count = |verdict: &mut Verdict, promise, kept: bool, why: &str| {
            verdict.0.entry(promise).or_default().judge(kept, || format!("{}: {why}", told.call));
        };
        count(
            verdict,
            UNFINISHED,
            told.outcome.is_some(),
            &format!("{} failures, {} cuts", told.failures, told.cuts),
        );
        let Some(outcome) = &told.outcome else { continue };
        count(verdict, LOST, times > 0, "its message is not in the history");
        count(verdict, TWICE, times <= 1, &format!("its message is there {times} times"));
        let ids = outcome["messages"].as_array().cloned().unwrap_or_default();
        let kept = ids.iter().all(|message| {
            let id = message["id"].as_str().unwrap_or_default();
            history.is_some_and(|history| history.ids.contains(id))
        });
        count(verdict, NOT_KEPT, kept, "a message it was answered with is not in the history");
        if let Some(streamed) = &told.streamed
            && outcome["status"] == "completed"
        {
            let answer = outcome["text"].as_str().unwrap_or_default();
            count(verdict, STREAMED, streamed == answer, &format!("{streamed:?} is not {answer:?}"));
        }
    }
}

/// Clients of one session in these loads speak one after the other, so that what they sent is the order.
fn judge_sessions(evidence: &Evidence, histories: &Histories<'_>, verdict: &mut Verdict) {
    for (who, history) in histories {
        let sent: Vec<_> = evidence
            .told
            .iter()
            .filter(|told| told.user == who.0 && told.session == who.1 && told.outcome.is_some())
            .map(|told| told.said.clone())
            .collect();
        let known: BTreeSet<_> = sent.iter().collect();
        let kept: Vec<_> = history.said.iter().filter(|said| known.contains(said)).cloned().collect();
        verdict
            .0
            .entry(ORDER)
            .or_default()
            .judge(kept == sent, || format!("{who:?}: {kept:?} is not {sent:?}"));
        let calls = history.said.len() as u64;
        verdict.0.entry(VERSIONS).or_default().judge(history.version == calls, || {
            format!("{who:?}: version {} after {calls} calls", history.version)
        });
    }
}

fn judge_transcripts(
    evidence: &Evidence,
    histories: &Histories<'_>,
    owner: &HashMap<&str, (&str, &str)>,
    verdict: &mut Verdict,
) {
    for record in evidence.model.iter().filter(|record| record["event"] == "asked") {
        let turns = record["transcript"].as_array().cloned().unwrap_or_default();
        let spoken = |turn: &&Value| turn["role"] == "user" && results(turn).is_empty();
        let said: Vec<_> = turns.iter().filter(spoken).filter_map(|turn| turn["text"].as_str()).collect();
        let owners: BTreeSet<_> = said.iter().filter_map(|said| owner.get(said)).collect();
        verdict
            .0
            .entry(LEAKED)
            .or_default()
            .judge(owners.len() <= 1, || format!("{owners:?} in one transcript"));
        verdict.0.entry(UNPAIRED).or_default().judge(paired(&turns), || format!("{record}"));
        let Some((user, session)) = owners.first() else { continue };
        let Some(history) = histories.get(&((*user).to_owned(), (*session).to_owned())) else { continue };
        let prefix = history.said.iter().map(String::as_str).take(said.len()).eq(said.iter().copied());
        verdict
            .0
            .entry(PREFIX)
            .or_default()
            .judge(prefix, || format!("{said:?} does not begin {:?}", history.said));
    }
}

fn results(turn: &Value) -> Vec<Value> {
    turn["toolResults"].as_array().cloned().unwrap_or_default()
}

/// Each tool call is answered before anything else is said, and nothing is answered that was not asked.
fn paired(turns: &[Value]) -> bool {
    let mut open = BTreeSet::new();
    for turn in turns {
        for result in results(turn) {
            if !open.remove(result["id"].as_str().unwrap_or_default()) {
                return false;
            }
        }
        if results(turn).is_empty() && !open.is_empty() {
            return false;
        }
        for call in turn["toolCalls"].as_array().cloned().unwrap_or_default() {
            open.insert(call["id"].as_str().unwrap_or_default().to_owned());
        }
    }
    open.is_empty()
}

fn judge_tools(evidence: &Evidence, verdict: &mut Verdict) {
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    for record in evidence.tools.iter().filter(|record| record["event"] == "executed") {
        let tool = record["tool"].as_str().unwrap_or_default();
        if evidence.unsafe_tools.contains(tool) {
            // The input of every tool call in these loads is unique, so that it names the call without our key.
            *runs.entry(format!("{tool} {}", record["arguments"])).or_default() += 1;
        }
    }
    for (call, times) in runs {
        verdict.0.entry(UNSAFE_TWICE).or_default().judge(times == 1, || format!("{call} ran {times} times"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::How;
    use serde_json::json;
    use std::time::Duration;

    fn told(call: &str, said: &str) -> Told {
        Told {
            user: "u".into(),
            session: "s".into(),
            call: call.into(),
            said: said.into(),
            how: How::Plain,
            outcome: Some(
                json!({"status": "completed", "text": "ok", "messages": [{"id": format!("r-{call}")}]}),
            ),
            streamed: None,
            failures: 0,
            cuts: 0,
            resumes: 0,
            began: 0,
            took: Duration::ZERO,
            marks: Vec::new(),
        }
    }

    fn state(said: &[&str], replies: &[&str]) -> Value {
        let users = said
            .iter()
            .map(|said| json!({"id": said, "role": "user", "content": [{"type": "text", "text": said}]}));
        let replies = replies.iter().map(|id| json!({"id": id, "role": "assistant", "content": []}));
        json!({"version": said.len(), "context": users.chain(replies).collect::<Vec<_>>()})
    }

    fn evidence() -> Evidence {
        Evidence {
            told: vec![told("1", "one"), told("2", "two")],
            states: [(("u".into(), "s".into()), state(&["one", "two"], &["r-1", "r-2"]))].into(),
            unsafe_tools: ["refund".to_owned()].into(),
            ..Evidence::default()
        }
    }

    fn broken(evidence: &Evidence) -> Vec<&'static str> {
        judge(evidence)
            .0
            .into_iter()
            .filter(|(_, count)| count.broken > 0)
            .map(|(promise, _)| promise)
            .collect()
    }

    /// A judge that acquits everybody is no judge: each crime, committed once, is found, and nothing else is.
    #[test]
    fn each_broken_promise_is_found_by_its_name() {
        assert_eq!(broken(&evidence()), Vec::<&str>::new());

        let mut lost = evidence();
        lost.states.values_mut().for_each(|s| *s = state(&["two"], &["r-1", "r-2"]));
        assert_eq!(broken(&lost), [LOST, ORDER]);

        let mut twice = evidence();
        twice.states.values_mut().for_each(|s| *s = state(&["one", "one", "two"], &["r-1", "r-2"]));
        assert_eq!(broken(&twice), [TWICE, ORDER]);

        let mut reply_gone = evidence();
        reply_gone.states.values_mut().for_each(|s| *s = state(&["one", "two"], &["r-1"]));
        assert_eq!(broken(&reply_gone), [NOT_KEPT]);

        let mut swapped = evidence();
        swapped.states.values_mut().for_each(|s| *s = state(&["two", "one"], &["r-1", "r-2"]));
        assert_eq!(broken(&swapped), [ORDER]);

        let mut other_past = evidence();
        other_past.model = vec![json!({"event": "asked", "transcript": [{"role": "user", "text": "two"}]})];
        assert_eq!(broken(&other_past), [PREFIX]);

        let mut unpaired = evidence();
        unpaired.model = vec![json!({"event": "asked", "transcript": [
            {"role": "user", "text": "one"}, {"role": "assistant", "toolCalls": [{"id": "t"}]}]})];
        assert_eq!(broken(&unpaired), [UNPAIRED]);

        let mut leaked = evidence();
        leaked.told.push(Told { user: "v".into(), ..told("3", "three") });
        leaked.states.insert(("v".into(), "s".into()), state(&["three"], &["r-3"]));
        leaked.model = vec![json!({"event": "asked", "transcript": [
            {"role": "user", "text": "one"}, {"role": "user", "text": "three"}]})];
        assert_eq!(broken(&leaked), [PREFIX, LEAKED]);

        let mut paid_twice = evidence();
        paid_twice.tools = vec![json!({"event": "executed", "tool": "refund", "arguments": {"n": 1}}); 2];
        assert_eq!(broken(&paid_twice), [UNSAFE_TWICE]);

        let mut unanswered = evidence();
        unanswered.told[1].outcome = None;
        assert_eq!(broken(&unanswered), [UNFINISHED]);
    }
}
