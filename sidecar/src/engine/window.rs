//! What of a long history is sent: the tail that fits, cut where a turn begins.

use crate::state::{Entry, Role};

/// Bytes of JSON a token is worth, for a first estimate. On the low side: an estimate that is too long only sends less.
const BYTES_PER_TOKEN: usize = 4;

/// The first message of `history`, which has so many `bytes`, to be sent so that it fits `tokens` together with `rest` bytes
/// that must be sent.
///
/// A cut is only made before a message of the user's: there no tool call is separated from its result. What is stored
/// is not touched. Nothing is looked at where everything fits.
pub fn window(history: &[Entry], bytes: usize, rest: usize, tokens: usize) -> usize {
    let room = tokens.saturating_mul(BYTES_PER_TOKEN).saturating_sub(rest);
    if bytes <= room {
        return 0;
    }
    let (mut used, mut cut) = (0, history.len());
    for (index, entry) in history.iter().enumerate().rev() {
        used += entry.raw().len();
        if used > room {
            break;
        }
        if begins_a_turn(entry) {
            cut = index;
        }
    }
    cut
}

fn begins_a_turn(entry: &Entry) -> bool {
    entry.glance().is_ok_and(|message| message.role == Role::User)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{Block, Message};

    fn history(turns: usize) -> Vec<Entry> {
        let turn = |n: usize| {
            [Message::user(format!("question {n:04}")), Message::assistant(vec![Block::text("answer")])]
                .map(Entry::new)
        };
        (0..turns).flat_map(turn).collect()
    }

    fn window(history: &[Entry], rest: usize, tokens: usize) -> usize {
        super::window(history, history.iter().map(|entry| entry.raw().len()).sum(), rest, tokens)
    }

    #[test]
    fn what_fits_is_sent_whole() {
        let history = history(10);
        assert_eq!(window(&history, 0, 10_000), 0);
    }

    #[test]
    fn what_does_not_fit_is_cut_where_a_turn_begins() {
        let history = history(100);
        let bytes: usize = history.iter().map(|entry| entry.raw().len()).sum();
        let cut = window(&history, 0, bytes / 8);
        assert!(cut > 50 && cut < 200, "{cut}");
        assert_eq!(cut % 2, 0, "message {cut} is an answer");
        let sent: usize = history[cut..].iter().map(|entry| entry.raw().len()).sum();
        assert!(sent <= bytes / 2);
    }

    #[test]
    fn where_nothing_fits_the_call_itself_is_still_sent() {
        let history = history(3);
        assert_eq!(window(&history, 1_000_000, 1_024), history.len());
    }
}
