//! Events, as they are sent to Redis and kept there.
//!
//! Nearly every event says first which call it is about. The key it is kept under says it too, so that much is left out:
//! the first byte of what is kept tells whether it was.

use super::decode::{Answer, unreadable};
use super::record::{Record, Writing};
use crate::state::CallId;
use crate::store::blob::Blob;
use crate::store::contract::{EventName, LoggedEvent, NewEvent};
use crate::store::error::StoreError;
use crate::store::ids::EventId;

const WHOLE: u8 = b'w';
const SHORT: u8 = b's';

/// What the data of an event begins with.
fn opening(call: &CallId) -> String {
    format!("{{\"callId\":\"{}\"", call.as_str())
}

/// An event's data without what its key says.
pub fn shortened(data: &[u8], call: &CallId) -> Vec<u8> {
    let (kind, rest) = match data.strip_prefix(opening(call).as_bytes()) {
        Some(rest) => (SHORT, rest),
        None => (WHOLE, data),
    };
    let mut kept = Vec::with_capacity(rest.len() + 1);
    kept.push(kind);
    kept.extend_from_slice(rest);
    kept
}

fn whole(kept: &[u8], call: &CallId) -> Result<Vec<u8>, StoreError> {
    match kept.split_first() {
        Some((&SHORT, rest)) => Ok([opening(call).as_bytes(), rest].concat()),
        Some((&WHOLE, rest)) => Ok(rest.to_vec()),
        _ => Err(unreadable("an event")),
    }
}

fn letter(name: EventName) -> u8 {
    match name {
        EventName::Queued => b'Q',
        EventName::Started => b'S',
        EventName::Delta => b'D',
        EventName::Reset => b'X',
        EventName::MessageCompleted => b'M',
        EventName::ToolStarted => b'T',
        EventName::ToolFinished => b'O',
        EventName::Suspended => b'P',
        EventName::Resumed => b'R',
        EventName::Completed => b'C',
        EventName::Interrupted => b'I',
        EventName::Failed => b'F',
    }
}

fn name(found: u8) -> Result<EventName, StoreError> {
    EventName::ALL
        .into_iter()
        .find(|name| letter(*name) == found)
        .ok_or_else(|| unreadable("an event's name"))
}

/// As scripts take them: one after the other.
pub fn written(events: &[NewEvent], call: &CallId) -> Vec<u8> {
    let mut written = Vec::new();
    for event in events {
        let data = shortened(&event.data, call);
        let record = Writing::of('e').number("seq", event.seq).number("name", letter(event.name));
        // Places are counted from one: none is nought.
        let record = record.number("message", event.message.map_or(0, |place| place + 1));
        written.extend(record.number("size", data.len()).done());
        written.extend(data);
    }
    written
}

/// Bytes that a log is said to have more by these.
pub fn weight(events: &[NewEvent], messages: &[Blob]) -> usize {
    let message = |event: &NewEvent| {
        event.message.and_then(|place| messages.get(place)).map_or(0, |message| message.len())
    };
    events.iter().map(|event| event.data.len() + message(event)).sum()
}

/// The list that a log begins with: with its position, which the store has found.
pub fn queued(kept: &[u8], position: u64, fence: u64, call: &CallId) -> Result<LoggedEvent, StoreError> {
    let mut data = whole(kept, call)?;
    data.pop();
    data.extend_from_slice(format!(",\"position\":{position}}}").as_bytes());
    Ok(LoggedEvent {
        id: EventId { fence, seq: 0 },
        name: EventName::Queued,
        data: data.into(),
        message: None,
    })
}

/// Events that are kept with a reply, in order, each once: what a log would have done.
pub fn kept(
    first: LoggedEvent,
    mut events: &[u8],
    fence: u64,
    messages: &[Blob],
    call: &CallId,
) -> Result<Vec<LoggedEvent>, StoreError> {
    let record = Record::named('e').ok_or_else(|| unreadable("an event"))?;
    let mut last = first.id;
    let mut log = vec![first];
    while !events.is_empty() {
        let event = record.read(events, "an event")?;
        let size = usize::try_from(event.number("size")).unwrap_or(usize::MAX);
        let (id, letter) = (EventId { fence, seq: event.number("seq") }, event.number("name"));
        let place = usize::try_from(event.number("message")).unwrap_or(0).checked_sub(1);
        let rest = &events[record.size..];
        let (data, rest) = rest.split_at_checked(size).ok_or_else(|| unreadable("an event"))?;
        events = rest;
        if id > last {
            last = id;
            let message = place.and_then(|place| messages.get(place)).cloned();
            let name = name(u8::try_from(letter).unwrap_or(0))?;
            log.push(LoggedEvent { id, name, data: whole(data, call)?.into(), message });
        }
    }
    Ok(log)
}

/// An entry of a stream: its id, then fields and values in turn.
pub fn logged(entry: &mut Answer, call: &CallId) -> Result<LoggedEvent, StoreError> {
    let id: EventId = entry.parsed("an event id")?;
    let mut fields = entry.list("the fields of an event")?;
    let (mut event, mut message, mut position) = (None, None, None);
    while !fields.is_empty() {
        match fields.text("a field")?.as_str() {
            "e" => event = Some(fields.blob("an event")?),
            "m" => message = Some(fields.blob("a message")?),
            "p" => position = Some(fields.number("a position")?),
            _ => drop(fields.next("a field")?),
        }
    }
    let event = event.ok_or_else(|| unreadable("an event"))?;
    let (letter, data) = event.split_first().ok_or_else(|| unreadable("an event"))?;
    match position {
        Some(position) => queued(data, position, id.fence, call),
        None => Ok(LoggedEvent { id, name: name(*letter)?, data: whole(data, call)?.into(), message }),
    }
}

/// Several messages as one text: each after its length.
pub fn joined(messages: &[Blob]) -> Vec<u8> {
    let mut text = Vec::with_capacity(messages.iter().map(|message| message.len() + 4).sum());
    for message in messages {
        text.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
        text.extend_from_slice(message);
    }
    text
}
