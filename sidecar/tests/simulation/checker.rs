//! The judge. It reads what clients were told, what the model and the tools wrote down, and the last states, and nothing
//! of what the replicas believe.

use std::collections::BTreeMap;

use holdfast_sidecar::state::{AgentState, Role};
use holdfast_sidecar::tools::Safety;

use super::plan::CallPlan;
use super::world::{CallLog, Ledger, Promise, UpheavalKind, World, marks, print_of};

/// The last history of one slot, as its client reads it.
struct History {
    slot: usize,
    ids: Vec<String>,
    prints: Vec<u64>,
    /// Whether a message is a user's: there a history may be cut to fit the model.
    begins_a_turn: Vec<bool>,
    /// Where each call's messages stand, in order.
    turns: BTreeMap<String, Vec<usize>>,
    /// Where each other mark of a user's message stands.
    notes: BTreeMap<String, usize>,
    /// Where the answer to each question of the model stands.
    answers: Vec<(usize, usize)>,
    version: u64,
}

impl History {
    fn read(world: &World, slot: usize, state: Option<&AgentState>) -> Self {
        let context = state.map_or(&[][..], |state| &state.context);
        let mut history = Self {
            slot,
            ids: context.iter().map(|message| message.id.clone()).collect(),
            prints: context.iter().map(print_of).collect(),
            begins_a_turn: context.iter().map(|message| message.role == Role::User).collect(),
            turns: BTreeMap::new(),
            notes: BTreeMap::new(),
            answers: Vec::new(),
            version: state.map_or(0, |state| state.version),
        };
        for (at, message) in context.iter().enumerate() {
            let text = message.text();
            match message.role {
                Role::User => {
                    let Some(mark) = marks(&text).next() else { continue };
                    if world.plan.calls.contains_key(mark) {
                        history.turns.entry(mark.to_owned()).or_default().push(at);
                    } else {
                        *history.notes.entry(text.clone()).or_default() += 1;
                    }
                }
                Role::Assistant if !message.interrupted => {
                    let number = text.strip_prefix('a').and_then(|text| text.split(' ').next());
                    history.answers.extend(number.and_then(|n| n.parse().ok()).map(|n: usize| (at, n)));
                }
                _ => {}
            }
        }
        history
    }
}

struct Judge<'a> {
    world: &'a World,
    ledger: &'a Ledger,
    histories: Vec<History>,
}

pub fn judge(world: &World, states: &[Option<AgentState>]) {
    let histories: Vec<History> =
        states.iter().enumerate().map(|(slot, state)| History::read(world, slot, state.as_ref())).collect();
    let ledger = std::mem::take(&mut *world.ledger());
    let judge = Judge { world, ledger: &ledger, histories };
    let (tally, violations) = {
        judge.calls();
        judge.order();
        judge.replies();
        judge.tools();
        judge.notes();
        judge.budget();
        let mut found = world.ledger();
        (std::mem::take(&mut found.tally), std::mem::take(&mut found.violations))
    };
    let mut kept = ledger;
    kept.tally.add(&tally);
    kept.violations.extend(violations);
    *world.ledger() = kept;
}

impl Judge<'_> {
    fn logs(&self) -> impl Iterator<Item = (&CallPlan, &CallLog)> {
        self.ledger.calls.iter().map(|(key, log)| (&self.world.plan.calls[key], log))
    }

    /// Whether somebody has ended the promises about this call by hand.
    fn released(&self, log: &CallLog) -> bool {
        self.ledger.upheavals.iter().any(|upheaval| {
            upheaval.slot == log.slot
                && matches!(upheaval.kind, UpheavalKind::Delete | UpheavalKind::Clear | UpheavalKind::Redact)
                && upheaval.done != Some(false)
                && log.first_sent.is_none_or(|sent| sent < upheaval.to)
        })
    }

    /// I1, I2, I3 and that everybody who stayed was answered.
    fn calls(&self) {
        let world = self.world;
        for (plan, log) in self.logs() {
            let history = &self.histories[plan.slot];
            let none = Vec::new();
            let found = history.turns.get(&plan.key).unwrap_or(&none);
            let twice = found.len() > plan.messages;
            world.verdict(Promise::I3, !twice, || format!("{} is in the history twice: {found:?}", plan.key));
            let released = self.released(log);
            if !released {
                if log.acknowledged.is_some() {
                    world.verdict(Promise::I1, found.len() >= plan.messages, || {
                        format!("{} was accepted, and {found:?} of its messages are there", plan.key)
                    });
                }
                if let Some((status, ids)) = log.replies.values().last() {
                    let after = found.last().map_or(0, |last| last + 1);
                    let there = history.ids.get(after..after + ids.len()) == Some(ids);
                    let kept = world.plan.fails_over() || (!found.is_empty() && there);
                    world.verdict(Promise::I2, kept, || {
                        format!("{} ended as {status:?}, and its reply is not in the history", plan.key)
                    });
                }
                world.verdict(Promise::Answered, log.gone.is_none(), || {
                    format!("{} was lost to its client: {:?}", plan.key, log.gone)
                });
            }
            if !log.leaves {
                let answered = log.gone.is_some() || !log.replies.is_empty();
                world.verdict(Promise::Answered, log.settled && answered, || {
                    format!("{} was asked for to the end and never answered", plan.key)
                });
            }
            self.buried(plan, log, found);
        }
    }

    /// What was in before a delete is not there after it, however often it is sent again.
    fn buried(&self, plan: &CallPlan, log: &CallLog, found: &[usize]) {
        let here = |kind| {
            let of_slot = self.ledger.upheavals.iter().filter(|upheaval| upheaval.slot == plan.slot);
            of_slot.filter(move |upheaval| upheaval.kind == kind)
        };
        if here(UpheavalKind::Redact).next().is_some() {
            return;
        }
        for delete in here(UpheavalKind::Delete).filter(|delete| delete.done == Some(true)) {
            if log.acknowledged.is_some_and(|moment| moment < delete.from) {
                self.world.verdict(Promise::I3, found.is_empty(), || {
                    format!("{} was deleted and ran again", plan.key)
                });
            }
        }
    }

    /// I4: who was in before another was sent stands before it.
    fn order(&self) {
        for (first, early) in self.logs() {
            for (second, late) in self.logs().filter(|(second, _)| second.slot == first.slot) {
                let (Some(acknowledged), Some(sent)) = (early.acknowledged, late.first_sent) else {
                    continue;
                };
                if acknowledged > sent || self.released(early) || self.released(late) {
                    continue;
                }
                let turns = &self.histories[first.slot].turns;
                if let (Some(a), Some(b)) = (turns.get(&first.key), turns.get(&second.key)) {
                    self.world.verdict(Promise::I4, a.last() < b.first(), || {
                        format!("{} was in before {} was sent and stands after it", first.key, second.key)
                    });
                }
            }
        }
    }

    /// I5: what the model saw is what stands before its answer; versions step by one.
    fn replies(&self) {
        for history in &self.histories {
            for (at, n) in &history.answers {
                let ask = &self.ledger.asks[*n];
                let Some(log) = self.ledger.calls.get(&ask.call) else { continue };
                if log.slot != history.slot || self.released(log) {
                    continue;
                }
                let cut = at.saturating_sub(ask.transcript.len());
                let windowed = self.world.plan.settings.context_window < 1_000;
                if cut > 0 && windowed {
                    self.world.count("histories cut to fit");
                }
                let at_a_turn = cut == 0 || (windowed && history.begins_a_turn[cut]);
                let same = at_a_turn && ask.transcript[..] == history.prints[cut..*at];
                self.world.verdict(Promise::I5, same, || {
                    let common =
                        ask.transcript.iter().zip(&history.prints).take_while(|(a, b)| a == b).count();
                    format!(
                        "a{n} of {} was made from {} messages and stands after {at}; {common} are the same",
                        ask.call,
                        ask.transcript.len()
                    )
                });
            }
            let by_hand = self.ledger.upheavals.iter().any(|upheaval| upheaval.slot == history.slot);
            let retried = self.logs().any(|(plan, log)| plan.slot == history.slot && log.retried);
            if !by_hand && !retried {
                let turns = history.turns.len() as u64;
                self.world.verdict(Promise::I5, history.version == turns, || {
                    format!("slot {}: {turns} turns and version {}", history.slot, history.version)
                });
            }
        }
    }

    /// I6, by the key and by what the model asked for; and a key is one tool call's alone.
    fn tools(&self) {
        let mut by_key = BTreeMap::<&str, Vec<&str>>::new();
        let mut by_wish = BTreeMap::<&str, usize>::new();
        for run in &self.ledger.tool_runs {
            let wishes = by_key.entry(&run.key).or_default();
            self.world.verdict(Promise::I6, wishes.iter().all(|wish| *wish == run.wanted), || {
                format!("one key for {} and {wishes:?} of {}", run.wanted, run.call)
            });
            if run.safety == Safety::Unsafe {
                let times = by_wish.entry(&run.wanted).or_default();
                *times += 1;
                let once = *times == 1 && wishes.is_empty();
                self.world.verdict(Promise::I6, once, || format!("{} of {} ran twice", run.wanted, run.call));
            }
            wishes.push(&run.wanted);
        }
    }

    /// I1 and I3 for what was put by hand and for what an interrupter wanted said.
    fn notes(&self) {
        for (slot, text, done) in &self.ledger.annotations {
            let times = self.histories[*slot].notes.get(text).copied().unwrap_or(0);
            self.world.verdict(Promise::I3, times <= 1, || format!("{text} is there {times} times"));
            let upheaved = self.ledger.upheavals.iter().any(|upheaval| {
                upheaval.slot == *slot
                    && !matches!(upheaval.kind, UpheavalKind::Annotate)
                    && upheaval.done != Some(false)
            });
            if *done == Some(true) && !upheaved {
                self.world.verdict(Promise::I1, times == 1, || format!("{text} was put and is gone"));
            }
        }
        for interruption in &self.ledger.interruptions {
            let (Some(text), Some(log)) = (&interruption.message, self.ledger.calls.get(&interruption.call))
            else {
                continue;
            };
            let times = self.histories[log.slot].notes.get(text).copied().unwrap_or(0);
            self.world.verdict(Promise::I3, times <= 1, || format!("{text} is there {times} times"));
            // Whether it came in time to stop anything or not.
            let kept = !self.world.plan.fails_over() && !self.released(log);
            if kept && interruption.marked == Some(true) {
                self.world
                    .verdict(Promise::I1, times == 1, || format!("{text} was accepted and is not there"));
            }
        }
    }

    /// A poisonous call kills at most as often as it may; nobody is given up who did not lose three holders.
    fn budget(&self) {
        let attempts = self.world.plan.settings.recovery_attempts as usize;
        for (plan, log) in self.logs() {
            if plan.poison.is_some() {
                let kills = self.ledger.killed_by.get(&plan.key).copied().unwrap_or(0) as usize;
                // A retry by hand starts a new count.
                let limit = attempts * if log.retried { 21 } else { 1 };
                self.world.verdict(Promise::Budget, kills <= limit, || {
                    format!("{} killed {kills} replicas", plan.key)
                });
            }
            if log.failure.as_deref() == Some("recovery-exhausted") {
                let losses: u64 = LOSSES.iter().map(|what| self.ledger.tally.of(what)).sum();
                let poison = self.ledger.tally.of("kills by a poisonous message");
                // One poisonous message does not condemn its neighbours.
                let own = plan.poison.is_some() || losses > 0;
                self.world.verdict(Promise::Budget, own && losses + poison >= attempts as u64, || {
                    format!("{} was given up after {losses} losses and {poison} by poison", plan.key)
                });
            }
        }
    }
}

/// What can cost a holder its lease, beside a poisonous message.
const LOSSES: [&str; 9] = [
    "kills at a time",
    "kills before an operation",
    "kills after an operation",
    "pauses past the lease",
    "short pauses",
    "drains",
    "outages",
    "partitions",
    "slow operations",
];
