//! What an import notes down about one object so that an export can give it back.

use serde_json::{Map, Value, json};

use super::KEY;

/// Fields that would not come back the same, and flags of this module's own.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Notes {
    fields: Map<String, Value>,
    flags: Map<String, Value>,
}

impl Notes {
    /// Notes where what an export would write is not what was there.
    pub(super) fn compare(mut self, exported: &Map<String, Value>, original: &Map<String, Value>) -> Self {
        let fields = &mut self.fields;
        for name in exported.keys().chain(original.keys()) {
            let (ours, theirs) = (exported.get(name), original.get(name));
            if ours != theirs && !fields.contains_key(name) {
                let mut note = Map::new();
                note.extend(ours.map(|ours| ("ours".to_owned(), ours.clone())));
                note.extend(theirs.map(|theirs| ("theirs".to_owned(), theirs.clone())));
                fields.insert(name.clone(), Value::Object(note));
            }
        }
        self
    }

    pub(super) fn of(extra: &Map<String, Value>) -> Self {
        let Some(Value::Object(kept)) = extra.get(KEY) else { return Self::default() };
        let mut flags = kept.clone();
        let fields = match flags.shift_remove("fields") {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        Self { fields, flags }
    }

    pub(super) fn get(&self, flag: &str) -> Option<&Value> {
        self.flags.get(flag)
    }

    pub(super) fn is(&self, flag: &str) -> bool {
        self.get(flag) == Some(&Value::Bool(true))
    }

    pub(super) fn with(mut self, flag: &str, value: Value) -> Self {
        self.flags.insert(flag.to_owned(), value);
        self
    }

    pub(super) fn keep_in(self, extra: &mut Map<String, Value>) {
        let Self { fields, mut flags } = self;
        if !fields.is_empty() {
            flags.insert("fields".to_owned(), Value::Object(fields));
        }
        if flags.is_empty() {
            extra.shift_remove(KEY);
        } else {
            extra.insert(KEY.to_owned(), Value::Object(flags));
        }
    }

    /// Gives back what was there, in every field that is still what it was when the note was made.
    pub(super) fn put_back(&self, mut exported: Map<String, Value>) -> Map<String, Value> {
        for (name, note) in &self.fields {
            if exported.get(name) != note.get("ours") {
                continue;
            }
            match note.get("theirs") {
                Some(theirs) => exported.insert(name.clone(), theirs.clone()),
                None => exported.shift_remove(name),
            };
        }
        exported
    }
}

/// The fields of ours that have the same meaning there: all that nobody gives one to.
pub(super) fn others(extra: &Map<String, Value>) -> Map<String, Value> {
    extra.iter().filter(|(name, _)| *name != KEY).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Marks something that was added here.
pub(super) fn added() -> Map<String, Value> {
    let mut extra = Map::new();
    extra.insert(KEY.to_owned(), json!({"added": true}));
    extra
}

pub(super) fn is_added(extra: &Map<String, Value>) -> bool {
    Notes::of(extra).is("added")
}
