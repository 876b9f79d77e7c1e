//! Clients: they send, wait, lose their connection, come back to another replica with the same call id, and write down
//! what they were told.

use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::model::CallContext;
use holdfast_sidecar::session::{Admitted, CallError, CallRequest, CallView, Follower, News, Status};
use holdfast_sidecar::state::Message;
use holdfast_sidecar::store::{Reply, StoreError};
use tokio::time::{Instant, sleep, timeout};

use super::model::stranger;
use super::plan::{Act, CallPlan, Patience};
use super::pod::{Pod, Process};
use super::stream::Stream;
use super::world::{Interruption, Promise, World};

#[derive(Clone)]
pub struct Client {
    pub world: Arc<World>,
    pub pods: Arc<Vec<Arc<Pod>>>,
}

/// How one connection ended.
enum Said {
    Replied,
    /// It must be asked again.
    Again,
    /// There is nothing more to be had.
    Gone(&'static str),
}

impl Client {
    pub async fn act(self, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Pause(ms) => sleep(Duration::from_millis(ms)).await,
                Act::Call(key) => self.call(&self.world.plan.calls[&key]).await,
                Act::Interrupt { slot, call, message } => self.interrupt(slot, call, message).await,
                Act::Delete(slot) => self.delete(slot).await,
                Act::Clear(slot) => self.clear(slot).await,
                Act::Annotate(slot) => self.annotate(slot).await,
                Act::Redact(slot) => self.redact(slot).await,
                Act::Fork { from, into } => self.fork(from, into).await,
            }
        }
    }

    pub async fn call(&self, plan: &CallPlan) {
        {
            let mut ledger = self.world.ledger();
            let log = ledger.calls.entry(plan.key.clone()).or_default();
            log.slot = plan.slot;
            log.leaves = matches!(plan.patience, Patience::Leaves { .. });
        }
        if plan.twin {
            self.world.count("twins");
            tokio::join!(self.pursue(plan), self.pursue(plan));
        } else {
            self.pursue(plan).await;
        }
        if matches!(plan.patience, Patience::Leaves { .. }) {
            return;
        }
        if plan.retries_failure && self.ended_as(plan) == Some(Status::Failed) {
            self.retry(plan).await;
        }
        if plan.asks_again {
            self.world.count("finished calls sent again");
            self.pursue(plan).await;
        }
        if let Some(log) = self.world.ledger().calls.get_mut(&plan.key) {
            log.settled = true;
        }
    }

    fn ended_as(&self, plan: &CallPlan) -> Option<Status> {
        let ledger = self.world.ledger();
        ledger.calls.get(&plan.key)?.replies.values().last().map(|(status, _)| *status)
    }

    /// Asks until there is a reply or none to be had, over any number of connections and replicas.
    async fn pursue(&self, plan: &CallPlan) {
        let started = Instant::now();
        let mut stream = Stream::default();
        for attempt in 0.. {
            let mut connection = match plan.patience {
                Patience::Patient { connection } => connection,
                Patience::Leaves { after } => after,
            };
            if attempt > 6 {
                // Whoever was too hasty to see a slow call end gets more patient.
                connection += 10_000;
            }
            if let Some(process) = self.pick() {
                if attempt > 0 {
                    self.world.count("calls sent again");
                }
                let talk = process.gate.serve(self.talk(&process, plan, &mut stream));
                match timeout(Duration::from_millis(connection), talk).await {
                    Ok(Some(Said::Replied)) => return,
                    Ok(Some(Said::Gone(why))) => {
                        self.world.trace(|| format!("{} is gone: {why}", plan.key));
                        if let Some(log) = self.world.ledger().calls.get_mut(&plan.key) {
                            log.gone = Some(why);
                        }
                        return;
                    }
                    Ok(Some(Said::Again)) => {}
                    Ok(None) => self.world.count("connections broken"),
                    Err(_) => self.world.count("clients disconnected"),
                }
            }
            if let Patience::Leaves { after } = plan.patience
                && started.elapsed() >= Duration::from_millis(after)
                && self.world.ledger().calls[&plan.key].first_sent.is_some()
            {
                self.world.count("calls abandoned");
                return;
            }
            sleep(Duration::from_millis(self.world.draw(|rng| rng.pick(&[1, 30, 400])))).await;
        }
    }

    pub fn pick(&self) -> Option<Process> {
        let n = self.world.draw(|rng| rng.below(self.pods.len()));
        self.pods[n].process()
    }

    /// One connection.
    async fn talk(&self, process: &Process, plan: &CallPlan, stream: &mut Stream) -> Said {
        let slot = &self.world.plan.slots[plan.slot];
        let resumes = plan.stream && stream.last.is_some() && self.world.draw(|rng| rng.permille(600));
        let follower = if resumes {
            self.world.count("streams resumed");
            process.sessions.follow(slot, &plan.id, stream.last)
        } else {
            let moment = self.world.moment();
            self.world.count("calls sent");
            self.world.trace(|| format!("client sends {} to {}", plan.key, process.gate.name));
            self.log(plan, |log| log.first_sent = log.first_sent.or(Some(moment)));
            match process.sessions.call(slot, self.request(plan)).await {
                Ok(Admitted::Done(reply)) => {
                    self.acknowledged(plan);
                    return self.replied(plan, &reply);
                }
                Ok(Admitted::Live(follower)) => {
                    self.acknowledged(plan);
                    follower
                }
                Err(error) => return self.refused(plan, &error),
            }
        };
        self.listen(plan, follower, stream).await
    }

    pub fn request(&self, plan: &CallPlan) -> CallRequest {
        let text = |n: usize| Message::user(format!("#{}# part {n}", plan.key));
        CallRequest {
            call: plan.id.clone(),
            messages: (0..plan.messages).map(text).collect(),
            context: CallContext::default(),
            stream: plan.stream,
        }
    }

    async fn listen(&self, plan: &CallPlan, mut follower: Follower, stream: &mut Stream) -> Said {
        stream.connected();
        loop {
            let news = if plan.stream { follower.next().await } else { follower.outcome().await };
            match news {
                Ok(News::Events(events)) => {
                    self.world.count("batches of events");
                    for event in &events {
                        stream.take(&self.world, plan, event);
                    }
                }
                Ok(News::Gap(left)) => {
                    self.world.count("gaps");
                    stream.gap();
                    for event in &left {
                        stream.take(&self.world, plan, event);
                    }
                }
                Ok(News::Ended(reply)) => {
                    if plan.stream {
                        stream.ended(&self.world, plan);
                    }
                    return self.replied(plan, &reply);
                }
                Ok(News::LetGo) => {
                    self.world.count("clients let go");
                    return Said::Again;
                }
                Err(error) => return self.refused(plan, &error),
            }
        }
    }

    fn log(&self, plan: &CallPlan, change: impl FnOnce(&mut super::world::CallLog)) {
        change(self.world.ledger().calls.entry(plan.key.clone()).or_default());
    }

    fn acknowledged(&self, plan: &CallPlan) {
        let moment = self.world.moment();
        self.log(plan, |log| log.acknowledged = log.acknowledged.or(Some(moment)));
    }

    fn refused(&self, plan: &CallPlan, error: &CallError) -> Said {
        self.world.trace(|| format!("client hears about {}: {error}", plan.key));
        match error {
            CallError::SessionDeleted => Said::Gone("deleted"),
            CallError::ReplyExpired => Said::Gone("expired"),
            CallError::Conflict => {
                self.world.broken(Promise::Answered, format!("{} is a conflict with itself", plan.key));
                Said::Gone("conflict")
            }
            CallError::Store { error: StoreError::Corrupt(what), .. } => {
                self.world.broken(Promise::Answered, format!("{} met a broken session: {what}", plan.key));
                Said::Gone("broken")
            }
            _ => Said::Again,
        }
    }

    fn replied(&self, plan: &CallPlan, reply: &Reply) -> Said {
        let view = CallView::done(&plan.id, reply).expect("a readable reply");
        let read = |raw: &[u8]| serde_json::from_slice::<Message>(raw).expect("a message");
        let messages: Vec<Message> = view.messages.iter().map(|raw| read(raw)).collect();
        self.world
            .trace(|| format!("client has {:?} for {} at version {:?}", view.status, plan.key, view.version));
        for message in &messages {
            let stranger = stranger(&self.world, message, plan.slot);
            self.world
                .verdict(Promise::I8, stranger.is_none(), || format!("{} was told {stranger:?}", plan.key));
        }
        let ids: Vec<String> = messages.into_iter().map(|message| message.id).collect();
        let mut ledger = self.world.ledger();
        let log = ledger.calls.entry(plan.key.clone()).or_default();
        log.failure = view.error.map(|error| error.r#type);
        let first = log.replies.entry(reply.retry).or_insert_with(|| (view.status, ids.clone()));
        let same = *first == (view.status, ids);
        drop(ledger);
        let same = same || self.world.plan.fails_over();
        self.world.verdict(Promise::Answered, same, || format!("{} got two different replies", plan.key));
        Said::Replied
    }

    /// Goes on with a call that failed.
    async fn retry(&self, plan: &CallPlan) {
        let slot = &self.world.plan.slots[plan.slot];
        for _ in 0..20 {
            let Some(process) = self.pick() else {
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            self.world.trace(|| format!("client retries {} on {}", plan.key, process.gate.name));
            self.log(plan, |log| log.retried = true);
            let context = CallContext::default();
            let talk = async {
                match process.sessions.retry(slot, &plan.id, &context, plan.stream).await {
                    Ok(Admitted::Done(reply)) => self.replied(plan, &reply),
                    Ok(Admitted::Live(follower)) => {
                        self.world.count("failed calls retried");
                        self.listen(plan, follower, &mut Stream::default()).await
                    }
                    Err(CallError::NotRetryable | CallError::UnknownCall) => Said::Gone("not retryable"),
                    Err(error) => self.refused(plan, &error),
                }
            };
            match timeout(Duration::from_secs(20), process.gate.serve(talk)).await {
                Ok(Some(Said::Replied | Said::Gone(_))) => return,
                _ => sleep(Duration::from_millis(300)).await,
            }
        }
    }

    async fn interrupt(&self, slot: usize, call: Option<String>, message: bool) {
        let Some(process) = self.pick() else { return };
        let plan = &self.world.plan;
        let id = call.as_ref().map(|key| plan.calls[key].id.clone());
        let n = self.world.moment();
        let text = message.then(|| format!("#{}/stop{n}# stop", plan.home_of(slot)));
        let marking = process.sessions.interrupt(&plan.slots[slot], id, text.clone());
        let outcome = timeout(Duration::from_secs(10), process.gate.serve(marking)).await;
        self.world.trace(|| format!("client interrupts {call:?} of slot {slot}: {outcome:?}"));
        let (call, marked) = match outcome {
            Ok(Some(Ok(id))) => (super::plan::key_of(&plan.slots[slot], id.as_str()), Some(true)),
            Ok(Some(Err(CallError::NoRunningCall))) => (call.unwrap_or_default(), Some(false)),
            _ => (call.unwrap_or_default(), None),
        };
        self.world.count(if marked == Some(true) { "interrupts" } else { "interrupts too late" });
        self.world.ledger().interruptions.push(Interruption { call, message: text, marked });
    }
}
