//! What the statuses of the Agents say, kept small: thousands say the same words of different times.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use holdfast_crds::AgentStatus;
use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};

use crate::{live::Place, names};

/// Words nobody says any more are swept out when there are this many, and then when there are twice as many as are left.
const FIRST_SWEEP: usize = 256;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Words {
    type_: String,
    status: String,
    reason: String,
    message: String,
}

#[derive(Debug, Clone)]
struct Since {
    words: Arc<Words>,
    generation: Option<i64>,
    /// In seconds, as the API server keeps it.
    since: i64,
}

/// One status.
#[derive(Debug, Clone, Default)]
pub struct Said {
    generation: Option<i64>,
    replicas: i32,
    ready_replicas: i32,
    /// Selector and endpoint are what they are to be; one that says anything else is told anew.
    addressed: bool,
    conditions: Box<[Since]>,
}

/// Every sentence once.
#[derive(Default)]
pub struct Vocabulary(Mutex<(HashSet<Arc<Words>>, usize)>);

impl Vocabulary {
    pub fn keep(&self, agent: &Place, status: &AgentStatus) -> Said {
        let addressed = status.selector == Some(names::selector_text(agent))
            && status.endpoint == Some(names::endpoint(agent));
        Said {
            generation: status.observed_generation,
            replicas: status.replicas,
            ready_replicas: status.ready_replicas,
            addressed,
            conditions: status.conditions.iter().map(|condition| self.condition(condition)).collect(),
        }
    }

    fn condition(&self, condition: &Condition) -> Since {
        let words = Words {
            type_: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone(),
            message: condition.message.clone(),
        };
        Since {
            words: self.words(words),
            generation: condition.observed_generation,
            since: condition.last_transition_time.0.as_second(),
        }
    }

    fn words(&self, words: Words) -> Arc<Words> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, sweep) = &mut *known;
        if let Some(same) = known.get(&words) {
            return Arc::clone(same);
        }
        if known.len() >= (*sweep).max(FIRST_SWEEP) {
            known.retain(|words| Arc::strong_count(words) > 1);
            *sweep = known.len() * 2;
        }
        let words = Arc::new(words);
        known.insert(Arc::clone(&words));
        words
    }
}

impl Said {
    /// The status of this Agent, as it was written.
    pub fn status(&self, agent: &Place) -> AgentStatus {
        let condition = |condition: &Since| {
            let Words { type_, status, reason, message } = &*condition.words;
            Condition {
                type_: type_.clone(),
                status: status.clone(),
                reason: reason.clone(),
                message: message.clone(),
                observed_generation: condition.generation,
                last_transition_time: Time(Timestamp::from_second(condition.since).unwrap_or_default()),
            }
        };
        AgentStatus {
            observed_generation: self.generation,
            replicas: self.replicas,
            ready_replicas: self.ready_replicas,
            selector: self.addressed.then(|| names::selector_text(agent)),
            endpoint: self.addressed.then(|| names::endpoint(agent)),
            conditions: self.conditions.iter().map(condition).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(agent: &Place, message: &str) -> AgentStatus {
        AgentStatus {
            observed_generation: Some(3),
            replicas: 2,
            ready_replicas: 1,
            selector: Some(names::selector_text(agent)),
            endpoint: Some(names::endpoint(agent)),
            conditions: vec![Condition {
                type_: "Ready".into(),
                status: "False".into(),
                reason: "ReplicasUnavailable".into(),
                message: message.into(),
                observed_generation: Some(2),
                last_transition_time: Time(Timestamp::from_second(7).unwrap()),
            }],
        }
    }

    #[test]
    fn a_status_is_given_back_as_it_was() {
        let (agent, vocabulary) = (Place::new("ns", "a"), Vocabulary::default());
        let said = status(&agent, "1 of 2 replicas answer");
        assert_eq!(vocabulary.keep(&agent, &said).status(&agent), said);
        assert_eq!(Said::default().status(&agent), AgentStatus::default());
    }

    #[test]
    fn words_nobody_says_any_more_are_forgotten() {
        let (agent, vocabulary) = (Place::new("ns", "a"), Vocabulary::default());
        let kept = vocabulary.keep(&agent, &status(&agent, "stays"));
        for number in 0..10_000 {
            vocabulary.keep(&agent, &status(&agent, &format!("goes {number}")));
        }
        assert!(vocabulary.0.lock().unwrap().0.len() <= FIRST_SWEEP);
        assert!(Arc::ptr_eq(
            &kept.conditions[0].words,
            &vocabulary.keep(&agent, &status(&agent, "stays")).conditions[0].words
        ));
    }
}
