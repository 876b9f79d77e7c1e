//! The session layer over the store in memory: what a client may count on, one promise a test.

use std::sync::Arc;

use async_trait::async_trait;
use holdfast_sidecar::model::{Ask, CallContext, Model, ModelError, ModelReply};
use holdfast_sidecar::session::{
    Admitted, CallError, CallRequest, CallView, News, Sessions, Settings, Status,
};
use holdfast_sidecar::state::{Block, Id, Message, Slot, Usage};
use holdfast_sidecar::store::{Limits, MemoryStore};
use holdfast_sidecar::tools::NoTools;

/// Answers with how many messages it was shown.
struct Counting;

#[async_trait]
impl Model for Counting {
    async fn reply(&self, ask: Ask<'_>) -> Result<ModelReply, ModelError> {
        let seen = ask.transcript().count();
        Ok(ModelReply::new(vec![Block::text(format!("{seen} messages"))], Usage::default()))
    }
}

fn sessions() -> Sessions {
    let store = Arc::new(MemoryStore::new(Limits::default()));
    Sessions::new(store, Arc::new(Counting), Arc::new(NoTools), Settings::default())
}

fn request(call: &str, text: &str) -> CallRequest {
    CallRequest {
        call: Id::new("call", call).expect("id"),
        messages: vec![Message::user(text)],
        context: CallContext::default(),
        stream: false,
    }
}

async fn answer(sessions: &Sessions, slot: &Slot, request: CallRequest) -> Result<CallView, CallError> {
    let call = request.call.clone();
    let reply = match sessions.call(slot, request).await? {
        Admitted::Done(reply) => reply,
        Admitted::Live(mut follower) => match follower.outcome().await? {
            News::Ended(reply) => reply,
            other => panic!("not an end: {other:?}"),
        },
    };
    Ok(CallView::done(&call, &reply).expect("readable"))
}

#[tokio::test]
async fn a_conversation_goes_on_where_it_stood() {
    let sessions = sessions();
    let slot = Slot::new(Some("alice"), "s1").expect("ids");
    for (call, expected) in [("c1", "1 messages"), ("c2", "3 messages"), ("c3", "5 messages")] {
        let view = answer(&sessions, &slot, request(call, "hello")).await.expect("answered");
        assert_eq!((view.text.as_str(), view.status), (expected, Status::Completed));
    }
    let state = sessions.state(&slot, None).await.expect("readable").expect("there");
    assert_eq!((state.version, state.turn_count, state.context.len()), (3, 3, 6));
}

#[tokio::test]
async fn the_same_call_id_runs_once_and_answers_twice() {
    let sessions = sessions();
    let slot = Slot::new(None, "s1").expect("ids");
    let first = answer(&sessions, &slot, request("c1", "hello")).await.expect("answered");
    let again = answer(&sessions, &slot, request("c1", "hello")).await.expect("answered");
    assert_eq!((first.version, first.text), (again.version, again.text));
    assert_eq!(
        answer(&sessions, &slot, request("c1", "other")).await.expect_err("conflict"),
        CallError::Conflict
    );
    assert_eq!(sessions.state(&slot, None).await.expect("readable").expect("there").context.len(), 2);
}

#[tokio::test]
async fn calls_of_one_session_run_in_the_order_they_came() {
    let sessions = sessions();
    let slot = Slot::new(None, "busy").expect("ids");
    let calls = (0..20).map(|n| {
        let (sessions, slot) = (sessions.clone(), slot.clone());
        async move {
            answer(&sessions, &slot, request(&format!("c{n}"), &format!("{n}"))).await.expect("answered")
        }
    });
    let views = futures::future::join_all(calls).await;
    let versions: Vec<_> = views.iter().map(|view| view.version).collect();
    assert_eq!(versions, (1..=20).map(Some).collect::<Vec<_>>());
    let (desks, _) = sessions.footprint();
    assert_eq!(desks, 0, "nobody waits, and yet the board keeps desks");
}
