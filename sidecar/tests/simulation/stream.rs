//! One client's stream of events, over as many connections as it took.

use std::collections::BTreeMap;

use holdfast_sidecar::state::Message;
use holdfast_sidecar::store::{EventId, EventName, LoggedEvent};
use serde_json::Value;

use super::plan::CallPlan;
use super::world::{Promise, World};

#[derive(Default)]
pub struct Stream {
    pub last: Option<EventId>,
    /// The last event on this connection.
    here: Option<EventId>,
    seen: BTreeMap<EventId, EventName>,
    /// Text by message, since its last reset.
    texts: BTreeMap<String, String>,
    finals: usize,
    /// What was missed can not be judged.
    gapped: bool,
}

impl Stream {
    pub fn connected(&mut self) {
        self.here = None;
    }

    pub fn gap(&mut self) {
        self.gapped = true;
        self.texts.clear();
    }

    pub fn take(&mut self, world: &World, plan: &CallPlan, event: &LoggedEvent) {
        world.verdict(Promise::Told, self.here.is_none_or(|here| here < event.id), || {
            format!("{}: {} {} comes twice, or late", plan.key, event.id, event.name.as_str())
        });
        self.here = Some(event.id);
        if self.last.is_some_and(|last| event.id <= last) {
            let same = self.gapped || self.seen.get(&event.id) == Some(&event.name);
            world.verdict(Promise::Told, same, || {
                format!("{}: {} {} comes again as another", plan.key, event.id, event.name.as_str())
            });
            return;
        }
        self.last = Some(event.id);
        self.seen.insert(event.id, event.name);
        world.verdict(Promise::Told, self.finals == 0, || format!("{}: an event after the last", plan.key));
        let data: Value = serde_json::from_slice(&event.data).unwrap_or_default();
        let field = |name: &str| data[name].as_str().unwrap_or_default().to_owned();
        match event.name {
            EventName::Delta => {
                world.count("deltas");
                self.texts.entry(field("messageId")).or_default().push_str(&field("text"));
            }
            EventName::Reset => self.texts.entry(field("messageId")).or_default().clear(),
            EventName::MessageCompleted => self.completed(world, plan, event, &field("messageId")),
            name if name.ends_the_call() => self.finals += 1,
            _ => {}
        }
    }

    fn completed(&mut self, world: &World, plan: &CallPlan, event: &LoggedEvent, id: &str) {
        let carried = event.message.as_ref().and_then(|raw| serde_json::from_slice::<Message>(raw).ok());
        // Without step-by-step durability the message stands in the event's own data.
        let own = serde_json::from_slice::<Value>(&event.data)
            .ok()
            .and_then(|data| serde_json::from_value::<Message>(data.get("message")?.clone()).ok());
        let message = carried.or(own);
        world.verdict(Promise::Told, message.as_ref().is_some_and(|message| message.id == id), || {
            format!("{}: message.completed of {id} without its message", plan.key)
        });
        if let (Some(message), Some(text), false) = (message, self.texts.get(id), self.gapped) {
            world.verdict(Promise::Told, *text == message.text(), || {
                format!("{}: the deltas say {text:?}, the message {:?}", plan.key, message.text())
            });
        }
    }

    /// The reply came after the stream.
    pub fn ended(&self, world: &World, plan: &CallPlan) {
        world.verdict(Promise::Told, self.finals == 1, || {
            format!("{}: {} last events", plan.key, self.finals)
        });
    }
}
