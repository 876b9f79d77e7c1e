//! Events: what `kubectl describe` shows of every change of mind. The same one again is counted, not repeated.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::{
    api::{
        core::v1::ObjectReference,
        events::v1::{Event, EventSeries},
    },
    apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{
    Client, Error, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams, Request},
};
use serde::de::IgnoredAny;
use serde_json::json;

use crate::names::FIELD_MANAGER;

/// How long the same Event is one with those before it.
const SERIES: Duration = Duration::from_secs(360);
/// How many are remembered at most; beyond them an Event is told anew.
const REMEMBERED: usize = 1000;
/// The API server takes no longer note.
const LONGEST_NOTE: usize = 1000;

struct Told {
    /// A hash of the Agent and what was said of it.
    about: u64,
    event: String,
    count: i32,
    at: Instant,
}

pub struct Events {
    client: Client,
    instance: String,
    told: Mutex<VecDeque<Told>>,
}

impl Events {
    pub fn new(client: Client, instance: String) -> Self {
        Self { client, instance, told: Mutex::default() }
    }

    /// Tells that an Agent's condition is now like this. A warning is what somebody should look at.
    pub async fn tell<A: Resource<DynamicType = ()>>(
        &self,
        agent: &A,
        condition: &Condition,
        warning: bool,
    ) -> Result<(), Error> {
        let mut about = DefaultHasher::new();
        (&agent.meta().uid, &condition.type_, &condition.status, &condition.reason).hash(&mut about);
        let about = about.finish();
        let namespace = agent.namespace().unwrap_or_default();
        let events = Request::new(Event::url_path(&(), Some(&namespace)));
        let now = Timestamp::now();
        let request = if let Some((event, count)) = self.again(about) {
            let series = EventSeries { count, last_observed_time: MicroTime(now) };
            events.patch(&event, &PatchParams::default(), &Patch::Merge(json!({"series": series})))
        } else {
            let name = format!("{}.{:x}", agent.name_any(), now.as_nanosecond());
            let event = self.event(agent, condition, warning, name.clone(), now);
            self.remember(about, name);
            events.create(&PostParams::default(), serde_json::to_vec(&event).map_err(Error::SerdeError)?)
        };
        self.client.request::<IgnoredAny>(request.map_err(Error::BuildRequest)?).await.map(drop)
    }

    /// The Event that told the same not long ago, and how often it has been told with this time.
    fn again(&self, about: u64) -> Option<(String, i32)> {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let found = told.iter_mut().find(|told| told.about == about && told.at.elapsed() < SERIES)?;
        found.count += 1;
        found.at = Instant::now();
        Some((found.event.clone(), found.count))
    }

    fn remember(&self, about: u64, event: String) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|told| told.about != about);
        told.truncate(REMEMBERED - 1);
        told.push_front(Told { about, event, count: 1, at: Instant::now() });
    }

    fn event<A: Resource<DynamicType = ()>>(
        &self,
        agent: &A,
        condition: &Condition,
        warning: bool,
        name: String,
        now: Timestamp,
    ) -> Event {
        Event {
            metadata: ObjectMeta { name: Some(name), namespace: agent.namespace(), ..ObjectMeta::default() },
            regarding: Some(ObjectReference { resource_version: None, ..agent.object_ref(&()) }),
            type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
            reason: Some(condition.reason.clone()),
            action: Some(condition.type_.clone()),
            note: Some(condition.message.chars().take(LONGEST_NOTE).collect()),
            event_time: Some(MicroTime(now)),
            reporting_controller: Some(FIELD_MANAGER.to_owned()),
            reporting_instance: Some(self.instance.clone()),
            ..Event::default()
        }
    }
}
