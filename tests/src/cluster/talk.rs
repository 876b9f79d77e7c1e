//! What clients say to an agent in a cluster: a model that takes its time, tools of every class, and now and then an answer that
//! takes longer than a drain.

use crate::load::{Call, How, Session};

/// What a call is about.
#[derive(Debug, Clone, Copy, Default)]
pub struct Talk {
    pub sessions: usize,
    /// One in eight answers takes longer than a drain.
    pub long: bool,
    /// One in eight clients leaves when its call is admitted.
    pub leave: bool,
}

impl Talk {
    pub fn session(n: usize) -> Session {
        Session { user: format!("user-{}", n / 2), session: format!("session-{n}") }
    }

    /// The next thing this session says, never the same twice.
    pub fn line(&self, session: usize, call: usize) -> Call {
        let mark = format!("s{session} c{call}");
        let kind = (session + call) % 8;
        let orders = match kind {
            0 => r#"{"delayMs":1000,"words":20,"tokenDelayMs":100}"#.to_owned(),
            1 => tools(&mark, &[("refund", 1500)], 1000),
            2 if self.long => r#"{"delayMs":3000,"words":60,"tokenDelayMs":150}"#.to_owned(),
            3 => tools(&mark, &[("lookup", 200), ("refund", 2500)], 1000),
            4 => r#"{"delayMs":4000,"cutShort":true}"#.to_owned(),
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

/// Each input is unique, so that the tools' ledger tells one call from another.
fn tools(mark: &str, wanted: &[(&str, u64)], delay: u64) -> String {
    let wanted = wanted
        .iter()
        .map(|(name, delay)| format!(r#"{{"name":"{name}","input":{{"mark":"{mark}","delayMs":{delay}}}}}"#));
    format!(r#"{{"delayMs":{delay},"tools":[{}]}}"#, wanted.collect::<Vec<_>>().join(","))
}
