//! Server-sent events, as they come out of a response body.

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::{OutboundError, causes};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What `event:` said; empty where it said nothing.
    pub name: Bytes,
    pub data: Bytes,
}

/// Reads events until the body ends. The body is dropped, and its connection with it, when this is.
pub struct Events {
    body: Incoming,
    parser: Parser,
    ended: bool,
}

impl Events {
    /// No event may be larger than `limit`.
    pub fn new(body: Incoming, limit: usize) -> Self {
        Self { body, parser: Parser::new(limit), ended: false }
    }

    /// What the last `id:` line said: where to go on after this body ends.
    pub fn last_id(&self) -> &Bytes {
        &self.parser.last_id
    }

    /// The next event; `None` at a proper end of the body.
    pub async fn next(&mut self) -> Result<Option<Event>, OutboundError> {
        loop {
            if let Some(event) = self.parser.next()? {
                return Ok(Some(event));
            }
            if self.ended {
                return Ok(self.parser.rest());
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.parser.push(&data);
                    }
                }
                Some(Err(error)) => return Err(OutboundError::Broken(causes(&error))),
                None => self.ended = true,
            }
        }
    }
}

struct Parser {
    buffer: BytesMut,
    /// No line ends before this place of the buffer.
    searched: usize,
    name: Bytes,
    last_id: Bytes,
    data: Option<Bytes>,
    limit: usize,
}

impl Parser {
    fn new(limit: usize) -> Self {
        Self {
            buffer: BytesMut::new(),
            searched: 0,
            name: Bytes::new(),
            last_id: Bytes::new(),
            data: None,
            limit,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    fn next(&mut self) -> Result<Option<Event>, OutboundError> {
        while let Some(line) = self.line() {
            if line.is_empty() {
                if let Some(event) = self.finish() {
                    return Ok(Some(event));
                }
            } else {
                self.field(&line);
            }
            self.check_size()?;
        }
        self.check_size()?;
        Ok(None)
    }

    /// What a body that ended without its last empty line still meant to say.
    fn rest(&mut self) -> Option<Event> {
        if !self.buffer.is_empty() {
            let line = self.buffer.split().freeze();
            self.field(&line);
        }
        self.finish()
    }

    fn line(&mut self) -> Option<Bytes> {
        let Some(found) = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n') else {
            self.searched = self.buffer.len();
            return None;
        };
        let mut line = self.buffer.split_to(self.searched + found).freeze();
        self.buffer.advance(1);
        self.searched = 0;
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        Some(line)
    }

    fn field(&mut self, line: &Bytes) {
        const MARK: &[u8] = "\u{feff}".as_bytes();
        let start = if line.starts_with(MARK) { MARK.len() } else { 0 };
        let colon = line[start..].iter().position(|&byte| byte == b':').map(|at| at + start);
        let name = &line[start..colon.unwrap_or(line.len())];
        let mut value = colon.map_or_else(Bytes::new, |at| line.slice(at + 1..));
        if value.first() == Some(&b' ') {
            value.advance(1);
        }
        match name {
            b"event" => self.name = value,
            b"data" => {
                self.data = Some(match self.data.take() {
                    None => value,
                    Some(before) => [before.as_ref(), b"\n", value.as_ref()].concat().into(),
                });
            }
            b"id" => self.last_id = value,
            // Comments (an empty name) and retry times mean nothing to us.
            _ => {}
        }
    }

    fn finish(&mut self) -> Option<Event> {
        let name = std::mem::take(&mut self.name);
        self.data.take().map(|data| Event { name, data })
    }

    fn check_size(&self) -> Result<(), OutboundError> {
        let held = self.buffer.len().max(self.data.as_ref().map_or(0, Bytes::len));
        if held > self.limit { Err(OutboundError::TooLarge(self.limit)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(chunks: &[&str]) -> Vec<(String, String)> {
        let mut parser = Parser::new(1000);
        let mut events = Vec::new();
        for chunk in chunks {
            parser.push(chunk.as_bytes());
            while let Some(event) = parser.next().expect("small enough") {
                events.push(event);
            }
        }
        events.extend(parser.rest());
        let text = |bytes: &Bytes| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        events.iter().map(|event| (text(&event.name), text(&event.data))).collect()
    }

    #[test]
    fn events_survive_any_cut_and_either_line_end() {
        let text = "\u{feff}: hello\r\nevent: a\r\ndata: {\"é\":1}\r\n\r\ndata:two\ndata: lines\nid: 7\n\n\n\ndata: [DONE]";
        let whole = parse(&[text]);
        let expected = [("a", "{\"é\":1}"), ("", "two\nlines"), ("", "[DONE]")];
        assert_eq!(whole, expected.map(|(name, data)| (name.to_owned(), data.to_owned())));
        for cut in (1..text.len()).filter(|&cut| text.is_char_boundary(cut)) {
            assert_eq!(parse(&[&text[..cut], &text[cut..]]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn an_event_without_an_end_is_refused_before_it_fills_the_memory() {
        let mut parser = Parser::new(10);
        parser.push(b"data: 0123456789abcdef");
        assert!(matches!(parser.next(), Err(OutboundError::TooLarge(10))));
        let mut parser = Parser::new(10);
        let mut outcome = Ok(None);
        for _ in 0..10 {
            parser.push(b"data: 0123\n");
            outcome = parser.next();
            if outcome.is_err() {
                break;
            }
        }
        assert!(matches!(outcome, Err(OutboundError::TooLarge(10))));
    }
}
