//! What a fake model may be told to answer.

use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub enum Reply {
    Say(Answer),
    Refuse {
        status: StatusCode,
        headers: Vec<(HeaderName, HeaderValue)>,
        body: String,
    },
    /// These very bytes, with status 200.
    Raw {
        content_type: &'static str,
        body: String,
    },
    /// Closes the connection without a word.
    HangUp,
    /// Never answers.
    Silence,
}

#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Before the first byte.
    pub delay: Duration,
    /// Between two words of a stream.
    pub token_delay: Duration,
    pub thinking: Option<String>,
    pub text: String,
    pub tools: Vec<Ask>,
    /// Says that it stopped for want of room, not because all was said.
    pub cut_short: bool,
    /// Who it says it is; nothing else than what it was asked as, if it does not say.
    pub model: Option<String>,
    pub ending: Ending,
}

/// A tool call it asks for. Without an id it makes one of its own.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    pub id: Option<String>,
    pub name: String,
    /// As it is written on the wire, sound or not.
    pub arguments: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ending {
    #[default]
    Proper,
    /// The connection breaks after this many words.
    CutAfter(usize),
    /// After this many words comes something that is not the protocol.
    GarbageAfter(usize),
    /// After this many words comes an error inside the stream.
    ErrorAfter(usize),
}

impl Reply {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Say(Answer { text: text.into(), ..Answer::default() })
    }

    pub fn tool(name: &str, input: &Value) -> Self {
        let ask = Ask { id: None, name: name.into(), arguments: input.to_string() };
        Self::Say(Answer { tools: vec![ask], ..Answer::default() })
    }

    pub fn refuse(status: u16, message: &str) -> Self {
        Self::Refuse {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            headers: Vec::new(),
            body: json!({"error": {"message": message}}).to_string(),
        }
    }

    pub fn with_header(mut self, header: &'static str, text: &str) -> Self {
        if let (Self::Refuse { headers, .. }, Ok(value)) = (&mut self, HeaderValue::from_str(text)) {
            headers.push((HeaderName::from_static(header), value));
        }
        self
    }

    pub fn ending(mut self, ending: Ending) -> Self {
        if let Self::Say(answer) = &mut self {
            answer.ending = ending;
        }
        self
    }
}
