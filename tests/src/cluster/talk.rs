//! What clients say to an agent in a cluster: a model that takes its time, tools of every class, and now and then an answer that
//! takes longer than a drain.

use serde_json::json;

use crate::load::{Call, How, Session};

/// What a call is about.
#[derive(Debug, Clone, Copy, Default)]
pub struct Talk {
    pub sessions: usize,
    /// One in eight answers takes longer than a drain.
    pub long: bool,
    /// One in eight clients leaves when its call is admitted.
    pub leave: bool,
    /// Two in eight answers edit the session's file instead of calling a tool of a server.
    pub files: bool,
}

/// What a session's file begins as. Every edit stands before its last line.
pub const FILE: &str = "top\nEND\n";

impl Talk {
    pub fn session(n: usize) -> Session {
        Session { user: format!("user-{}", n / 2), session: format!("session-{n}") }
    }

    /// Where it keeps its file, beside those of its user's other sessions.
    pub fn file(session: usize) -> String {
        format!("session-{session}.md")
    }

    /// The next thing this session says, never the same twice.
    pub fn line(&self, session: usize, call: usize) -> Call {
        let mark = format!("s{session} c{call}");
        let kind = (session + call) % 8;
        let orders = match kind {
            0 => r#"{"delayMs":1000,"words":20,"tokenDelayMs":100}"#.to_owned(),
            1 => tools(&mark, &[("refund", 1500)], 1000),
            2 if self.long => r#"{"delayMs":3000,"words":60,"tokenDelayMs":150}"#.to_owned(),
            3 | 5 if self.files => edit(&mark, &Self::file(session), 1500),
            3 => tools(&mark, &[("lookup", 200), ("refund", 2500)], 1000),
            4 => r#"{"delayMs":4000,"cutShort":true,"model":"fake-of-today"}"#.to_owned(),
            5 => tools(&mark, &[("put", 500)], 1500),
            _ => r#"{"delayMs":1500,"words":10,"tokenDelayMs":50}"#.to_owned(),
        };
        let how = match kind {
            7 if self.leave => How::Background,
            // The kinds wander over the sessions, streamed or not.
            _ if (session + call / 8).is_multiple_of(2) => How::Stream,
            _ => How::Plain,
        };
        Call { id: format!("call-{session}-{call}"), said: format!("{mark} #{orders}"), how }
    }
}

/// Puts its mark before the end of a file, and is slow to say so: the edit may be one replica's and the answer another's.
fn edit(mark: &str, path: &str, delay: u64) -> String {
    let input = json!({"path": path, "old_string": "END", "new_string": format!("{mark}\nEND")});
    json!({"delayMs": delay, "tools": [{"name": "edit_file", "input": input}]}).to_string()
}

/// Each input is unique, so that the tools' ledger tells one call from another.
fn tools(mark: &str, wanted: &[(&str, u64)], delay: u64) -> String {
    let wanted = wanted
        .iter()
        .map(|(name, delay)| format!(r#"{{"name":"{name}","input":{{"mark":"{mark}","delayMs":{delay}}}}}"#));
    format!(r#"{{"delayMs":{delay},"tools":[{}]}}"#, wanted.collect::<Vec<_>>().join(","))
}
