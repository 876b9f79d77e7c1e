//! What a terminal shows of an answer: its text as it comes, without repeating what is there already.

use std::io::Write;

use serde_json::Value;

/// One answer on the screen. Text that was voided and comes again is not printed twice.
#[derive(Default)]
pub struct Screen {
    message: String,
    /// What stands on the screen of this message.
    shown: String,
    /// What the agent has said of it since it last started anew.
    said: String,
}

impl Screen {
    /// Shows an event. `true` when it was the last.
    pub fn show(&mut self, name: &[u8], data: &[u8]) -> bool {
        let data: Value = serde_json::from_slice(data).unwrap_or_default();
        let text = |field: &str| data[field].as_str().unwrap_or_default();
        match name {
            b"message.delta" => {
                let new = self.delta(text("messageId"), text("text"));
                print(&new);
            }
            b"message.reset" if text("messageId") == self.message => self.said.clear(),
            b"tool.started" => self.notice(&format!("{} …", text("name"))),
            b"call.queued" if data["position"].as_u64() > Some(0) => {
                self.notice(&format!("waiting behind {} others", data["position"]));
            }
            b"call.resumed" => tracing::debug!(replica = text("replica"), "resumed"),
            b"call.completed" => {
                print("\n");
                return true;
            }
            b"call.interrupted" => {
                self.notice("interrupted");
                return true;
            }
            b"call.failed" => {
                self.notice(data["error"]["detail"].as_str().unwrap_or("the call failed"));
                return true;
            }
            _ => {}
        }
        false
    }

    /// A line that is not the agent's: beside the answer, not in it.
    pub fn notice(&mut self, text: &str) {
        if !self.shown.is_empty() {
            print("\n");
        }
        eprintln!("[{text}]");
        self.shown.clear();
        self.said.clear();
        self.message.clear();
    }

    /// What is to be printed for this piece of a message.
    fn delta(&mut self, message: &str, text: &str) -> String {
        let mut new = String::new();
        if message != self.message {
            // A message that is asked for again has a new id; a prefix that is on the screen stays there.
            if !self.shown.is_empty() && !self.said.is_empty() {
                new.push('\n');
                self.shown.clear();
            }
            message.clone_into(&mut self.message);
            self.said.clear();
        }
        self.said.push_str(text);
        if self.shown.starts_with(&self.said) {
            return new;
        }
        match self.said.strip_prefix(&self.shown) {
            Some(rest) => new.push_str(rest),
            None => {
                new.push('\n');
                new.push_str(&self.said);
            }
        }
        self.shown.clone_from(&self.said);
        new
    }
}

fn print(text: &str) {
    // Nobody reading it is no reason to stop: the call runs on as well.
    let mut out = std::io::stdout();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pieces: &[(&str, Option<&str>)]) -> String {
        let mut screen = Screen::default();
        let mut printed = String::new();
        for (message, text) in pieces {
            match text {
                Some(text) => printed.push_str(&screen.delta(message, text)),
                None => screen.said.clear(),
            }
        }
        printed
    }

    #[test]
    fn an_answer_that_starts_again_is_shown_once() {
        assert_eq!(told(&[("m1", Some("one ")), ("m1", None), ("m1", Some("one two"))]), "one two");
        assert_eq!(
            told(&[("m1", Some("one ")), ("m1", None), ("m2", Some("one ")), ("m2", Some("two"))]),
            "one two"
        );
    }

    #[test]
    fn another_answer_starts_on_a_line_of_its_own() {
        assert_eq!(told(&[("m1", Some("one ")), ("m1", None), ("m2", Some("uno"))]), "one \nuno");
        assert_eq!(told(&[("m1", Some("one")), ("m2", Some("two"))]), "one\ntwo");
    }
}
