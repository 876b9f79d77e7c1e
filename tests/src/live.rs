//! What clients hear at this moment, for whoever draws it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::http::Event;

#[derive(Clone, Default)]
pub struct Live(Arc<Mutex<BTreeMap<String, Now>>>);

/// One session's present call.
#[derive(Debug, Clone, Default)]
pub struct Now {
    /// What the model has said so far.
    pub text: String,
    /// The last thing that happened to it, beside words.
    pub note: String,
    /// Calls of this session that have ended.
    pub ended: usize,
}

impl Live {
    pub fn now(&self) -> BTreeMap<String, Now> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, session: &str, change: impl FnOnce(&mut Now)) {
        let mut sessions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(sessions.entry(session.to_owned()).or_default());
    }

    pub fn begins(&self, session: &str, note: &str) {
        self.change(session, |now| *now = Now { ended: now.ended, note: note.to_owned(), ..Now::default() });
    }

    pub fn ends(&self, session: &str) {
        self.change(session, |now| now.ended += 1);
    }

    pub fn cut(&self, session: &str) {
        self.change(session, |now| "cut off, asks again".clone_into(&mut now.note));
    }

    pub fn hears(&self, session: &str, event: &Event) {
        let text = event.data["text"].as_str().unwrap_or_default();
        self.change(session, |now| match event.name.as_str() {
            "message.delta" => now.text.push_str(text),
            "message.reset" => now.text.clear(),
            "tool.started" => now.note = format!("runs {}", event.data["name"].as_str().unwrap_or_default()),
            "call.suspended" => "given back, still connected".clone_into(&mut now.note),
            "call.resumed" => {
                now.note = format!("taken over by {}", event.data["replica"].as_str().unwrap_or_default());
            }
            _ => {}
        });
    }
}
