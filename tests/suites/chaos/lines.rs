//! Killed at a line, not at a time: before and after every store operation, model call and tool run.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::stream::{self, StreamExt};
use holdfast_tests::http::Http;
use hyper::Method;
use serde_json::json;

use holdfast_tests::stage::Stage;

/// What makes a replica pass each point. The rest of the points are passed by a call with a tool in it.
const TRIGGERS: [(&str, Trigger); 12] = [
    ("store.begin", Trigger::Call),
    ("store.append", Trigger::Call),
    ("store.renew", Trigger::SlowCall),
    ("store.commit", Trigger::Call),
    ("model.reply", Trigger::Call),
    ("tool.run", Trigger::Call),
    ("store.claim", Trigger::Orphan),
    ("store.suspend", Trigger::Stop),
    ("store.interrupt", Trigger::Interrupt),
    ("store.retry", Trigger::Retry),
    ("store.rewrite", Trigger::Clear),
    ("store.delete", Trigger::Delete),
];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Trigger {
    Call,
    SlowCall,
    Orphan,
    Stop,
    Interrupt,
    Retry,
    Clear,
    Delete,
}

/// Every point, a few at a time. A point that no process died at fails the test: it was not tried.
pub async fn die_at_each(budget: Duration) -> Result<()> {
    let points: Vec<_> = TRIGGERS
        .into_iter()
        .flat_map(|(name, trigger)| ["before", "after"].map(|side| (format!("{name}.{side}"), trigger)))
        .collect();
    let tried = stream::iter(&points).map(|(point, trigger)| async move {
        let (began, reached) = (Instant::now(), Mutex::new("its start"));
        let died = tokio::time::timeout(budget, die_at(point, *trigger, &reached)).await;
        let so_far = || *reached.lock().unwrap_or_else(PoisonError::into_inner);
        died.with_context(|| {
            format!("{point}: not within {} s; it had come to {}", budget.as_secs(), so_far())
        })?
        .with_context(|| format!("{point}, having come to {}", so_far()))?;
        Ok(began.elapsed())
    });
    let results: Vec<Result<Duration>> = tried.buffer_unordered(4).collect().await;
    let failed: Vec<String> =
        results.iter().filter_map(|r| r.as_ref().err().map(|e| format!("{e:#}"))).collect();
    let slowest = results.iter().flatten().max().map_or(0, Duration::as_secs);
    println!(
        "  died at {} of {} lines, and nothing was lost; the slowest took {slowest} s of {}",
        results.len() - failed.len(),
        points.len(),
        budget.as_secs()
    );
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

async fn die_at(point: &str, trigger: Trigger, reached: &Mutex<&'static str>) -> Result<()> {
    let reach = |what| *reached.lock().unwrap_or_else(PoisonError::into_inner) = what;
    let stage = Stage::set("lines", 0).await?;
    let http = Http::default();
    stage.add_replica(&[("FAILPOINTS", &format!("{point}=return"))]).await?;
    let doomed = stage.replicas.lock().await.remove(0);
    let url = format!("{}/v1/users/u/sessions/s", doomed.url);
    let said = match trigger {
        Trigger::SlowCall => "one #{\"words\":40,\"tokenDelayMs\":100}",
        Trigger::Stop | Trigger::Interrupt => "one #{\"delayMs\":4000}",
        Trigger::Retry => "one #{\"fail\":{\"status\":400,\"times\":1}}",
        _ => "one #{\"tools\":[{\"name\":\"refund\",\"input\":{\"mark\":\"one\"}}]}",
    };
    let call = json!({"input": said, "callId": "c1", "stream": trigger == Trigger::SlowCall});
    stage.add_replica(&[]).await?;
    let survivor = stage.replicas.lock().await[0].url.clone();
    let there = format!("{survivor}/v1/users/u/sessions/s");

    reach("what makes it die");
    // The doomed one does what makes it die there. Its client sees nothing but a broken connection.
    let mut doomed = doomed;
    match trigger {
        Trigger::Call | Trigger::SlowCall => {
            let _ = http.post(&format!("{url}/calls"), &call).await;
        }
        Trigger::Retry | Trigger::Clear | Trigger::Delete => {
            let _ = http.post(&format!("{there}/calls"), &call).await?;
            let (method, path) = match trigger {
                Trigger::Retry => (Method::POST, "/calls/c1/retry"),
                Trigger::Clear => (Method::POST, "/clear"),
                _ => (Method::DELETE, ""),
            };
            let _ = http.send(method, &format!("{url}{path}"), None, &[]).await;
        }
        Trigger::Interrupt | Trigger::Stop => {
            let mut background = call.clone();
            background["background"] = true.into();
            let running = if trigger == Trigger::Stop { &url } else { &there };
            http.post(&format!("{running}/calls"), &background).await?;
            if trigger == Trigger::Stop {
                doomed.signal("TERM")?;
            } else {
                let _ = http.post(&format!("{url}/interrupt"), &json!({})).await;
            }
        }
        Trigger::Orphan => {
            let mut background = call.clone();
            background["background"] = true.into();
            http.post(&format!("{there}/calls"), &background).await?;
            // Whoever has it is killed; the doomed one looks for work, finds it, and dies over it.
            let mut holder = stage.replicas.lock().await.remove(0);
            holder.signal("KILL")?;
            holder.ended(Duration::from_secs(5)).await?;
        }
    }
    reach("its death");
    let status = doomed.ended(Duration::from_secs(20)).await.context("no process died there")?;
    ensure!(!status.success(), "the process ended well instead of dying there");

    reach("a replica that comes after");
    // Anybody who comes after finds everything, once.
    if stage.replicas.lock().await.is_empty() {
        stage.add_replica(&[]).await?;
    }
    let door = stage.replicas.lock().await[0].url.clone();
    stage.client.doors.open(&door);
    reach("the same call, sent again");
    settle(&http, &format!("{door}/v1/users/u/sessions/s"), &call, trigger).await?;
    let refunds = stage.refunds()?;
    ensure!(refunds <= 1, "the unsafe tool ran {refunds} times");
    Ok(())
}

/// The call, sent again with its id, ends as it must, and its message is in the history once.
async fn settle(http: &Http, session: &str, call: &serde_json::Value, trigger: Trigger) -> Result<()> {
    if matches!(trigger, Trigger::Clear | Trigger::Delete) {
        // Done or not done, never half: the same request again succeeds.
        let (method, path) =
            if trigger == Trigger::Clear { (Method::POST, "/clear") } else { (Method::DELETE, "") };
        let answer = http.send(method, &format!("{session}{path}"), None, &[]).await?;
        ensure!(answer.status < 300, "{} {}", answer.status, answer.body);
        return Ok(());
    }
    let mut plain = call.clone();
    plain["stream"] = false.into();
    let answer = loop {
        match http.post(&format!("{session}/calls"), &plain).await {
            Ok(answer) if answer.status == 200 => break answer.body,
            Ok(answer) if answer.status == 503 || answer.status == 429 => {}
            Ok(answer) => anyhow::bail!("{} {}", answer.status, answer.body),
            Err(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let ended = answer["status"].as_str().unwrap_or_default();
    let fine = matches!(
        (trigger, ended),
        (_, "completed") | (Trigger::Interrupt, "interrupted") | (Trigger::Retry, "failed")
    );
    ensure!(fine, "the call ended {answer}");
    let state = http.get(&format!("{session}/state")).await?.body;
    let said = call["input"].as_str().unwrap_or_default();
    let users = state["context"].as_array().cloned().unwrap_or_default();
    let times = users.iter().filter(|m| m["role"] == "user" && m["content"][0]["text"] == said).count();
    ensure!(times == 1, "its message is in the history {times} times: {state}");
    Ok(())
}
