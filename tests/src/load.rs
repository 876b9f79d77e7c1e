//! A load that remembers: conversations that talk to any replica, retry what failed with the same call id, and write
//! down what they were told.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use hyper::Method;
use serde_json::{Value, json};

use crate::http::{Answer, Events, Http};
use crate::ledger::now_millis;
use crate::live::Live;

/// Between two tries of one call; doubled from one to the next.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// Longer than any answer of these loads takes, a drain and a takeover included: a server gone without a word.
const SILENCE: Duration = Duration::from_secs(45);

/// Where a client may knock. Replicas come and go; clients take the next one.
#[derive(Clone, Default)]
pub struct Doors(Arc<Mutex<Vec<String>>>);

impl Doors {
    pub fn open(&self, url: &str) {
        self.lock().push(url.to_owned());
    }

    pub fn close(&self, url: &str) {
        self.lock().retain(|open| open != url);
    }

    pub fn pick(&self, n: usize) -> Option<String> {
        let doors = self.lock();
        (!doors.is_empty()).then(|| doors[n % doors.len()].clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One conversation. Its messages carry `marker`s that appear nowhere else.
#[derive(Debug, Clone)]
pub struct Session {
    pub user: String,
    pub session: String,
}

impl Session {
    pub fn path(&self) -> String {
        format!("/v1/users/{}/sessions/{}", self.user, self.session)
    }
}

/// What a client wants to have answered, and how.
#[derive(Debug, Clone)]
pub struct Call {
    /// Its `callId`: whoever asks again asks with the same.
    pub id: String,
    /// The whole message; unique.
    pub said: String,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    Plain,
    Stream,
    /// The client leaves when the call is admitted, and never comes back.
    Background,
}

/// Something that happened to a call, as its client saw it. Times are milliseconds since 1970.
#[derive(Debug, Clone)]
pub struct Mark {
    pub at: u64,
    pub what: Happened,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A request that failed: refused, cut before its answer, 5xx.
    Failed(String),
    /// A stream that ended without an end.
    Cut,
    /// After a failure or a cut, something was heard again.
    Heard,
    /// The replica that ran it gave it back.
    Suspended,
    /// This replica went on with it.
    Resumed(String),
}

/// What a client knows about one of its calls.
#[derive(Debug, Clone)]
pub struct Told {
    pub user: String,
    pub session: String,
    pub call: String,
    pub said: String,
    pub how: How,
    /// The call as it was told at the end; `None` where it gave up, or never waited.
    pub outcome: Option<Value>,
    /// The text put together from the deltas of the last message, for a streamed call.
    pub streamed: Option<String>,
    /// Requests that failed on the way: refused connections, cut bodies, 5xx.
    pub failures: u32,
    /// Streams that ended without an end.
    pub cuts: u32,
    pub resumes: u64,
    /// Milliseconds since 1970.
    pub began: u64,
    pub took: Duration,
    pub marks: Vec<Mark>,
}

impl Told {
    pub fn new(session: &Session, call: &Call) -> Self {
        Self {
            user: session.user.clone(),
            session: session.session.clone(),
            call: call.id.clone(),
            said: call.said.clone(),
            how: call.how,
            outcome: None,
            streamed: None,
            failures: 0,
            cuts: 0,
            resumes: 0,
            began: now_millis(),
            took: Duration::ZERO,
            marks: Vec::new(),
        }
    }

    /// Its client was cut off, by whatever.
    pub fn was_cut(&self) -> bool {
        self.failures + self.cuts > 0
    }

    /// From each first sign of trouble until something was heard again.
    pub fn silences(&self) -> Vec<Duration> {
        self.between(is_trouble, |what| *what == Happened::Heard)
    }

    /// From each first sign of trouble until another replica went on.
    pub fn takeovers(&self) -> Vec<Duration> {
        self.between(is_trouble, |what| matches!(what, Happened::Resumed(_)))
    }

    /// From being given back until another replica went on, while the client listened.
    pub fn handovers(&self) -> Vec<Duration> {
        self.between(|what| *what == Happened::Suspended, |what| matches!(what, Happened::Resumed(_)))
    }

    fn between(&self, from: impl Fn(&Happened) -> bool, over: impl Fn(&Happened) -> bool) -> Vec<Duration> {
        let (mut since, mut found) = (None, Vec::new());
        for mark in &self.marks {
            if from(&mark.what) {
                since = since.or(Some(mark.at));
            } else if over(&mark.what) {
                found.extend(since.take().map(|since| Duration::from_millis(mark.at - since)));
            }
        }
        found
    }

    fn mark(&mut self, what: Happened) {
        match &what {
            Happened::Failed(_) => self.failures += 1,
            Happened::Cut => self.cuts += 1,
            _ => {}
        }
        self.marks.push(Mark { at: now_millis(), what });
    }

    /// Something came: if there was trouble, it is over.
    fn hear(&mut self) {
        let mut since = self.marks.iter().rev().take_while(|mark| mark.what != Happened::Heard);
        if since.any(|mark| is_trouble(&mark.what)) {
            self.mark(Happened::Heard);
        }
    }
}

fn is_trouble(what: &Happened) -> bool {
    matches!(what, Happened::Failed(_) | Happened::Cut)
}

#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<Told>>>);

impl Log {
    pub fn told(&self) -> Vec<Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn write(&self, told: Told) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }
}

/// Somebody who calls, and calls again.
#[derive(Clone)]
pub struct Client {
    pub http: Http,
    pub doors: Doors,
    pub log: Log,
    pub live: Live,
    /// How long it tries before it gives a call up: longer than any outage a suite makes.
    pub patience: Duration,
}

impl Default for Client {
    fn default() -> Self {
        let (http, doors, log, live) = Default::default();
        Self { http, doors, log, live, patience: Duration::from_secs(60) }
    }
}

impl Client {
    /// One call to its end, whatever happens on the way.
    pub async fn converse(&self, session: &Session, call: &Call) {
        let started = Instant::now();
        let mut told = Told::new(session, call);
        let mut door = fingerprint(&call.id);
        let mut watch = Watch::default();
        let mut pause = FIRST_PAUSE;
        let note = if call.how == How::Stream { "" } else { "waits for the whole answer" };
        self.live.begins(&session.session, note);
        while started.elapsed() < self.patience {
            let Some(url) = self.doors.pick(door) else {
                tokio::time::sleep(FIRST_PAUSE).await;
                continue;
            };
            let url = format!("{url}{}", session.path());
            let ended = match call.how {
                How::Plain => self.plain(&url, call, &mut told).await,
                How::Stream => self.watched(&url, call, &mut watch, &mut told).await,
                How::Background => self.left_behind(&url, call, &mut told).await,
            };
            match ended {
                Ok(Some(outcome)) => {
                    told.hear();
                    self.live.ends(&session.session);
                    told.resumes = outcome["resumes"].as_u64().unwrap_or(0);
                    told.outcome = Some(outcome).filter(|_| call.how != How::Background);
                    break;
                }
                Ok(None) => {}
                Err(error) => told.mark(Happened::Failed(format!("{error:#}"))),
            }
            door += 1;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        told.streamed = (call.how == How::Stream).then_some(watch.text);
        told.took = started.elapsed();
        self.log.write(told);
    }

    async fn plain(&self, url: &str, call: &Call, told: &mut Told) -> Result<Option<Value>> {
        let body = json!({"input": call.said, "callId": call.id});
        let url = format!("{url}/calls");
        let answer = tokio::time::timeout(SILENCE, self.http.post(&url, &body)).await;
        let answer = answer.context("no answer, and no end of the connection")??;
        expected(200, answer, told)
    }

    async fn left_behind(&self, url: &str, call: &Call, told: &mut Told) -> Result<Option<Value>> {
        let body = json!({"input": call.said, "callId": call.id, "background": true});
        let answer = self.http.post(&format!("{url}/calls"), &body).await?;
        // A second try may come when the call has ended.
        let wanted = if answer.status == 200 { 200 } else { 202 };
        expected(wanted, answer, told)
    }

    async fn watched(
        &self,
        url: &str,
        call: &Call,
        watch: &mut Watch,
        told: &mut Told,
    ) -> Result<Option<Value>> {
        let opened = match &watch.last_id {
            None => {
                let body = json!({"input": call.said, "callId": call.id, "stream": true});
                self.http.events(Method::POST, &format!("{url}/calls"), Some(&body), None).await?
            }
            Some(id) => {
                let url = format!("{url}/calls/{}/events", call.id);
                self.http.events(Method::GET, &url, None, Some(id)).await?
            }
        };
        match opened {
            Ok(mut events) => match watch.read(&mut events, told, &self.live).await {
                Ok(Some(end)) => Ok(Some(end)),
                // A stream let go by a replica that stops, or broken by one that died.
                Ok(None) | Err(_) => {
                    told.mark(Happened::Cut);
                    self.live.cut(&told.session);
                    Ok(None)
                }
            },
            // Nobody knows this call any more: it is said again.
            Err(refused) if refused.status == 404 => {
                *watch = Watch::default();
                expected(200, refused, told)
            }
            Err(refused) => expected(200, refused, told),
        }
    }
}

/// A refusal that a client meets by asking again is a failed request; anything else is none of a client's business.
fn expected(status: u16, answer: Answer, told: &mut Told) -> Result<Option<Value>> {
    match answer.status {
        found if found == status => Ok(Some(answer.body)),
        429 | 503 => {
            told.mark(Happened::Failed(format!("{} {}", answer.status, answer.body["type"])));
            Ok(None)
        }
        status => bail!("{status}: {}", answer.body),
    }
}

fn fingerprint(call: &str) -> usize {
    call.bytes().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)))
}

/// What a client has seen of a stream, over all its connections.
#[derive(Default)]
struct Watch {
    last_id: Option<String>,
    message: String,
    text: String,
}

impl Watch {
    async fn read(&mut self, events: &mut Events, told: &mut Told, live: &Live) -> Result<Option<Value>> {
        while let Some(event) = events.next().await? {
            told.hear();
            live.hears(&told.session, &event);
            if !event.id.is_empty() {
                self.last_id = Some(event.id);
            }
            let id = event.data["messageId"].as_str().unwrap_or("");
            match event.name.as_str() {
                "message.delta" => {
                    if self.message != id {
                        id.clone_into(&mut self.message);
                        self.text.clear();
                    }
                    self.text.push_str(event.data["text"].as_str().unwrap_or(""));
                }
                "message.reset" => self.text.clear(),
                "call.suspended" => told.mark(Happened::Suspended),
                "call.resumed" => {
                    let replica = event.data["replica"].as_str().unwrap_or_default();
                    told.mark(Happened::Resumed(replica.to_owned()));
                }
                "call.completed" | "call.interrupted" | "call.failed" => return Ok(Some(event.data)),
                _ => {}
            }
        }
        Ok(None)
    }
}
