//! A schedule before it runs: everything a seed decides, except what depends on the order things happen in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use holdfast_sidecar::session::{Durability, Settings};
use holdfast_sidecar::state::{Id, Message, Role, Slot};
use holdfast_sidecar::store::{Limits, OnBusy};
use holdfast_sidecar::tools::Safety;

use super::rng::Rng;
use super::world::{home, marks};

/// One schedule.
#[derive(Debug, Clone)]
pub struct Plan {
    pub seed: u64,
    pub pods: usize,
    pub slots: Vec<Slot>,
    pub limits: Limits,
    pub settings: Settings,
    pub clients: Vec<Vec<Act>>,
    pub calls: BTreeMap<String, CallPlan>,
    pub timed: Vec<(u64, Fault)>,
    pub odds: Odds,
    pub hearing: Hearing,
    /// When the last fault may begin, in virtual milliseconds.
    pub troubled_until: u64,
    /// The judge is shown a history that lacks a message.
    pub canary: bool,
    /// After the verdict, time passes until replies and then the session itself are forgotten.
    pub outlasts: bool,
}

/// What a client does, one after another.
#[derive(Debug, Clone)]
pub enum Act {
    Call(String),
    Pause(u64),
    /// `None`: whichever call is at the head.
    Interrupt {
        slot: usize,
        call: Option<String>,
        message: bool,
    },
    Delete(usize),
    Clear(usize),
    /// Reads the state and puts it back one message longer.
    Annotate(usize),
    /// Reads the state, deletes the session, puts the state back with its first message made unreadable.
    Redact(usize),
    Fork {
        from: usize,
        into: usize,
    },
}

/// One call and how everybody behaves about it.
#[derive(Debug, Clone)]
pub struct CallPlan {
    /// `user/session/call`: in every text that belongs to it.
    pub key: String,
    pub slot: usize,
    pub id: Id,
    pub messages: usize,
    pub patience: Patience,
    pub stream: bool,
    /// The same request twice at once, to two replicas.
    pub twin: bool,
    /// Send the finished call once more.
    pub asks_again: bool,
    pub retries_failure: bool,
    pub script: Vec<Said>,
    /// The replica dies so long after it asked the model.
    pub poison: Option<u64>,
}

/// How long a client stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Until it has its reply, over any number of connections, each held so long at most.
    Patient { connection: u64 },
    /// Sends it, stays so long, and never comes back.
    Leaves { after: u64 },
}

/// What the model does when it is asked the n-th time in a call.
#[derive(Debug, Clone)]
pub enum Said {
    Answer {
        ms: u64,
        pieces: usize,
        reset: bool,
    },
    Tools {
        ms: u64,
        tools: Vec<ToolPlan>,
        same_ids: bool,
    },
    /// Fails so many times, then answers.
    Fails {
        ms: u64,
        times: u32,
    },
    /// Asks for tools for ever.
    Endless {
        ms: u64,
    },
}

#[derive(Debug, Clone, Copy)]
pub struct ToolPlan {
    pub safety: Safety,
    pub ms: u64,
    pub fails: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Fault {
    Kill {
        pod: usize,
    },
    Stop {
        pod: usize,
        ms: u64,
    },
    Drain {
        pod: usize,
        relay: u64,
    },
    /// Nobody reaches the store.
    Outage {
        ms: u64,
    },
    /// One replica does not reach the store.
    Partition {
        pod: usize,
        ms: u64,
    },
    /// So long after it began the store is again what it was then.
    Failover {
        ms: u64,
    },
}

/// Of each store operation, per mille.
#[derive(Debug, Clone, Copy, Default)]
pub struct Odds {
    pub lost_reply: u64,
    pub undelivered: u64,
    pub slow: u64,
    pub crash_before: u64,
    pub crash_after: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hearing {
    All,
    /// Every second announcement is lost.
    Half,
    Nothing,
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        let slots = (0..rng.between(1, 3)).map(|n| slot(rng, n)).collect::<Vec<_>>();
        let mut plan = Self {
            seed,
            pods: rng.between(2, 3) as usize,
            slots,
            limits: Limits::default(),
            settings: Settings { lease: Limits::default().lease, ..settings(rng) },
            clients: Vec::new(),
            calls: BTreeMap::new(),
            timed: Vec::new(),
            odds: Odds::default(),
            hearing: rng.pick(&[Hearing::All, Hearing::All, Hearing::Half, Hearing::Nothing]),
            troubled_until: rng.between(4_000, 16_000),
            canary: false,
            outlasts: false,
        };
        if rng.permille(60) {
            plan.limits.event_log_bytes = 2_000;
        }
        if rng.permille(80) {
            plan.limits.queue_limit = 2;
        }
        if seed % 16 == 3 {
            plan.limits.event_ttl = Duration::from_secs(300);
            plan.limits.reply_ttl = Duration::from_secs(600);
            plan.limits.session_ttl = Duration::from_secs(1_200);
            plan.outlasts = true;
        }
        if seed % 16 == 9 {
            plan.settings.context_window = 400;
        }
        let poisonous = rng.permille(60);
        let managed = rng.permille(250);
        plan.add_clients(rng, poisonous, managed);
        plan.add_faults(rng);
        plan.add_probes();
        plan
    }

    fn add_clients(&mut self, rng: &mut Rng, poisonous: bool, managed: bool) {
        let first_slots = self.slots.len();
        let mut next_call = 0;
        for client in 0..rng.between(2, 4) as usize {
            let slot = if client == 0 { 0 } else { rng.below(first_slots) };
            let mut acts = vec![Act::Pause(rng.between(0, 2_000))];
            for _ in 0..rng.between(1, 3) {
                let mut call = self.call(rng, slot, next_call);
                next_call += 1;
                if poisonous && client == 1 && acts.len() == 1 {
                    call.poison = Some(rng.pick(&[0, 5, 400]));
                }
                let key = call.key.clone();
                self.calls.insert(key.clone(), call);
                acts.push(Act::Call(key));
                if rng.permille(300) {
                    acts.push(Act::Pause(rng.between(1, 4_000)));
                }
                if managed && rng.permille(400) {
                    acts.push(self.management(rng, slot));
                }
            }
            self.clients.push(acts);
        }
        if rng.permille(250) {
            self.add_interrupter(rng);
        }
    }

    fn management(&mut self, rng: &mut Rng, slot: usize) -> Act {
        match rng.below(10) {
            0 | 1 => Act::Delete(slot),
            2 => Act::Clear(slot),
            3..=5 => Act::Annotate(slot),
            6 | 7 => Act::Redact(slot),
            _ => {
                let n = self.slots.len() as u64;
                let user = self.slots[slot].user.as_ref().map(Id::as_str);
                let into = Slot::new(user, &format!("s{n}")).expect("short ids");
                self.slots.push(into);
                Act::Fork { from: slot, into: self.slots.len() - 1 }
            }
        }
    }

    fn add_interrupter(&mut self, rng: &mut Rng) {
        let keys: Vec<_> = self.calls.keys().cloned().collect();
        let mut acts = Vec::new();
        for _ in 0..rng.between(1, 3) {
            acts.push(Act::Pause(rng.between(0, 3_000)));
            let key = &keys[rng.below(keys.len())];
            let call = rng.permille(600).then(|| key.clone());
            acts.push(Act::Interrupt { slot: self.calls[key].slot, call, message: rng.permille(400) });
        }
        self.clients.push(acts);
    }

    fn call(&self, rng: &mut Rng, slot: usize, n: usize) -> CallPlan {
        let id = format!("c{n}");
        CallPlan {
            key: key_of(&self.slots[slot], &id),
            slot,
            id: Id::new("call", id).expect("a short id"),
            messages: if rng.permille(150) { 2 } else { 1 },
            patience: match rng.below(10) {
                0 | 1 => Patience::Leaves { after: rng.pick(&[0, 3, 40, 900]) },
                2 | 3 => Patience::Patient { connection: rng.between(50, 1_500) },
                _ => Patience::Patient { connection: rng.between(3_000, 20_000) },
            },
            stream: rng.permille(350),
            twin: rng.permille(80),
            asks_again: rng.permille(150),
            retries_failure: rng.permille(500),
            script: script(rng),
            poison: None,
        }
    }

    pub fn add_probes(&mut self) {
        for slot in 0..self.slots.len() {
            let probe = CallPlan {
                key: self.probe(slot),
                slot,
                id: Id::new("call", "probe").expect("a short id"),
                messages: 1,
                patience: Patience::Patient { connection: 20_000 },
                stream: false,
                twin: false,
                asks_again: false,
                retries_failure: false,
                script: vec![Said::Answer { ms: 5, pieces: 0, reset: false }],
                poison: None,
            };
            self.calls.insert(probe.key.clone(), probe);
        }
    }

    fn add_faults(&mut self, rng: &mut Rng) {
        // One schedule in sixteen is calm: what goes wrong without a fault must not hide behind one.
        if rng.permille(62) {
            return;
        }
        let kinds = rng.next();
        let chosen = |bit: u32| kinds >> bit & 1 == 1;
        if chosen(0) {
            self.odds.lost_reply = rng.pick(&[10, 30, 100]);
        }
        if chosen(1) {
            self.odds.undelivered = rng.pick(&[10, 30, 100]);
        }
        if chosen(2) {
            self.odds.slow = rng.pick(&[20, 60]);
        }
        if chosen(3) {
            self.odds.crash_before = rng.pick(&[5, 20]);
            self.odds.crash_after = rng.pick(&[5, 20]);
        }
        for _ in 0..rng.between(1, 4) {
            let pod = rng.below(self.pods);
            let fault = match rng.below(12) {
                0..=4 => Fault::Kill { pod },
                5..=7 => Fault::Stop { pod, ms: rng.pick(&[300, 2_500, 7_000, 13_000]) },
                8 | 9 => Fault::Drain { pod, relay: rng.pick(&[0, 500, 4_000]) },
                10 => Fault::Outage { ms: rng.pick(&[400, 3_000, 9_000]) },
                _ => Fault::Partition { pod, ms: rng.pick(&[400, 5_000, 9_000]) },
            };
            self.timed.push((rng.between(0, self.troubled_until), fault));
        }
    }
}

impl Plan {
    /// The call whose message was said last, and where.
    pub fn running_call(&self, transcript: &[Arc<Message>]) -> Option<(usize, &CallPlan)> {
        transcript.iter().enumerate().rev().find_map(|(at, message)| {
            let text = if message.role == Role::User { message.text() } else { return None };
            let mark = marks(&text).next()?;
            Some((at, self.calls.get(mark)?))
        })
    }

    /// `user/session` of a slot.
    pub fn home_of(&self, slot: usize) -> String {
        let key = key_of(&self.slots[slot], "");
        key.trim_end_matches('/').to_owned()
    }

    /// Whether a mark may be seen in a slot: it is its own, or of the session it was forked from.
    pub fn belongs(&self, mark: &str, slot: usize) -> bool {
        let mut slot = Some(slot);
        while let Some(here) = slot {
            if home(mark) == self.home_of(here) {
                return true;
            }
            slot = self.clients.iter().flatten().find_map(|act| match act {
                Act::Fork { from, into } if *into == here => Some(*from),
                _ => None,
            });
        }
        false
    }

    /// The call that shows that a slot is free again.
    pub fn probe(&self, slot: usize) -> String {
        key_of(&self.slots[slot], "probe")
    }

    /// More than all calls of this schedule take if each of their steps is done twice.
    pub fn work(&self) -> Duration {
        let said = |said: &Said| match said {
            Said::Answer { ms, .. } | Said::Fails { ms, .. } => ms + 100,
            Said::Tools { ms, tools, .. } => {
                ms + 100 + tools.iter().map(|tool| tool.ms.min(5_000)).max().unwrap_or(0)
            }
            Said::Endless { ms } => (ms + 100) * 8,
        };
        let call = |call: &CallPlan| 500 + call.script.iter().map(said).sum::<u64>() * 2;
        let pauses = |act: &Act| if let Act::Pause(ms) = act { *ms } else { 100 };
        let calls: u64 = self.calls.values().map(call).sum();
        Duration::from_millis(calls + self.clients.iter().flatten().map(pauses).sum::<u64>())
    }

    /// What was acknowledged after the copy was made may be gone.
    pub fn fails_over(&self) -> bool {
        self.timed.iter().any(|(_, fault)| matches!(fault, Fault::Failover { .. }))
    }

    pub fn poisonous(&self) -> bool {
        self.calls.values().any(|call| call.poison.is_some())
    }
}

pub fn key_of(slot: &Slot, call: &str) -> String {
    let user = slot.user.as_ref().map_or("~", Id::as_str);
    format!("{user}/{}/{call}", slot.session)
}

fn slot(rng: &mut Rng, n: u64) -> Slot {
    let user = if rng.permille(150) { None } else { Some(format!("u{n}")) };
    Slot::new(user.as_deref(), &format!("s{n}")).expect("short ids")
}

fn settings(rng: &mut Rng) -> Settings {
    Settings {
        max_iterations: 6,
        call_timeout: Duration::from_secs(rng.pick(&[40, 120, 120, 120])),
        tool_timeout: Duration::from_secs(5),
        on_busy: rng.pick(&[
            OnBusy::Enqueue,
            OnBusy::Enqueue,
            OnBusy::Enqueue,
            OnBusy::Enqueue,
            OnBusy::Enqueue,
            OnBusy::Enqueue,
            OnBusy::Reject,
            OnBusy::Interrupt,
        ]),
        max_running_calls: rng.pick(&[512, 512, 512, 2]),
        durability: if rng.permille(250) { Durability::Call } else { Durability::Step },
        park: rng.permille(50),
        cache_bytes: rng.pick(&[64 << 20, 64 << 20, 2_000]),
        drain_timeout: Duration::from_millis(rng.pick(&[0, 1_000, 5_000])),
        relay_timeout: Duration::from_secs(20),
        ..Settings::default()
    }
}

fn script(rng: &mut Rng) -> Vec<Said> {
    let ms = |rng: &mut Rng| rng.pick(&[0, 5, 5, 30, 200, 200, 1_500, 3_000, 7_500]);
    let answer = |rng: &mut Rng| Said::Answer {
        ms: ms(rng),
        pieces: rng.between(0, 4) as usize,
        reset: rng.permille(100),
    };
    let tools = |rng: &mut Rng| {
        let tool = |rng: &mut Rng| ToolPlan {
            safety: rng.pick(&[Safety::ReadOnly, Safety::Idempotent, Safety::Unsafe, Safety::Unsafe]),
            ms: rng.pick(&[0, 10, 150, 800, 2_500, 8_000]),
            fails: rng.permille(100),
        };
        let tools = (0..rng.pick(&[1, 1, 2, 3])).map(|_| tool(rng)).collect();
        Said::Tools { ms: rng.pick(&[0, 5, 30, 600]), tools, same_ids: rng.permille(300) }
    };
    match rng.below(20) {
        0..=7 => vec![answer(rng)],
        8..=14 => vec![tools(rng), answer(rng)],
        15 | 16 => vec![tools(rng), tools(rng), answer(rng)],
        17 => vec![Said::Fails { ms: ms(rng), times: rng.pick(&[1, 1, 9]) }, answer(rng)],
        18 => vec![tools(rng), Said::Fails { ms: ms(rng), times: 1 }, answer(rng)],
        _ => vec![Said::Endless { ms: 20 }],
    }
}
