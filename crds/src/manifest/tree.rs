//! A YAML document as a tree whose every key and value knows its line and column.
//! Scalars are read by YAML 1.2's core schema; aliases and merge keys are resolved.

use std::collections::HashMap;

use granit_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::{Number, Value};

use super::Mistake;

/// A manifest is small; aliases of aliases could make it grow without end.
const MAX_NODES: usize = 50_000;
const MAX_DEPTH: usize = 64;

/// Line and column, both counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub line: usize,
    pub column: usize,
}

impl Position {
    pub(super) const START: Self = Self { line: 1, column: 1 };

    fn of(span: &Span) -> Self {
        Self { line: span.start.line().max(1), column: span.start.col() + 1 }
    }

    pub(super) fn mistake(self, path: &str, message: impl Into<String>) -> Mistake {
        Mistake { line: self.line, column: self.column, path: path.to_owned(), message: message.into() }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub at: Position,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<Field>),
}

#[derive(Debug, Clone)]
pub(super) struct Field {
    pub key: String,
    pub at: Position,
    pub value: Node,
}

impl Node {
    pub(super) fn get(&self, key: &str) -> Option<&Field> {
        match &self.content {
            Content::Map(fields) => fields.iter().find(|field| field.key == key),
            Content::Scalar(_) | Content::List(_) => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Value::Null))
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match &self.content {
            Content::Scalar(Value::String(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        match &self.content {
            Content::Scalar(value) => value.clone(),
            Content::List(items) => Value::Array(items.iter().map(Self::to_json).collect()),
            Content::Map(fields) => {
                Value::Object(fields.iter().map(|field| (field.key.clone(), field.value.to_json())).collect())
            }
        }
    }

    /// Where `spec.tools[1].mcp` is, or the nearest part of that path that exists.
    pub(super) fn locate(&self, path: &str) -> Position {
        let mut node = self;
        let mut at = self.at;
        for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
            let found = match (&node.content, step.strip_suffix(']')) {
                (Content::List(items), Some(index)) => {
                    index.parse().ok().and_then(|index: usize| items.get(index)).map(|item| (item.at, item))
                }
                (Content::Map(_), None) => node.get(step).map(|field| (field.at, &field.value)),
                _ => None,
            };
            let Some(next) = found else { break };
            (at, node) = next;
        }
        at
    }

    fn size(&self) -> usize {
        1 + match &self.content {
            Content::Scalar(_) => 0,
            Content::List(items) => items.iter().map(Self::size).sum(),
            Content::Map(fields) => fields.iter().map(|field| field.value.size()).sum(),
        }
    }
}

/// Every document of a text that is not empty.
pub(super) fn read(text: &str) -> Result<Vec<Node>, Mistake> {
    let mut reader = Reader { events: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 };
    let mut documents = Vec::new();
    while let Some((event, span)) = reader.next()? {
        match event {
            Event::DocumentStart(..) => reader.anchors.clear(),
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            node => documents.push(reader.node(node, &span, 0)?),
        }
    }
    documents.retain(|document| !document.is_null());
    Ok(documents)
}

struct Reader<I> {
    events: I,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'a, I: Iterator<Item = Result<(Event<'a>, Span), granit_parser::ScanError>>> Reader<I> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Mistake> {
        loop {
            match self.events.next().transpose() {
                Ok(Some((Event::Comment(..) | Event::Anchor(..), _))) => {}
                Ok(event) => return Ok(event),
                Err(error) => {
                    let mark = error.marker();
                    let at = Position { line: mark.line().max(1), column: mark.col() + 1 };
                    return Err(at.mistake("", format!("this is not YAML: {}", error.info())));
                }
            }
        }
    }

    fn expect(&mut self, at: Position) -> Result<(Event<'a>, Span), Mistake> {
        self.next()?.ok_or_else(|| at.mistake("", "this is not YAML: it ends too early"))
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node, Mistake> {
        let at = Position::of(span);
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err(at.mistake("", "the manifest is too large or too deep to be an Agent"));
        }
        let (anchor, content) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let told_text = tag.is_some_and(|tag| tag.is_yaml_core_schema_tag("str"));
                let plain = style == ScalarStyle::Plain && !told_text;
                (
                    anchor,
                    Content::Scalar(if plain { resolve(&text) } else { Value::String(text.into_owned()) }),
                )
            }
            Event::SequenceStart(_, anchor, _) => (anchor, self.list(at, depth)?),
            Event::MappingStart(_, anchor, _) => (anchor, self.map(at, depth)?),
            Event::Alias(anchor) => {
                let Some(target) = self.anchors.get(&anchor) else {
                    return Err(at.mistake("", "this alias stands inside what it refers to"));
                };
                let copy = target.content.clone();
                self.nodes += target.size();
                (0, copy)
            }
            other => return Err(at.mistake("", format!("this is not YAML: {other:?} is out of place"))),
        };
        let node = Node { at, content };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn list(&mut self, at: Position, depth: usize) -> Result<Content, Mistake> {
        let mut items = Vec::new();
        loop {
            match self.expect(at)? {
                (Event::SequenceEnd, _) => return Ok(Content::List(items)),
                (event, span) => items.push(self.node(event, &span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, at: Position, depth: usize) -> Result<Content, Mistake> {
        let mut fields: Vec<Field> = Vec::new();
        let mut merged: Vec<Field> = Vec::new();
        loop {
            let (event, span) = self.expect(at)?;
            if event == Event::MappingEnd {
                break;
            }
            let key_at = Position::of(&span);
            let Event::Scalar(key, style, ..) = event else {
                return Err(key_at.mistake("", "a field's name must be a plain word"));
            };
            let (event, span) = self.expect(key_at)?;
            let value = self.node(event, &span, depth + 1)?;
            if key == "<<" && style == ScalarStyle::Plain {
                merged.extend(merge(value));
            } else if fields.iter().any(|field| field.key == key) {
                return Err(key_at.mistake(&key, "this field is written twice; remove one"));
            } else {
                fields.push(Field { key: key.into_owned(), at: key_at, value });
            }
        }
        for field in merged {
            if !fields.iter().any(|own| own.key == field.key) {
                fields.push(field);
            }
        }
        Ok(Content::Map(fields))
    }
}

/// What `<<: *base` or `<<: [*a, *b]` brings in.
fn merge(value: Node) -> Vec<Field> {
    match value.content {
        Content::Map(fields) => fields,
        Content::List(items) => items.into_iter().flat_map(merge).collect(),
        Content::Scalar(_) => Vec::new(),
    }
}

fn resolve(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" => return Value::Bool(true),
        "false" | "False" | "FALSE" => return Value::Bool(false),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        if let Ok(integer) = text.parse::<i64>() {
            return integer.into();
        }
        if let Some(number) = text.parse().ok().and_then(Number::from_f64) {
            return Value::Number(number);
        }
    }
    Value::String(text.to_owned())
}
