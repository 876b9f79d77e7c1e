//! A request body that is put together from pieces others own.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, SizeHint};

/// Pieces smaller than this are copied together: a write of many small ones costs more than copying them.
const SMALL: usize = 16 * 1024;
/// What is copied together at most, and so what one request holds beside the pieces it shares.
const FRAME: usize = 128 * 1024;

/// Pieces, one after the other. Cloning it is cheap, so a request can be sent again.
#[derive(Debug, Clone)]
pub struct Spliced {
    pieces: Arc<[Bytes]>,
    next: usize,
    remaining: u64,
}

impl Spliced {
    pub fn new(pieces: Vec<Bytes>) -> Self {
        let remaining = pieces.iter().map(|piece| piece.len() as u64).sum();
        Self { pieces: pieces.into(), next: 0, remaining }
    }

    /// Whether both are made of the very same pieces.
    #[cfg(test)]
    pub(crate) fn shares_with(&self, other: &Self) -> bool {
        let same = |(one, two): (&Bytes, &Bytes)| one.as_ptr() == two.as_ptr() && one.len() == two.len();
        self.pieces.len() == other.pieces.len() && self.pieces.iter().zip(other.pieces.iter()).all(same)
    }

    #[cfg(test)]
    pub(crate) fn concat(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    fn take_next(&mut self) -> Option<Bytes> {
        while let Some(piece) = self.pieces.get(self.next) {
            let small_until = self.small_until();
            if small_until > self.next + 1 {
                let pieces = &self.pieces[self.next..small_until];
                let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
                for piece in pieces {
                    joined.extend_from_slice(piece);
                }
                self.next = small_until;
                return Some(joined.freeze());
            }
            let piece = piece.clone();
            self.next += 1;
            if !piece.is_empty() {
                return Some(piece);
            }
        }
        None
    }

    /// The end of the run of small pieces that starts at the next one and fits a frame.
    fn small_until(&self) -> usize {
        let mut size = 0;
        let mut end = self.next;
        while let Some(piece) = self.pieces.get(end) {
            size += piece.len();
            if piece.len() >= SMALL || size > FRAME {
                break;
            }
            end += 1;
        }
        end
    }
}

impl From<Bytes> for Spliced {
    fn from(piece: Bytes) -> Self {
        Self::new(vec![piece])
    }
}

impl Body for Spliced {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = self.take_next();
        self.remaining -= frame.as_ref().map_or(0, |frame| frame.len() as u64);
        Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(pieces: Vec<Bytes>) -> Vec<Bytes> {
        let mut body = Spliced::new(pieces);
        std::iter::from_fn(|| body.take_next()).collect()
    }

    #[test]
    fn small_pieces_travel_together_and_large_ones_uncopied() {
        let large = Bytes::from(vec![b'x'; SMALL]);
        let small = Bytes::from_static(b"ab");
        let sent = frames(vec![small.clone(), Bytes::new(), small.clone(), large.clone(), small]);
        assert_eq!(sent.len(), 3);
        assert_eq!(sent[0], "abab");
        assert_eq!(sent[1].as_ptr(), large.as_ptr(), "shared, not copied");
        assert_eq!(sent[2], "ab");
    }

    #[test]
    fn nothing_is_lost_and_no_frame_grows_without_bound() {
        let piece = Bytes::from(vec![b'y'; SMALL - 1]);
        let sent = frames(vec![piece; 40]);
        assert_eq!(sent.iter().map(Bytes::len).sum::<usize>(), 40 * (SMALL - 1));
        assert!(sent.iter().all(|frame| !frame.is_empty() && frame.len() <= FRAME));
        assert!(frames(vec![Bytes::new()]).is_empty());
    }
}
