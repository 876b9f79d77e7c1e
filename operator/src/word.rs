//! A uid or a version: a word of the API server's, which is given back as it was. There are many, so they are kept
//! small.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Word {
    Uuid([u8; 16]),
    Number(u64),
    Text(Box<str>),
}

impl Word {
    /// Of two versions of one object. Versions are numbers that grow; where they are not, nothing is known.
    pub fn is_older_than(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Number(this), Self::Number(other)) if this < other)
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        let small = uuid(text).map(Self::Uuid).or_else(|| text.parse().ok().map(Self::Number));
        match small {
            Some(word) if word.to_string() == text => word,
            _ => Self::Text(text.into()),
        }
    }
}

impl From<Option<&String>> for Word {
    fn from(text: Option<&String>) -> Self {
        text.map_or("", String::as_str).into()
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(bytes) => {
                for (index, byte) in bytes.iter().enumerate() {
                    let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
                    write!(f, "{dash}{byte:02x}")?;
                }
                Ok(())
            }
            Self::Number(number) => write!(f, "{number}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    if text.len() != 36 || !text.is_ascii() {
        return None;
    }
    let mut digits = text.bytes().filter(|byte| *byte != b'-').map(|byte| (byte as char).to_digit(16));
    let mut bytes = [0; 16];
    for byte in &mut bytes {
        let (high, low) = (digits.next()??, digits.next()??);
        *byte = u8::try_from(high << 4 | low).ok()?;
    }
    digits.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_given_back_as_it_was() {
        for text in [
            "0b1f2c3d-4e5f-4a6b-8c7d-0123456789ab",
            "0B1F2C3D-4E5F-4A6B-8C7D-0123456789AB",
            "0b1f2c3d4e5f-4a6b-8c7d-0123456789ab-",
            "123456",
            "0123",
            "18446744073709551616",
            "-1",
            "",
            "any thing",
        ] {
            assert_eq!(Word::from(text).to_string(), text);
        }
        assert_eq!(size_of::<Word>(), 24);
    }

    #[test]
    fn only_numbers_grow_older() {
        assert!(Word::from("9").is_older_than(&"10".into()));
        assert!(!Word::from("10").is_older_than(&"10".into()));
        assert!(!Word::from("a").is_older_than(&"b".into()));
    }
}
