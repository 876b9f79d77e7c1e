//! The platform's port.

use std::sync::Arc;

use holdfast_sidecar::serve::Stop;
use http::Method;
use serde_json::json;

use crate::kit::{Setup, echo, soon};

#[tokio::test]
async fn a_replica_lives_is_ready_and_counts() {
    let agent = echo().await;
    assert_eq!(agent.platform(Method::GET, "/livez").await.status.as_u16(), 200);
    soon("readiness", async { while agent.platform(Method::GET, "/readyz").await.status.as_u16() != 200 {} })
        .await;
    agent.post("/v1/calls", json!({"input": "hello"})).await.ok();
    let metrics = agent.platform(Method::GET, "/metrics").await;
    let text = String::from_utf8(metrics.body.to_vec()).expect("UTF-8");
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in [
        "holdfast_calls_total{outcome=\"completed\"} 1",
        "holdfast_calls_active 0",
        "holdfast_calls_queued 0",
        "holdfast_requests_open 0",
        "holdfast_resumes_total 0",
        "holdfast_lease_losses_total 0",
        "holdfast_model_seconds_count{outcome=\"ok\"} 1",
        "holdfast_tokens_total{direction=\"output\"} 10",
        "holdfast_store_seconds_count{operation=\"begin\"} 1",
        "holdfast_store_seconds_count{operation=\"commit\"} 1",
        "holdfast_draining 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert_eq!(agent.platform(Method::GET, "/").await.status.as_u16(), 404);
    assert_eq!(agent.platform(Method::GET, "/drain").await.status.as_u16(), 405);
    assert_eq!(agent.get("/metrics").await.status.as_u16(), 404, "not for clients");
}

#[tokio::test]
async fn a_drain_that_was_asked_for_closes_the_door_and_stays() {
    let agent = echo().await;
    assert_eq!(agent.platform(Method::POST, "/drain").await.status.as_u16(), 202);
    soon("the closed door", async {
        while agent.platform(Method::GET, "/readyz").await.status.as_u16() != 503 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let refused = agent.post("/v1/calls", json!({"input": "hello", "callId": "c-1"})).await;
    let problem = refused.problem(503, "draining");
    assert_eq!((&problem["callId"], &problem["admitted"]), (&json!("c-1"), &json!(false)));
    assert_eq!(refused.header("connection"), Some("close"));
    assert!(refused.header("retry-after").is_some());
    assert!(!agent.running.is_finished());
    agent.stop(Stop::Terminate).await;
    agent.ended().await;
}

#[tokio::test]
async fn a_replica_is_not_ready_before_its_store_has_answered() {
    let store = Arc::new(crate::parts::Sleepy::new());
    let agent = Setup { store: store.clone(), ..Setup::default() }.start().await;
    let unready = agent.platform(Method::GET, "/readyz").await;
    assert_eq!(unready.status.as_u16(), 503);
    assert!(!unready.body.is_empty(), "without a reason");
    store.wake();
    soon("readiness", async {
        while agent.platform(Method::GET, "/readyz").await.status.as_u16() != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    })
    .await;
    store.sleep();
    let refused = agent.post("/v1/calls", json!({"input": "hello", "callId": "c-1"})).await;
    let problem = refused.problem(503, "store-unavailable");
    assert_eq!((&problem["callId"], &problem["admitted"]), (&json!("c-1"), &json!(false)));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(
        agent.platform(Method::GET, "/readyz").await.status.as_u16(),
        200,
        "an outage is not unreadiness"
    );
}
