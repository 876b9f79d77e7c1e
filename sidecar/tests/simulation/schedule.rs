//! One schedule from its first request to its verdict: trouble, calm, probes, the last look.

use std::cell::Cell;
use std::sync::{Arc, Once};
use std::time::Duration;

use holdfast_sidecar::session::CallError;
use holdfast_sidecar::state::AgentState;
use holdfast_sidecar::store::{MemoryStore, Store};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::checker;
use super::client::Client;
use super::plan::{Fault, Plan};
use super::pod::Pod;
use super::world::{Promise, Tally, Trace, Violation, World};

/// What came of a schedule.
pub struct Outcome {
    pub violations: Vec<Violation>,
    pub tally: Tally,
    pub trace: Trace,
}

thread_local!(static PANICS: Cell<u32> = const { Cell::new(0) });

/// A task that panics is a replica's bug and must not go unseen; its message is printed where a seed is replayed.
fn watch_for_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            if std::thread::current().name() != Some("schedules") {
                print(info);
            }
        }));
    });
}

pub fn run(plan: Plan, traced: bool) -> Outcome {
    watch_for_panics();
    PANICS.set(0);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without I/O");
    let world = runtime.block_on(simulate(plan, traced));
    drop(runtime);
    world.verdict(Promise::Free, PANICS.get() == 0, || "a task panicked".into());
    let trace = world.take_trace();
    let mut ledger = world.ledger();
    Outcome {
        violations: std::mem::take(&mut ledger.violations),
        tally: std::mem::take(&mut ledger.tally),
        trace,
    }
}

async fn simulate(plan: Plan, traced: bool) -> Arc<World> {
    let world = Arc::new(World::new(plan, traced));
    let store = Arc::new(MemoryStore::new(world.plan.limits.clone()));
    let pods: Vec<_> = (0..world.plan.pods).map(|index| Pod::new(index, &world, &store)).collect();
    for pod in &pods {
        tokio::spawn(Arc::clone(pod).keep_alive());
    }
    let client = Client { world: Arc::clone(&world), pods: Arc::new(pods) };
    for (at, fault) in world.plan.timed.clone() {
        let (client, store) = (client.clone(), Arc::clone(&store));
        tokio::spawn(async move {
            sleep(Duration::from_millis(at)).await;
            if client.world.troubled() {
                strike(&client, &store, fault).await;
            }
        });
    }
    let mut clients = JoinSet::new();
    for acts in &world.plan.clients {
        clients.spawn(client.clone().act(acts.clone()));
    }

    trouble(&world, &store, &mut clients).await;
    world.calm_down();
    // Whoever was draining is gone before the count starts.
    sleep(Duration::from_millis(1)).await;
    for process in client.pods.iter().filter_map(|pod| pod.process()) {
        process.gate.go_on();
        process.gate.partition(false);
    }
    world.trace(|| "calm".into());
    world.count("schedules");

    let calm = Instant::now();
    everything_is_resumed(&world, &store, calm).await;
    everything_ends(&world, &store, &mut clients, calm).await;
    probe(&client).await;
    let mut states = last_look(&client).await;
    if world.plan.canary {
        sing(&mut states);
    }
    checker::judge(&world, &states);
    if world.plan.outlasts {
        time_passes(&client, &states).await;
    }
    world
}

/// Past `replyTtl` a call is known and not run again; past `sessionTtl` nothing is left.
async fn time_passes(client: &Client, states: &[Option<AgentState>]) {
    let world = &client.world;
    let limits = &world.plan.limits;
    sleep(limits.reply_ttl + Duration::from_secs(1)).await;
    let Some(process) = client.pick() else { return };
    for (slot, state) in states.iter().enumerate() {
        let probe = &world.plan.calls[&world.plan.probe(slot)];
        let answer = process.sessions.call(&world.plan.slots[slot], client.request(probe)).await;
        let expired = matches!(answer, Err(CallError::ReplyExpired));
        world.verdict(Promise::I3, expired, || format!("{} is not known any more", probe.key));
        let now = process.sessions.state(&world.plan.slots[slot], None).await.expect("a calm store answers");
        world.verdict(Promise::I3, now == *state, || format!("slot {slot} was changed by a finished call"));
        world.count("replies outlasted");
    }
    sleep(limits.session_ttl - limits.reply_ttl).await;
    for slot in &world.plan.slots {
        let state = process.sessions.state(slot, None).await.expect("a calm store answers");
        world.verdict(Promise::Free, state.is_none(), || format!("{slot} outlives its time"));
        world.count("sessions outlasted");
    }
}

async fn strike(client: &Client, store: &MemoryStore, fault: Fault) {
    let world = &client.world;
    let process = |pod: usize| client.pods[pod].process();
    world.trace(|| format!("fault {fault:?}"));
    match fault {
        Fault::Kill { pod } => {
            if let Some(process) = process(pod) {
                world.count("kills at a time");
                process.gate.kill();
            }
        }
        Fault::Stop { pod, ms } => {
            if let Some(process) = process(pod) {
                let longer_than_the_lease = ms > 6_000;
                world.count(if longer_than_the_lease { "pauses past the lease" } else { "short pauses" });
                process.gate.stop();
                sleep(Duration::from_millis(ms)).await;
                process.gate.go_on();
            }
        }
        Fault::Drain { pod, relay } => {
            if let Some(process) = process(pod) {
                world.count("drains");
                let draining = async {
                    process.sessions.drain().await;
                    sleep(Duration::from_millis(relay)).await;
                    process.sessions.let_go();
                    sleep(Duration::from_millis(20)).await;
                };
                // Whoever does not come to an end by itself is killed, as a kubelet does.
                tokio::select! {
                    biased;
                    _ = timeout(Duration::from_secs(20), process.gate.serve(draining)) => {}
                    () = world.calm() => {}
                }
                process.gate.kill();
            }
        }
        Fault::Outage { ms } => {
            world.count("outages");
            world.set_outage(true);
            sleep(Duration::from_millis(ms)).await;
            world.set_outage(false);
        }
        Fault::Failover { ms } => {
            world.count("failovers");
            let copy = store.copy();
            sleep(Duration::from_millis(ms)).await;
            store.fail_over_to(copy);
        }
        Fault::Partition { pod, ms } => {
            if let Some(process) = process(pod) {
                world.count("partitions");
                process.gate.partition(true);
                sleep(Duration::from_millis(ms)).await;
                process.gate.partition(false);
            }
        }
    }
}

/// Until the last fault has begun, or there is nothing left that could be disturbed.
async fn trouble(world: &World, store: &MemoryStore, clients: &mut JoinSet<()>) {
    let end = Instant::now() + Duration::from_millis(world.plan.troubled_until);
    while Instant::now() < end {
        sleep(Duration::from_millis(500)).await;
        while clients.try_join_next().is_some() {}
        if clients.is_empty() && !busy(world, store).await {
            return;
        }
    }
}

async fn busy(world: &World, store: &MemoryStore) -> bool {
    for slot in &world.plan.slots {
        if store.live(slot).await.is_ok_and(|live| !live.is_empty()) {
            return true;
        }
    }
    false
}

/// The lease plus two seconds after the last fault, somebody works on every slot that has work.
async fn everything_is_resumed(world: &World, store: &MemoryStore, calm: Instant) {
    if world.plan.poisonous() || world.plan.settings.park {
        return;
    }
    let late = Duration::from_secs(if world.plan.odds.slow > 0 { 8 } else { 0 });
    let by = calm + late + world.plan.limits.lease + Duration::from_secs(2);
    while Instant::now() < by {
        if !busy(world, store).await {
            return;
        }
        sleep(Duration::from_millis(500)).await;
    }
    for slot in &world.plan.slots {
        // Whoever has cost two replicas their lives waits until no other suspect runs beside it.
        if world.ledger().suspected.contains(slot) {
            continue;
        }
        let at_work =
            |live: &Vec<holdfast_sidecar::store::LiveCall>| live.first().is_none_or(|head| head.running);
        let mut working = false;
        // Between two runs of one slot there may be a moment without a holder.
        for _ in 0..3 {
            working |= store.live(slot).await.is_ok_and(|live| at_work(&live));
            sleep(Duration::from_millis(20)).await;
        }
        world.verdict(Promise::Ends, working, || format!("{slot} has work and nobody at it"));
    }
}

async fn everything_ends(world: &World, store: &MemoryStore, clients: &mut JoinSet<()>, calm: Instant) {
    let plan = &world.plan;
    let lease = plan.limits.lease + Duration::from_secs(2);
    let poisons = plan.calls.values().filter(|call| call.poison.is_some()).count() as u32;
    let by = calm + lease + plan.work() + (lease * 4) * poisons + Duration::from_secs(60);
    let all = async {
        while clients.join_next().await.is_some() {}
        // What was sent last, or slowly while there was trouble, may still arrive.
        sleep(Duration::from_millis(10)).await;
        if plan.odds.slow > 0 {
            sleep_until(calm + Duration::from_secs(8)).await;
        }
        while busy(world, store).await && !plan.settings.park {
            sleep(Duration::from_millis(500)).await;
        }
    };
    let in_time = tokio::time::timeout_at(by, all).await.is_ok();
    world.verdict(Promise::Ends, in_time, || "something does not end".into());
    clients.abort_all();
}

/// One more call on every slot: it must be free, and what the call is shown is the last history.
async fn probe(client: &Client) {
    let world = &client.world;
    for slot in 0..world.plan.slots.len() {
        let probe = &world.plan.calls[&world.plan.probe(slot)];
        let answered = timeout(Duration::from_secs(30), client.call(probe)).await.is_ok();
        world.verdict(Promise::Free, answered, || format!("the probe of slot {slot} has no answer"));
    }
}

/// Takes the first message out of every history: whoever does not notice is not looking.
fn sing(states: &mut [Option<AgentState>]) {
    for state in states.iter_mut().flatten() {
        state.context.remove(0);
    }
}

/// What a client that asks once more is told, and what the replicas still hold.
async fn last_look(client: &Client) -> Vec<Option<AgentState>> {
    let world = &client.world;
    let mut states = Vec::new();
    let running: Vec<_> = client.pods.iter().filter_map(|pod| pod.process()).collect();
    for slot in &world.plan.slots {
        let process = &running[states.len() % running.len()];
        states.push(process.sessions.state(slot, None).await.expect("a calm store answers"));
    }
    // What was sent slowly while there was trouble may still be on its way.
    for _ in 0..20 {
        if running
            .iter()
            .all(|process| process.sessions.footprint().0 == 0 && process.sessions.running() == 0)
        {
            break;
        }
        sleep(Duration::from_millis(500)).await;
    }
    for process in &running {
        let ((desks, _), runs) = (process.sessions.footprint(), process.sessions.running());
        world.verdict(Promise::Free, desks == 0 && runs == 0, || {
            format!("{} keeps {desks} desks and {runs} runs", process.gate.name)
        });
    }
    states
}
