//! Everybody else's: interrupt, rewrite, delete.

use super::admit::{fresh_epoch, marked, millis};
use super::{Change, Decision, Head, Progress, SlotData, Tombstone};
use crate::mutants::{self, Mutant};
use crate::state::CallId;
use crate::store::blob::Blob;
use crate::store::contract::{Condition, Interrupted, Limits, Millis, Rewrite, Rewritten};

impl SlotData {
    pub fn interrupt(
        &self,
        now: Millis,
        limits: &Limits,
        call: &CallId,
        mark: &Blob,
    ) -> Decision<Interrupted> {
        let Some(live) = self.calls.get(call) else {
            return Decision::nothing(Interrupted::NoRunningCall);
        };
        let progress =
            Progress { mark: Some(marked(live.progress.mark.as_ref(), mark)), ..live.progress.clone() };
        let head = Head { parked: false, ..self.touched(now, limits) };
        let changes = vec![Change::Progress(call.clone(), progress), Change::Head(Box::new(head))];
        Decision { outcome: Interrupted::Marked, changes, announce: true }
    }

    pub fn rewrite(&self, now: Millis, limits: &Limits, rewrite: &Rewrite) -> Decision<Rewritten> {
        if !self.queue.is_empty() {
            return Decision::nothing(Rewritten::SessionBusy);
        }
        if let Some((nonce, version)) = self.head.rewrite
            && nonce == rewrite.nonce
        {
            return Decision::nothing(Rewritten::Done { version });
        }
        let version = self.exists().then_some(self.head.version);
        let holds = match rewrite.condition {
            Condition::Exists => version.is_some(),
            Condition::Version(wanted) => version == Some(wanted),
            Condition::Absent => version.is_none(),
        };
        if !holds {
            return Decision::nothing(Rewritten::Mismatch { version });
        }
        let mut head = self.touched(now, limits);
        if !self.exists() {
            head.created = now;
            if let Some(tombstone) = &self.tombstone {
                (head.version, head.fence) = (tombstone.version, tombstone.fence);
            }
        }
        head.epoch = fresh_epoch(&self.head, rewrite.epoch);
        head.version += 1;
        head.turns = rewrite.turns;
        head.revision.clone_from(&rewrite.revision);
        head.interrupted = false;
        head.rewrite = Some((rewrite.nonce, head.version));
        let outcome = Rewritten::Done { version: head.version };
        let changes = vec![
            Change::Replace(rewrite.messages.clone()),
            Change::Meta(rewrite.meta.clone()),
            Change::Head(Box::new(head)),
        ];
        Decision { outcome, changes, announce: false }
    }

    pub fn delete(&self, now: Millis, limits: &Limits) -> Decision<bool> {
        if !self.exists() {
            return Decision::nothing(false);
        }
        let earlier = self.tombstone.iter().flat_map(|tombstone| tombstone.calls.iter());
        let mut calls: std::collections::BTreeSet<CallId> =
            earlier.chain(self.done.keys()).chain(self.calls.keys()).cloned().collect();
        let mut expires = now + millis(limits.reply_ttl);
        if mutants::is(Mutant::DeleteWithoutTombstone) {
            calls.clear();
            expires = 0;
        }
        let tombstone = Tombstone { fence: self.head.fence, version: self.head.version, calls, expires };
        Decision { outcome: true, changes: vec![Change::Bury(Box::new(tombstone))], announce: true }
    }
}
