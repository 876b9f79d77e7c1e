//! A load that remembers: conversations that talk to any replica, retry what failed with the same call id, and write
//! down what they were told.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use hyper::Method;
use serde_json::{Value, json};

use crate::http::{Events, Http};

/// Longer than any outage a suite makes, drain, lease and retries included.
const RECOVERED: Duration = Duration::from_secs(60);

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

    fn pick(&self, n: usize) -> Option<String> {
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

/// What a client knows about one of its calls.
#[derive(Debug, Clone)]
pub struct Told {
    pub user: String,
    pub session: String,
    pub call: String,
    /// The whole message it sent; unique.
    pub said: String,
    pub stream: bool,
    /// The call as it was told at the end; `None` where it gave up.
    pub outcome: Option<Value>,
    /// The text put together from the deltas of the last message, for a streamed call.
    pub streamed: Option<String>,
    /// Requests that failed on the way: refused connections, cut bodies, 5xx.
    pub failures: u32,
    /// Streams that ended without an end.
    pub cuts: u32,
    pub resumes: u64,
    pub took: Duration,
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

/// One call to its end, whatever happens on the way.
pub async fn converse(
    http: &Http,
    doors: &Doors,
    log: &Log,
    session: &Session,
    call: &str,
    said: &str,
    stream: bool,
) {
    let started = Instant::now();
    let mut told = Told {
        user: session.user.clone(),
        session: session.session.clone(),
        call: call.to_owned(),
        said: said.to_owned(),
        stream,
        outcome: None,
        streamed: None,
        failures: 0,
        cuts: 0,
        resumes: 0,
        took: Duration::ZERO,
    };
    let mut door = fingerprint(call);
    let mut watch = Watch::default();
    while started.elapsed() < RECOVERED {
        let Some(url) = doors.pick(door) else {
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let url = format!("{url}{}", session.path());
        let ended = if stream {
            watched(http, &url, call, said, &mut watch, &mut told).await
        } else {
            plain(http, &url, call, said, &mut told).await
        };
        match ended {
            Ok(Some(outcome)) => {
                told.resumes = outcome["resumes"].as_u64().unwrap_or(0);
                told.outcome = Some(outcome);
                break;
            }
            Ok(None) => {}
            Err(_) => told.failures += 1,
        }
        door += 1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    told.streamed = stream.then_some(watch.text);
    told.took = started.elapsed();
    log.write(told);
}

fn fingerprint(call: &str) -> usize {
    call.bytes().fold(7, |sum, byte| sum.wrapping_mul(31).wrapping_add(usize::from(byte)))
}

async fn plain(http: &Http, url: &str, call: &str, said: &str, told: &mut Told) -> Result<Option<Value>> {
    let body = json!({"input": said, "callId": call});
    let answer = http.post(&format!("{url}/calls"), &body).await?;
    match answer.status {
        200 => Ok(Some(answer.body)),
        429 | 503 => {
            told.failures += 1;
            Ok(None)
        }
        status => bail!("{status}: {}", answer.body),
    }
}

/// What a client has seen of a stream, over all its connections.
#[derive(Default)]
struct Watch {
    last_id: Option<String>,
    message: String,
    text: String,
}

async fn watched(
    http: &Http,
    url: &str,
    call: &str,
    said: &str,
    watch: &mut Watch,
    told: &mut Told,
) -> Result<Option<Value>> {
    let opened = match &watch.last_id {
        None => {
            let body = json!({"input": said, "callId": call, "stream": true});
            http.events(Method::POST, &format!("{url}/calls"), Some(&body), None).await?
        }
        Some(id) => http.events(Method::GET, &format!("{url}/calls/{call}/events"), None, Some(id)).await?,
    };
    match opened {
        Ok(mut events) => {
            let ended = watch.read(&mut events).await;
            if !matches!(ended, Ok(Some(_))) {
                told.cuts += 1;
            }
            ended
        }
        Err(refused) if matches!(refused.status, 429 | 503) => {
            told.failures += 1;
            Ok(None)
        }
        Err(refused) => bail!("{}: {}", refused.status, refused.body),
    }
}

impl Watch {
    async fn read(&mut self, events: &mut Events) -> Result<Option<Value>> {
        while let Some(event) = events.next().await? {
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
                "call.completed" | "call.interrupted" | "call.failed" => return Ok(Some(event.data)),
                _ => {}
            }
        }
        Ok(None)
    }
}
