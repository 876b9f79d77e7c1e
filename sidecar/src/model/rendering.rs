//! What a provider has made of a history: kept with it, so that of a long one only what is new is ever looked at.

use std::sync::{Mutex, PoisonError};

use bytes::{Bytes, BytesMut};

use crate::state::Entry;

/// Pieces grow together up to this: few enough to be written as they are, small enough to be copied now and then.
const CHUNK: usize = 64 * 1024;

/// The beginning of one history as one provider says it. Whoever asks need not say what has changed since: a history
/// that does not begin with the same entries is begun anew.
#[derive(Default)]
pub struct Rendering(Mutex<Option<Kept>>);

struct Kept {
    first: Entry,
    last: Entry,
    so_far: SoFar,
}

/// How far a history has been rendered.
#[derive(Debug, Clone, Default)]
pub(super) struct SoFar {
    /// Entries.
    pub(super) count: usize,
    pub(super) said: Rope,
    /// What a protocol has to remember between two messages.
    pub(super) state: u8,
}

impl Rendering {
    pub(super) fn of(&self, history: &[Entry]) -> SoFar {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(kept) = kept.as_ref() else { return SoFar::default() };
        let is = |at: usize, entry: &Entry| history.get(at).is_some_and(|found| found.is(entry));
        let same = is(0, &kept.first) && is(kept.so_far.count - 1, &kept.last);
        if same { kept.so_far.clone() } else { SoFar::default() }
    }

    pub(super) fn keep(&self, history: &[Entry], so_far: &SoFar) {
        let (Some(first), Some(last)) = (history.first(), so_far.count.checked_sub(1).map(|at| &history[at]))
        else {
            return;
        };
        let kept = Kept { first: first.clone(), last: last.clone(), so_far: so_far.clone() };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept);
    }

    /// Bytes it holds.
    pub fn weight(&self) -> usize {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().map_or(0, |kept| kept.so_far.said.pieces.iter().map(Bytes::len).sum())
    }
}

impl std::fmt::Debug for Rendering {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rendering({} bytes)", self.weight())
    }
}

/// Bytes in pieces that others share; what is added grows together.
#[derive(Debug, Clone, Default)]
pub(super) struct Rope {
    pieces: Vec<Bytes>,
}

impl Rope {
    pub(super) fn pieces(&self) -> impl Iterator<Item = Bytes> {
        self.pieces.iter().cloned()
    }

    pub(super) fn len(&self) -> usize {
        self.pieces.len()
    }

    /// A byte is copied about as often as its length can be doubled within a chunk.
    pub(super) fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        let mut from = self.pieces.len();
        let mut length = piece.len();
        while let Some(before) = from.checked_sub(1).map(|at| self.pieces[at].len())
            && before <= 2 * length
            && before + length <= CHUNK
        {
            (from, length) = (from - 1, length + before);
        }
        if from == self.pieces.len() {
            self.pieces.push(piece);
            return;
        }
        let mut joined = BytesMut::with_capacity(length);
        self.pieces.drain(from..).for_each(|before| joined.extend_from_slice(&before));
        joined.extend_from_slice(&piece);
        self.pieces.push(joined.freeze());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Message;

    #[test]
    fn pieces_grow_together_into_few_and_nothing_is_lost() {
        let mut rope = Rope::default();
        let mut whole = Vec::new();
        for n in 0..1000_u32 {
            let piece = format!("{n} {}", "x".repeat(400));
            whole.extend_from_slice(piece.as_bytes());
            rope.push(piece.into());
        }
        rope.push(Bytes::new());
        assert_eq!(rope.pieces.concat(), whole);
        assert!(rope.len() < 24, "{} pieces", rope.len());
        assert!(rope.pieces.iter().all(|piece| piece.len() <= CHUNK));
    }

    #[test]
    fn a_history_that_begins_otherwise_is_begun_anew() {
        let entry = |text: &str| Entry::new(Message::user(text));
        let mut history = vec![entry("a"), entry("b"), entry("c")];
        let rendering = Rendering::default();
        let so_far = SoFar { count: 2, state: 7, ..SoFar::default() };
        rendering.keep(&history, &so_far);
        assert_eq!(rendering.of(&history).state, 7);
        assert_eq!(rendering.of(&history[..2]).state, 7);
        assert_eq!(rendering.of(&history[..1]).count, 0, "shorter");
        assert_eq!(rendering.of(&history[1..]).count, 0, "begins later");
        history[1] = entry("b");
        assert_eq!(rendering.of(&history).count, 0, "alike is not the same");
        assert_eq!(rendering.of(&[]).count, 0);
    }
}
