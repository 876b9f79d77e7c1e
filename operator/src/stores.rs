//! Which stores there are, who uses them, and what each said when it was last asked.
//!
//! A store is asked once for all its Agents, and again every few minutes by a task of its own: the first look at an
//! Agent waits for the answer, because nothing is made for a store that refuses us; no later one does, so that a store
//! that is slow to answer slows nobody.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures::{StreamExt as _, stream};
use holdfast_crds::{ConfigMapKeyRef, SecretKeyRef};
use kube::Client;
use tokio::{
    sync::{OnceCell, mpsc::UnboundedSender},
    time::sleep,
};

use crate::{
    conditions::Truth,
    error::Error,
    live::Place,
    lookup,
    store_check::{self, Address, Outcome},
};

/// A store is asked again after this long, sooner where there is something for somebody to put right.
const RECHECK_WELL: Duration = Duration::from_secs(300);
const RECHECK_UNWELL: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_secs(1);
/// Asked at the same time, of those that are due.
const AT_ONCE: usize = 8;

/// Where a store is said to be. A new version of anything it is made of is another question.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// Of the Secret, of the certificates and of a short name; empty where there are none.
    pub namespace: String,
    pub url: Option<String>,
    pub url_from: Option<SecretKeyRef>,
    pub authorities_in_secret: Option<SecretKeyRef>,
    pub authorities_in_config_map: Option<ConfigMapKeyRef>,
    pub versions: Vec<String>,
}

#[derive(Default)]
struct Asked {
    /// Only one asks first; whoever comes meanwhile waits for the same answer.
    first: OnceCell<()>,
    answer: Mutex<Option<(Outcome, Instant)>>,
    agents: Mutex<BTreeSet<Place>>,
}

impl Asked {
    fn answered(&self, outcome: Outcome) {
        *lock(&self.answer) = Some((outcome, Instant::now()));
    }

    fn is_due(&self) -> bool {
        lock(&self.answer).as_ref().is_some_and(|(outcome, at)| {
            let well = outcome.ready.truth == Truth::True && outcome.durable.truth == Truth::True;
            at.elapsed() >= if well { RECHECK_WELL } else { RECHECK_UNWELL }
        })
    }
}

#[derive(Default)]
struct Known {
    by_question: HashMap<Arc<Question>, Arc<Asked>>,
    by_agent: HashMap<Place, Arc<Question>>,
}

#[derive(Default)]
pub struct Stores {
    known: Mutex<Known>,
}

impl Stores {
    /// What the store of this Agent says of itself.
    pub async fn ask(&self, client: &Client, agent: &Place, question: Question) -> Result<Outcome, Error> {
        let (question, asked) = self.register(agent, question);
        asked
            .first
            .get_or_try_init(|| async {
                asked.answered(answer(client, &question).await?);
                Ok::<_, Error>(())
            })
            .await?;
        let outcome = lock(&asked.answer).as_ref().map(|(outcome, _)| outcome.clone());
        Ok(outcome.unwrap_or_else(|| Outcome::not_checked("the store has not been asked yet")))
    }

    fn register(&self, agent: &Place, question: Question) -> (Arc<Question>, Arc<Asked>) {
        let mut known = lock(&self.known);
        if known.by_agent.get(agent).is_none_or(|before| **before != question) {
            known.forget(agent);
            let question = match known.by_question.get_key_value(&question) {
                Some((question, _)) => Arc::clone(question),
                None => Arc::new(question),
            };
            let asked = Arc::clone(known.by_question.entry(Arc::clone(&question)).or_default());
            lock(&asked.agents).insert(agent.clone());
            known.by_agent.insert(agent.clone(), Arc::clone(&question));
            return (question, asked);
        }
        let question = Arc::clone(&known.by_agent[agent]);
        let asked = Arc::clone(known.by_question.entry(Arc::clone(&question)).or_default());
        (question, asked)
    }

    pub fn forget(&self, agent: &Place) {
        lock(&self.known).forget(agent);
    }

    /// For ever: asks again what is due, and wakes the Agents of a store that has changed its mind.
    pub async fn keep_asking(&self, client: &Client, wake: &UnboundedSender<Place>) {
        loop {
            sleep(TICK).await;
            let due: Vec<(Arc<Question>, Arc<Asked>)> = lock(&self.known)
                .by_question
                .iter()
                .filter(|(_, asked)| asked.is_due())
                .map(|(question, asked)| (Arc::clone(question), Arc::clone(asked)))
                .collect();
            let again = |(question, asked): (Arc<Question>, Arc<Asked>)| async move {
                let before = lock(&asked.answer).as_ref().map(|(outcome, _)| outcome.clone());
                // Where the API server does not answer, nothing new is known of the store.
                let now = answer(client, &question).await.ok().or_else(|| before.clone());
                let changed = now != before;
                if let Some(now) = now {
                    asked.answered(now);
                }
                if changed {
                    for agent in lock(&asked.agents).iter() {
                        // Nobody listens any more only when the operator stops.
                        let _ = wake.send(agent.clone());
                    }
                }
            };
            stream::iter(due).for_each_concurrent(AT_ONCE, again).await;
        }
    }
}

impl Known {
    fn forget(&mut self, agent: &Place) {
        let Some(question) = self.by_agent.remove(agent) else { return };
        let unused = self.by_question.get(&question).is_some_and(|asked| {
            let mut agents = lock(&asked.agents);
            agents.remove(agent);
            agents.is_empty()
        });
        if unused {
            self.by_question.remove(&question);
        }
    }
}

async fn answer(client: &Client, question: &Question) -> Result<Outcome, Error> {
    let Question { namespace, url, url_from, authorities_in_secret, authorities_in_config_map, versions: _ } =
        question;
    let url = match url_from {
        Some(from) => {
            let bytes = lookup::secret_value(client, namespace, from).await?;
            bytes.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        }
        None => url.clone(),
    };
    let Some(url) = url else { return Ok(Outcome::not_checked("the store's address is not known yet")) };
    let certificate_authorities = match (authorities_in_config_map, authorities_in_secret) {
        (Some(from), _) => lookup::config_map_value(client, namespace, from).await?.map(String::into_bytes),
        (None, Some(from)) => lookup::secret_value(client, namespace, from).await?,
        (None, None) => None,
    };
    Ok(store_check::check(Address { url, namespace: namespace.clone(), certificate_authorities }).await)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
