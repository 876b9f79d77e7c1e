//! The one range of bytes that a client asks for.

use crate::workspace::Part;

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Asked {
    /// From one byte on, up to and with another if it is said.
    From(u64, Option<u64>),
    /// The last so many.
    Last(u64),
}

/// What a `Range` asks for. Anything but one range of bytes is passed over, as RFC 9110 allows: all is sent.
pub fn asked(header: &str) -> Option<Asked> {
    let range = header.trim().strip_prefix("bytes=")?.trim();
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    match range.split_once('-')? {
        ("", last) => number(last).map(Asked::Last),
        (first, "") => number(first).map(|first| Asked::From(first, None)),
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(Asked::From(first, Some(last)))
        }
    }
}

impl Asked {
    /// What of the file must be read to answer it.
    pub fn part(self) -> Part {
        match self {
            Self::From(from, Some(last)) => Part { from, len: (last - from).saturating_add(1) },
            Self::From(from, None) => Part { from, len: u64::MAX },
            Self::Last(_) => Part::WHOLE,
        }
    }

    pub fn is_from_the_end(self) -> bool {
        matches!(self, Self::Last(_))
    }

    /// The first and the last byte of a file of this size; `None` where it has none of them.
    pub fn within(self, size: u64) -> Option<(u64, u64)> {
        let end = size.checked_sub(1)?;
        match self {
            Self::From(first, last) if first <= end => Some((first, last.map_or(end, |last| last.min(end)))),
            Self::Last(count) if count > 0 => Some((size.saturating_sub(count), end)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_read_and_anything_else_passed_over() {
        assert_eq!(asked("bytes=0-4"), Some(Asked::From(0, Some(4))));
        assert_eq!(asked("bytes=7-"), Some(Asked::From(7, None)));
        assert_eq!(asked("bytes=-3"), Some(Asked::Last(3)));
        for other in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=4-1",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=+1-2",
            "bytes=a-b",
        ] {
            assert_eq!(asked(other), None, "{other}");
        }
    }

    #[test]
    fn a_range_is_cut_to_the_file() {
        assert_eq!(Asked::From(0, Some(99)).within(10), Some((0, 9)));
        assert_eq!(Asked::From(10, None).within(10), None);
        assert_eq!(Asked::Last(3).within(10), Some((7, 9)));
        assert_eq!(Asked::Last(99).within(10), Some((0, 9)));
        assert_eq!(Asked::Last(0).within(10), None);
        assert_eq!(Asked::From(0, None).within(0), None);
    }
}
