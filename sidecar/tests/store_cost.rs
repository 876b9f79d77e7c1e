//! What a call costs: round trips and bytes, counted by the server.

mod support;

use std::sync::Arc;

use holdfast_sidecar::store::redis::{RedisConfig, RedisStore};
use holdfast_sidecar::store::*;
use holdfast_tests::redis::{Options, RedisServer};

use support::requests::*;

struct Meter {
    server: RedisServer,
    talk: Talk,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cost {
    scripts: u64,
    sent: u64,
    received: u64,
}

impl Meter {
    fn new() -> Self {
        let server = Options::default().volatile().start().expect("a server");
        let store = RedisStore::open(RedisConfig::new(server.url()), "ns.agent", limits()).expect("a store");
        Self { server, talk: Talk { store: Arc::new(store), slot: slot("session") } }
    }

    /// So many turns that the history has `messages` messages, and every script is known to the server.
    async fn with_history(&self, messages: usize) {
        let grant = self.talk.granted(&format!("before {messages}")).await;
        self.talk.append(&append(&grant, 0, vec![])).await.expect("append");
        self.talk.commit(&commit(&grant)).await.expect("commit");
        let text = format!("\"{}\"", "x".repeat(98));
        let texts = vec![text.as_str(); messages];
        let done = self.talk.rewrite(&rewrite(Condition::Exists, &texts)).await;
        assert!(matches!(done, Rewritten::Done { .. }));
    }

    async fn cost<T>(&self, work: impl Future<Output = T>) -> (T, Cost) {
        let counted = || {
            let figure = |name| self.server.info(name).expect(name);
            let scripts = self.server.command(&["INFO", "commandstats"]).expect("commandstats");
            let scripts = scripts
                .lines()
                .filter_map(|line| line.strip_prefix("cmdstat_eval")?.split_once("calls="))
                .map(|(_, rest)| rest.split(',').next().expect("a count").parse::<u64>().expect("a count"))
                .sum::<u64>();
            (scripts, figure("total_net_input_bytes"), figure("total_net_output_bytes"))
        };
        // Asking costs bytes too: ask twice, and the second costs what the third will.
        let (first, before) = (counted(), counted());
        let done = work.await;
        let after = counted();
        let asking = (before.1 - first.1, before.2 - first.2);
        let cost = Cost {
            scripts: after.0 - before.0,
            sent: after.1 - before.1 - asking.0,
            // INFO itself grows by a digit now and then.
            received: (after.2 - before.2).saturating_sub(asking.1),
        };
        (done, cost)
    }

    async fn warm_call(&self, call: &str, input: &str, answer: &str) -> Cost {
        let loaded = self.talk.load().await;
        let claim = Claim { known: Some(known(&loaded)), ..claim() };
        let begin = Begin { claim, input: vec![blob(input)], ..begin(call) };
        let call = async {
            let grant = self.talk.granted_by(&begin).await;
            assert_eq!((grant.history.from, grant.history.messages.len()), (loaded.messages.len(), 0));
            let events = vec![
                NewEvent { message: Some(0), ..event(1, EventName::MessageCompleted, "{}") },
                event(2, EventName::Completed, ""),
            ];
            let commit = Commit { messages: vec![blob(answer)], events, ..commit(&grant) };
            self.talk.commit(&commit).await.expect("commit");
        };
        self.cost(call).await.1
    }
}

#[tokio::test]
async fn a_call_nobody_contends_is_two_round_trips_whatever_the_history() {
    let meter = Meter::new();
    let mut costs = Vec::new();
    for (n, messages) in [10, 1000, 10_000].into_iter().enumerate() {
        meter.with_history(messages).await;
        costs.push(meter.warm_call(&format!("call {n}"), "\"hi\"", "\"ho\"").await);
    }
    println!("begin and commit with 10, 1 000 and 10 000 messages of history: {costs:?}");
    for cost in &costs {
        assert_eq!(cost.scripts, 2);
        assert!(cost.sent.abs_diff(costs[0].sent) < 64, "bytes sent grow with the history: {costs:?}");
        assert!(cost.received.abs_diff(costs[0].received) < 64, "bytes received do: {costs:?}");
    }
}

#[tokio::test]
async fn each_message_is_sent_once() {
    let meter = Meter::new();
    meter.with_history(1).await;
    let base = meter.warm_call("base", "\"\"", "\"\"").await;
    let large = format!("\"{}\"", "y".repeat(100_000));
    let input = meter.warm_call("large input", &large, "\"\"").await;
    let answer = meter.warm_call("large answer", "\"\"", &large).await;
    println!("a call: {base:?}; with 100 kB in: {input:?}; with 100 kB out: {answer:?}");
    for cost in [input, answer] {
        let more = cost.sent - base.sent;
        assert!((100_000..101_000).contains(&more), "100 kB took {more} bytes to send");
        assert!(cost.received < base.received + 1000, "nothing that was sent comes back");
    }

    // A journalled step, with an event that carries it: its bytes are in the journal, in the log, in the history and
    // in the reply, and travel once.
    let grant = meter.talk.granted("journalled").await;
    let steps = vec![step(StepKind::Message, &large)];
    let events = vec![NewEvent { message: Some(0), ..event(1, EventName::MessageCompleted, "{}") }];
    let append = Append { events, ..append(&grant, 0, steps) };
    let (_, cost) = meter.cost(async { meter.talk.append(&append).await.expect("append") }).await;
    assert_eq!(cost.scripts, 1);
    assert!((100_000..102_000).contains(&cost.sent), "{cost:?}");
    let (_, cost) = meter.cost(async { meter.talk.commit(&commit(&grant)).await.expect("commit") }).await;
    assert!(cost.sent < 3000 && cost.received < 1000, "{cost:?}");
    let page = meter.talk.events("journalled", None).await;
    assert_eq!(page.events[1].message, Some(blob(&large)));
}

#[tokio::test]
async fn a_cold_claim_reads_the_history_once() {
    let meter = Meter::new();
    meter.with_history(1000).await;
    let (grant, cost) = meter.cost(meter.talk.granted("cold")).await;
    println!("a cold begin over 1 000 messages of 100 bytes: {cost:?}");
    assert_eq!((cost.scripts, grant.history.messages.len()), (1, 1000));
    assert!((100_000..120_000).contains(&cost.received), "{cost:?}");
    assert!(cost.sent < 3000, "{cost:?}");
}

/// Not a bound, a figure: what one core of the server can do.
#[tokio::test]
async fn the_servers_time_for_a_call_is_shown() {
    const CALLS: usize = 300;
    let meter = Meter::new();
    meter.with_history(100).await;
    meter.server.command(&["CONFIG", "RESETSTAT"]).expect("reset");
    let mut cache = known(&meter.talk.load().await);
    for n in 0..CALLS {
        let claim = Claim { known: Some(cache), ..claim() };
        let begin = Begin { claim, ..begin(&format!("call {n}")) };
        let grant = meter.talk.granted_by(&begin).await;
        let commit = commit(&grant);
        meter.talk.commit(&commit).await.expect("commit");
        cache.len += 2;
        cache.version += 1;
        cache.tail = Tail::of(commit.messages.last().map(|message| &**message));
    }
    let stats = meter.server.command(&["INFO", "commandstats"]).expect("commandstats");
    stats.lines().for_each(|line| println!("{line}"));
}
