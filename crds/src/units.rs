//! Durations and sizes as a manifest writes them: `500ms`, `6s`, `1h30m`; `64Mi`, `1Gi`.
//! Read strictly, printed in one canonical form, so that `60s` and `1m` are the same manifest.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Also what CEL's `duration()` reads, so that the rules can add them up.
pub const DURATION_PATTERN: &str = r"^([0-9]{1,6}h)?([0-9]{1,8}m)?([0-9]{1,9}s)?([0-9]{1,9}ms)?$";
pub const SIZE_PATTERN: &str = r"^[0-9]{1,12}(Ki|Mi|Gi|Ti)?$";

const DURATION_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZE_UNITS: [(&str, u64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error("{0:?} is not a duration; write a number and a unit, such as 500ms, 6s, 10m or 720h")]
    Duration(String),
    #[error("{0:?} is not a size; write a number and a unit, such as 512Ki, 64Mi or 1Gi")]
    Size(String),
}

/// A length of time, whole milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(std::time::Duration);

impl Duration {
    pub const ZERO: Self = Self(std::time::Duration::ZERO);

    pub const fn from_millis(millis: u64) -> Self {
        Self(std::time::Duration::from_millis(millis))
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(std::time::Duration::from_secs(secs))
    }

    pub const fn from_mins(mins: u64) -> Self {
        Self::from_secs(mins * 60)
    }

    pub const fn from_hours(hours: u64) -> Self {
        Self::from_mins(hours * 60)
    }

    /// As the standard library has it.
    pub const fn get(self) -> std::time::Duration {
        self.0
    }
}

impl std::ops::Deref for Duration {
    type Target = std::time::Duration;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> Self {
        duration.0
    }
}

impl FromStr for Duration {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Duration(text.to_owned());
        let mut rest = text;
        let mut units = DURATION_UNITS.iter();
        let mut millis = 0_u64;
        while !rest.is_empty() {
            let (digits, tail) = split_digits(rest).ok_or_else(wrong)?;
            let suffix = tail.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default();
            // Asking the same iterator again is what keeps the units in order, each at most once.
            let (_, scale) = units.find(|(unit, _)| *unit == suffix).ok_or_else(wrong)?;
            let part = digits.checked_mul(*scale).ok_or_else(wrong)?;
            millis = millis.checked_add(part).ok_or_else(wrong)?;
            rest = &tail[suffix.len()..];
        }
        if text.is_empty() { Err(wrong()) } else { Ok(Self::from_millis(millis)) }
    }
}

impl fmt::Display for Duration {
    /// The largest unit that divides it: `720h` stays `720h`, `60s` is `1m`, `1500ms` stays as it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        match DURATION_UNITS.iter().find(|(_, scale)| millis.is_multiple_of(*scale)) {
            Some((unit, scale)) if millis > 0 => write!(f, "{}{unit}", millis / scale),
            _ => f.write_str("0s"),
        }
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

impl Size {
    pub const fn from_mebibytes(mebibytes: u64) -> Self {
        Self(mebibytes << 20)
    }

    pub const fn from_gibibytes(gibibytes: u64) -> Self {
        Self(gibibytes << 30)
    }

    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let wrong = || UnitError::Size(text.to_owned());
        let (digits, suffix) = split_digits(text).ok_or_else(wrong)?;
        let scale = match SIZE_UNITS.iter().find(|(unit, _)| *unit == suffix) {
            Some((_, scale)) => *scale,
            None if suffix.is_empty() => 1,
            None => return Err(wrong()),
        };
        digits.checked_mul(scale).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match SIZE_UNITS.iter().find(|(_, scale)| self.0 > 0 && self.0.is_multiple_of(*scale)) {
            Some((unit, scale)) => write!(f, "{}{unit}", self.0 / scale),
            None => write!(f, "{}", self.0),
        }
    }
}

fn split_digits(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let digits = text[..end].parse().ok()?;
    Some((digits, &text[end..]))
}

macro_rules! written_as_text {
    ($type:ty, $name:literal, $pattern:expr, $max:literal) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({"type": "string", "pattern": $pattern, "minLength": 1, "maxLength": $max})
            }
        }
    };
}

written_as_text!(Duration, "Duration", DURATION_PATTERN, 40);
written_as_text!(Size, "Size", SIZE_PATTERN, 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_print() {
        for (text, millis, canonical) in [
            ("500ms", 500, "500ms"),
            ("6s", 6_000, "6s"),
            ("60s", 60_000, "1m"),
            ("1h30m", 5_400_000, "90m"),
            ("720h", 2_592_000_000, "720h"),
            ("1500ms", 1_500, "1500ms"),
            ("0s", 0, "0s"),
        ] {
            let duration: Duration = text.parse().unwrap();
            assert_eq!(duration, Duration::from_millis(millis), "{text}");
            assert_eq!(duration.to_string(), canonical, "{text}");
        }
        for wrong in ["", "6", "s", "6 s", "-6s", "6s1h", "6s6s", "6d", "1.5s", "99999999999999999999h"] {
            assert!(wrong.parse::<Duration>().is_err(), "{wrong:?} was read");
        }
    }

    #[test]
    fn sizes_read_and_print() {
        for (text, bytes, canonical) in
            [("64Mi", 64 << 20, "64Mi"), ("1024Mi", 1 << 30, "1Gi"), ("1000", 1000, "1000"), ("0", 0, "0")]
        {
            let size: Size = text.parse().unwrap();
            assert_eq!(size.bytes(), bytes, "{text}");
            assert_eq!(size.to_string(), canonical, "{text}");
        }
        for wrong in ["", "Mi", "64MB", "1.5Gi", "64 Mi", "-1", "99999999999999999999Ti"] {
            assert!(wrong.parse::<Size>().is_err(), "{wrong:?} was read");
        }
    }
}
