//! The Agents there are, as their watches tell: each one's manifest as its text, which is a third of what it is once it
//! is read, and what its status says.

mod said;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use holdfast_crds::{Agent, AgentSpec, AgentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{
    ResourceExt as _,
    core::{PartialObjectMeta, PartialObjectMetaExt as _},
    runtime::watcher::Event,
};

use crate::{live::Place, names::PAUSED_ANNOTATION, seen::SeenAgent, word::Word};
use said::{Said, Vocabulary};

/// An Agent between two looks.
#[derive(Debug, Clone)]
pub struct Kept {
    uid: Word,
    version: Word,
    generation: Option<i64>,
    deleted: Option<Time>,
    /// What stands in the one annotation that means something to us.
    paused: Option<Box<str>>,
    spec: Arc<str>,
    said: Said,
    /// The version it has with a status of ours that the watch has not shown yet.
    written: Option<Word>,
    /// A status of ours is under way: another status that is seen meanwhile may be that one.
    writing: bool,
}

impl Kept {
    fn meta(&self, place: &Place) -> ObjectMeta {
        let paused = self.paused.as_ref().map(|value| (PAUSED_ANNOTATION.to_owned(), value.to_string()));
        ObjectMeta {
            name: Some(place.name().to_owned()),
            namespace: Some(place.namespace().to_owned()),
            uid: Some(self.uid.to_string()),
            generation: self.generation,
            deletion_timestamp: self.deleted.clone(),
            annotations: paused.map(|pair| [pair].into()),
            ..ObjectMeta::default()
        }
    }

    pub fn read(&self, place: &Place) -> Result<Agent, serde_json::Error> {
        let spec: AgentSpec = serde_json::from_str(&self.spec)?;
        Ok(Agent { metadata: self.meta(place), spec, status: None })
    }

    /// Who it is, where what it says cannot be read.
    pub fn identity(&self, place: &Place) -> PartialObjectMeta<Agent> {
        self.meta(place).into_response_partial()
    }

    pub fn status(&self, place: &Place) -> AgentStatus {
        self.said.status(place)
    }
}

/// Every Agent there is.
#[derive(Default)]
pub struct Agents {
    kept: Mutex<HashMap<Place, Kept>>,
    vocabulary: Vocabulary,
}

impl Agents {
    pub fn get(&self, place: &Place) -> Option<(Place, Kept)> {
        // The map's own name for it, so that there is one.
        self.lock().get_key_value(place).map(|(place, kept)| (place.clone(), kept.clone()))
    }

    /// A status is about to be sent: until this is dropped, or its answer noted, a status that is seen is no news.
    /// Whoever gives up meanwhile will look again.
    pub fn writes(&self, place: &Place) -> Writing<'_> {
        self.set_writing(place, true);
        Writing { agents: self, place: place.clone() }
    }

    /// Its status was written and this is its version with it. Whether more has happened to it since.
    pub fn wrote(&self, place: &Place, version: Word, status: &AgentStatus) -> bool {
        let said = self.vocabulary.keep(place, status);
        let mut kept = self.lock();
        let Some(kept) = kept.get_mut(place) else { return false };
        kept.writing = false;
        if version.is_older_than(&kept.version) {
            return true;
        }
        kept.said = said;
        kept.written = Some(version).filter(|version| *version != kept.version);
        false
    }

    /// Takes over what a watch has shown. Whether it is more than the status that we have just written.
    fn see(&self, agent: &SeenAgent) -> bool {
        let (place, version) = (Place::of(agent), Word::from(agent.meta.resource_version.as_ref()));
        let mut all = self.lock();
        let mut before = all.get_mut(&place).filter(|kept| kept.uid == agent.meta.uid.as_ref().into());
        if let Some(kept) = before.as_mut().filter(|kept| kept.written.as_ref() == Some(&version)) {
            (kept.version, kept.written) = (version, None);
            return false;
        }
        let written = before.as_ref().and_then(|kept| kept.written.clone());
        let written = written.filter(|at| version.is_older_than(at));
        let said = match &before {
            // What it says of itself is from before we wrote.
            Some(kept) if written.is_some() => kept.said.clone(),
            _ => self.said(&place, agent),
        };
        let mut now = Kept {
            uid: agent.meta.uid.as_ref().into(),
            generation: agent.meta.generation,
            deleted: agent.meta.deletion_timestamp.clone(),
            paused: agent.annotations().get(PAUSED_ANNOTATION).map(|value| value.as_str().into()),
            spec: agent.spec.get().into(),
            said,
            written,
            writing: false,
            version,
        };
        let asks_the_same = |kept: &Kept| {
            (kept.generation, &kept.deleted, &kept.paused) == (now.generation, &now.deleted, &now.paused)
        };
        let perhaps_ours = before.as_ref().is_some_and(|kept| kept.writing && asks_the_same(kept));
        now.writing = before.is_some_and(|kept| kept.writing);
        all.insert(place, now);
        !perhaps_ours
    }

    fn set_writing(&self, place: &Place, writing: bool) {
        if let Some(kept) = self.lock().get_mut(place) {
            kept.writing = writing;
        }
    }

    /// As far as it can be read.
    fn said(&self, place: &Place, agent: &SeenAgent) -> Said {
        let status = agent.status.as_ref().and_then(|status| serde_json::from_str(status.get()).ok());
        status.map(|status: AgentStatus| self.vocabulary.keep(place, &status)).unwrap_or_default()
    }

    fn remove(&self, place: &Place) -> bool {
        self.lock().remove(place).is_some()
    }

    fn of_namespace(&self, namespace: &str) -> Vec<Place> {
        let kept = self.lock();
        kept.keys().filter(|place| namespace.is_empty() || place.namespace() == namespace).cloned().collect()
    }

    /// The map holds no invariant that a panic elsewhere could have broken.
    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Writing<'a> {
    agents: &'a Agents,
    place: Place,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.agents.set_writing(&self.place, false);
    }
}

/// What an event of the Agents' watch calls for.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    /// Look at it.
    Changed(Place),
    Gone(Vec<Place>),
    /// All there are have been listed; these are there no more.
    Listed(Vec<Place>),
}

/// One watch's part in it.
pub struct Follower {
    agents: Arc<Agents>,
    /// Empty: all.
    namespace: Box<str>,
    listed: HashSet<Place>,
}

impl Follower {
    pub fn new(agents: Arc<Agents>, namespace: &str) -> Self {
        Self { agents, namespace: namespace.into(), listed: HashSet::new() }
    }

    pub fn take(&mut self, event: &Event<SeenAgent>) -> Heard {
        match event {
            Event::Init => {
                self.listed.clear();
                Heard::Nothing
            }
            Event::InitApply(agent) => {
                self.agents.see(agent);
                let place = Place::of(agent);
                self.listed.insert(place.clone());
                Heard::Changed(place)
            }
            Event::InitDone => {
                let listed = std::mem::take(&mut self.listed);
                let mut gone = self.agents.of_namespace(&self.namespace);
                gone.retain(|place| !listed.contains(place) && self.agents.remove(place));
                Heard::Listed(gone)
            }
            Event::Apply(agent) if self.agents.see(agent) => Heard::Changed(Place::of(agent)),
            Event::Apply(_) => Heard::Nothing,
            Event::Delete(agent) => {
                let place = Place::of(agent);
                self.agents.remove(&place);
                Heard::Gone(vec![place])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_crds::AgentStatus;
    use serde_json::json;

    use super::*;

    fn agent(version: &str, generation: i64, replicas: i32) -> SeenAgent {
        serde_json::from_value(json!({
            "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": version, "generation": generation,
                "annotations": {"holdfast.dev/paused": "true", "kubectl": "long"}},
            "spec": {"model": {"provider": "Scripted"}, "replicas": generation},
            "status": {"replicas": replicas},
        }))
        .unwrap()
    }

    fn follower() -> (Place, Arc<Agents>, Follower) {
        let agents = Arc::new(Agents::default());
        (Place::new("ns", "a"), Arc::clone(&agents), Follower::new(agents, ""))
    }

    #[test]
    fn an_agent_is_given_back_as_it_was() {
        let (place, agents, mut follower) = follower();
        assert_eq!(follower.take(&Event::Apply(agent("5", 2, 7))), Heard::Changed(place.clone()));
        let (_, kept) = agents.get(&place).unwrap();
        let read = kept.read(&place).unwrap();
        assert_eq!(
            (read.name_any(), read.namespace().unwrap(), read.uid().unwrap()),
            ("a".into(), "ns".into(), "u".into())
        );
        assert_eq!((read.spec.replicas, read.metadata.generation), (Some(2), Some(2)));
        assert!(crate::names::is_paused(&read));
        assert_eq!(kept.status(&place).replicas, 7);
    }

    #[test]
    fn a_status_of_our_own_is_no_news_and_an_older_one_is_not_believed() {
        let (place, agents, mut follower) = follower();
        follower.take(&Event::Apply(agent("5", 1, 0)));
        let ours = AgentStatus { replicas: 3, ..AgentStatus::default() };
        agents.wrote(&place, "8".into(), &ours);
        // Somebody was quicker than we: what they asked for is news, what it says of itself is not.
        assert_eq!(follower.take(&Event::Apply(agent("7", 2, 0))), Heard::Changed(place.clone()));
        let (_, kept) = agents.get(&place).unwrap();
        assert_eq!((kept.status(&place).replicas, kept.generation), (3, Some(2)));
        assert_eq!(follower.take(&Event::Apply(agent("8", 2, 3))), Heard::Nothing);
        // Somebody else wrote the status.
        assert_eq!(follower.take(&Event::Apply(agent("9", 2, 4))), Heard::Changed(place.clone()));
        assert_eq!(agents.get(&place).unwrap().1.status(&place).replicas, 4);
        assert!(agents.wrote(&place, "8".into(), &ours), "an answer that arrives after what followed it");
        assert_eq!(agents.get(&place).unwrap().1.status(&place).replicas, 4);
    }

    #[test]
    fn an_event_that_overtakes_the_answer_is_no_news_unless_it_asks_for_something_else() {
        let (place, agents, mut follower) = follower();
        follower.take(&Event::Apply(agent("5", 1, 0)));
        let ours = AgentStatus { replicas: 3, ..AgentStatus::default() };
        let writing = agents.writes(&place);
        assert_eq!(follower.take(&Event::Apply(agent("6", 1, 3))), Heard::Nothing);
        assert!(!agents.wrote(&place, "6".into(), &ours));
        drop(writing);
        let writing = agents.writes(&place);
        assert_eq!(follower.take(&Event::Apply(agent("7", 2, 3))), Heard::Changed(place.clone()));
        assert_eq!(follower.take(&Event::Apply(agent("8", 2, 9))), Heard::Nothing);
        assert!(agents.wrote(&place, "7".into(), &ours), "somebody wrote a status after us");
        drop(writing);
        drop(agents.writes(&place));
        assert_eq!(
            follower.take(&Event::Apply(agent("9", 2, 9))),
            Heard::Changed(place),
            "whoever gave up hears of it"
        );
    }

    #[test]
    fn what_is_listed_no_more_is_gone() {
        let (place, agents, mut follower) = follower();
        assert_eq!(follower.take(&Event::Init), Heard::Nothing);
        assert_eq!(follower.take(&Event::InitApply(agent("5", 1, 0))), Heard::Changed(place.clone()));
        assert_eq!(follower.take(&Event::InitDone), Heard::Listed(Vec::new()));
        follower.take(&Event::Init);
        assert_eq!(follower.take(&Event::InitDone), Heard::Listed(vec![place.clone()]));
        assert!(agents.get(&place).is_none());
    }
}
