//! Taking a call in: into the store, and into a run where the lease is free.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::error::CallError;
use super::run::InHand;
use super::{Admitted, CallRequest, CallView, Follower, Shared, events};
use crate::model::CallContext;
use crate::state::{CallId, Entry, Message, Slot};
use crate::store::{Begin, Begun, Blob, CallStatus, Retried, Retry};

impl Shared {
    pub async fn admit(self: &Arc<Self>, slot: &Slot, request: CallRequest) -> Result<Admitted, CallError> {
        let shared = self;
        if !shared.phase.accepting() {
            return Err(shared.refusal(slot, &request.call).await);
        }
        if !shared.has_room() {
            return Err(CallError::Overloaded);
        }
        let desk = shared.board.desk(slot);
        let cached = shared.cache.take(slot);
        let digest = digest(&request.messages);
        let said: Vec<Entry> = request.messages.into_iter().map(stamped).collect();
        let begin = Begin {
            digest,
            input: said.iter().map(|entry| entry.raw().clone().into()).collect(),
            context: context_bytes(&request.context),
            revision: shared.settings.revision.clone(),
            stream: request.stream,
            on_busy: shared.settings.on_busy,
            queued: events::about(&request.call),
            claim: shared.claim_request(cached.as_ref()),
            call: request.call,
        };
        let sent = Instant::now();
        // The same request, with the same nonce: if it was carried out, sending it again only asks for its answer.
        let begun = shared.until_known(|| shared.store.begin(slot, &begin)).await.map_err(|error| {
            let admitted = if error.may_have_happened() { None } else { Some(false) };
            CallError::store(&begin.call, admitted)(error)
        })?;
        let call = begin.call;
        match begun {
            Begun::Granted(grant) => {
                let follower = Follower::new(shared, slot, &call, desk.clone(), None);
                let hand = InHand { cached, said, sent, alone: None };
                let launched = shared.launch(slot.clone(), desk, *grant, hand);
                launched.map_err(CallError::store(&call, Some(true)))?;
                Ok(Admitted::Live(follower))
            }
            other => {
                if let Some(cached) = cached {
                    shared.cache.put(slot, cached);
                }
                match other {
                    Begun::Granted(_) | Begun::Waiting { .. } => {
                        Ok(Admitted::Live(Follower::new(shared, slot, &call, desk, None)))
                    }
                    Begun::Done(reply) => Ok(Admitted::Done(Arc::new(reply))),
                    Begun::Expired => Err(CallError::ReplyExpired),
                    Begun::Conflict => Err(CallError::Conflict),
                    Begun::Deleted => Err(CallError::SessionDeleted),
                    Begun::Full => Err(CallError::QueueFull),
                    Begun::SessionBusy => Err(CallError::SessionBusy),
                }
            }
        }
    }

    /// Goes on with the session's last call, if it failed.
    pub async fn retry(
        self: &Arc<Self>,
        slot: &Slot,
        call: &CallId,
        context: &CallContext,
        stream: bool,
    ) -> Result<Admitted, CallError> {
        let shared = self;
        if !shared.phase.accepting() {
            return Err(shared.refusal(slot, call).await);
        }
        if !shared.has_room() {
            return Err(CallError::Overloaded);
        }
        let (seen, given_up) = match shared.store.status(slot, call).await? {
            CallStatus::Done(reply) => (reply.retry, CallView::done(call, &reply)?.was_given_up()),
            _ => (0, false),
        };
        // What was given up for the death of its replicas gets one more try, and takes no other with it.
        let attempts = if given_up { shared.settings.recovery_attempts.saturating_sub(1) } else { 0 };
        let alone = if given_up { shared.stand_alone() } else { None };
        let desk = shared.board.desk(slot);
        let cached = shared.cache.take(slot);
        let mut claim = shared.claim_request(cached.as_ref());
        if alone.is_some() {
            claim.leave = 0..0;
        }
        let retry = Retry {
            call: call.clone(),
            seen,
            attempts,
            context: context_bytes(context),
            revision: shared.settings.revision.clone(),
            stream,
            queued: events::about(call),
            claim,
        };
        let sent = Instant::now();
        let retried = shared.until_known(|| shared.store.retry(slot, &retry)).await;
        match retried.map_err(CallError::store(call, None))? {
            Retried::Granted(grant) => {
                let follower = Follower::new(shared, slot, call, desk.clone(), None);
                let hand = InHand { cached, said: Vec::new(), sent, alone };
                let launched = shared.launch(slot.clone(), desk, *grant, hand);
                launched.map_err(CallError::store(call, Some(true)))?;
                Ok(Admitted::Live(follower))
            }
            Retried::Waiting { .. } => Ok(Admitted::Live(Follower::new(shared, slot, call, desk, None))),
            Retried::Done(reply) => Ok(Admitted::Done(Arc::new(reply))),
            Retried::NotRetryable => Err(CallError::NotRetryable),
            Retried::SessionBusy => Err(CallError::SessionBusy),
            Retried::Unknown => Err(CallError::UnknownCall),
        }
    }

    /// What a replica that is about to stop says to a call: whether it was taken before, by anybody.
    async fn refusal(&self, slot: &Slot, call: &CallId) -> CallError {
        match self.store.status(slot, call).await {
            Ok(CallStatus::Unknown) => CallError::Draining { admitted: false },
            Ok(CallStatus::Live(_) | CallStatus::Done(_)) => CallError::Draining { admitted: true },
            Ok(CallStatus::Expired) => CallError::ReplyExpired,
            Ok(CallStatus::Deleted) => CallError::SessionDeleted,
            Err(error) => CallError::store(call, None)(error),
        }
    }
}

/// Of what was said, not of how it is to be answered: ids and times that a server adds are left out.
fn digest(messages: &[Message]) -> String {
    let mut hash = Sha256::new();
    for message in messages {
        let said = Blob::json(&(message.role, &message.content, &message.name, &message.extra));
        hash.update((said.len() as u64).to_be_bytes());
        hash.update(&*said);
    }
    use base64::Engine;
    // 128 bits tell a client's own messages apart.
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&hash.finalize()[..16])
}

fn stamped(mut message: Message) -> Entry {
    message.timestamp.get_or_insert_with(events::timestamp);
    Entry::new(message)
}

fn context_bytes(context: &CallContext) -> Blob {
    if *context == CallContext::default() { Blob::empty() } else { Blob::json(context) }
}
