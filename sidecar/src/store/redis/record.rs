//! Records: several numbers and texts in one field of a hash, one value of a key or one argument of a script. A field a
//! property would cost Redis more to read than all else a script does.
//!
//! Each has a letter, by which scripts name its fields (`s.version`), and a layout in the letters of Lua's `struct`: `B` a
//! byte, `I6` a number of six bytes, highest first, `c16` so many bytes. Names behind the `;` are parts that follow, or what
//! a script keeps beside. What a stored record has behind all that is known is kept, so that a newer version may add to it.

use std::sync::LazyLock;

use crate::store::error::StoreError;

pub struct Record {
    pub letter: char,
    fields: Vec<Field>,
    /// Bytes of the fields that every one has.
    pub size: usize,
    /// What a script keeps beside the fields.
    beside: Vec<&'static str>,
}

struct Field {
    code: &'static str,
    name: &'static str,
    at: usize,
    size: usize,
}

const LAYOUTS: [(char, &str); 9] = [
    // A session, in its head as `s`.
    (
        's',
        "B layout B held B interrupted B watched B parked B buried I6 created I6 version I6 turns I6 len I6 fence c16 nonce \
         I6 till I6 expires I6 kept I6 due I6 first I6 next I4 wal c16 epoch c10 tail I2 revisionSize I4 queueSize I2 holderSize; \
         revision queue holder more fresh touched text",
    ),
    // What a live call was begun with, as `c<call>`. Behind it: digest, context, revision, `call.queued`.
    (
        'c',
        "B layout I6 fence I4 position I4 retry I4 prior I4 inputs I2 digestSize I4 contextSize I2 revisionSize; \
         digest queued",
    ),
    // How it does, as `p<call>`, unless it is as new. Behind it: its marks.
    (
        'p',
        "B stream B streamed I6 ran I4 resumes I4 attempts I4 total I6 logFence I6 logSeq I6 logBytes; \
         mark id call changed log",
    ),
    // A finished call, as `d<call>`. Behind it: its digest.
    ('d', "I6 place I6 ended;"),
    // A reply. Behind it: document, `call.queued`, the events of its commit, each message after its length.
    (
        'r',
        "B layout B ended I4 retry I6 version I6 fence c16 nonce I6 at I6 queuedFence I4 position I4 own I4 messages \
         I4 documentSize I4 queuedSize I4 eventsSize;",
    ),
    // An event. Behind it: `size` bytes, the first of which says how to read the others.
    ('e', "I4 seq B name I3 message I4 size;"),
    // A request for the lease.
    (
        'q',
        "c16 nonce c16 epoch I2 leaveFrom I2 leaveTo B stream B onBusy I4 inputs B known c16 knownEpoch I6 knownVersion \
         I6 knownLen c10 knownTail;",
    ),
    // A sign of life of the holder.
    ('h', "I6 fence c16 nonce I6 ran I4 at I4 steps B park;"),
    // A commit.
    (
        'k',
        "I6 fence c16 nonce I6 version I6 turns I4 marksSeen B ended B goOn B meta I4 messages I6 weight c10 tail;",
    ),
];

static RECORDS: LazyLock<Vec<Record>> =
    LazyLock::new(|| LAYOUTS.iter().map(|(letter, layout)| Record::new(*letter, layout)).collect());

impl Record {
    fn new(letter: char, layout: &'static str) -> Self {
        let (fields, beside) = layout.split_once(';').unwrap_or((layout, ""));
        let mut words = fields.split_whitespace();
        let (mut fields, mut at) = (Vec::new(), 0);
        while let (Some(code), Some(name)) = (words.next(), words.next()) {
            let size = code[1..].parse().unwrap_or(1);
            fields.push(Field { code, name, at, size });
            at += size;
        }
        Self { letter, fields, size: at, beside: beside.split_whitespace().collect() }
    }

    /// By its letter.
    pub fn named(letter: char) -> Option<&'static Self> {
        RECORDS.iter().find(|record| record.letter == letter)
    }

    /// What a script says where it says `<letter>.<name>`.
    pub fn in_lua(&self, name: &str) -> Option<String> {
        let fields = self.fields.iter().map(|field| field.name).chain(self.beside.iter().copied());
        match name {
            "FORMAT" => {
                Some(format!("'>{}'", self.fields.iter().map(|field| field.code).collect::<String>()))
            }
            "SIZE" => Some(self.size.to_string()),
            "COUNT" => Some(self.fields.len().to_string()),
            // One in which all is nought.
            "NEW" => {
                let noughts = self.fields.iter().map(|field| match field.code {
                    code if code.starts_with('c') => format!("'{}'", "\\0".repeat(field.size)),
                    _ => "0".to_owned(),
                });
                Some(format!("{{ {} }}", noughts.collect::<Vec<_>>().join(", ")))
            }
            name => {
                let place = fields.enumerate().find(|(_, field)| *field == name)?.0;
                Some(format!("{}[{}]", self.letter, place + 1))
            }
        }
    }

    /// Looks at stored bytes.
    pub fn read<'a>(&'static self, bytes: &'a [u8], what: &str) -> Result<Reading<'a>, StoreError> {
        if bytes.len() < self.size {
            return Err(StoreError::Corrupt(format!("Redis has {what} that cannot be read")));
        }
        Ok(Reading { record: self, bytes })
    }
}

/// A stored record.
pub struct Reading<'a> {
    record: &'static Record,
    bytes: &'a [u8],
}

impl<'a> Reading<'a> {
    pub fn bytes(&self, name: &str) -> &'a [u8] {
        let field = self.record.fields.iter().find(|field| field.name == name);
        debug_assert!(field.is_some(), "{} has no {name}", self.record.letter);
        field.map_or(&[], |field| &self.bytes[field.at..field.at + field.size])
    }

    pub fn number(&self, name: &str) -> u64 {
        number(self.bytes(name))
    }

    pub fn flag(&self, name: &str) -> bool {
        self.number(name) != 0
    }

    /// 128 bits.
    pub fn id(&self, name: &str) -> u128 {
        self.bytes(name).iter().fold(0, |id, byte| (id << 8) | u128::from(*byte))
    }
}

pub fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// A record to be sent: every field by its name, in the order of the layout.
pub struct Writing {
    record: &'static Record,
    next: usize,
    bytes: Vec<u8>,
}

impl Writing {
    pub fn of(letter: char) -> Self {
        // Every letter in the code is in the table.
        let record = Record::named(letter).unwrap_or(&RECORDS[0]);
        debug_assert_eq!(record.letter, letter);
        Self { record, next: 0, bytes: Vec::with_capacity(record.size) }
    }

    fn field(&mut self, name: &str) -> usize {
        let field = &self.record.fields[self.next];
        debug_assert_eq!(field.name, name, "the next field of {}", self.record.letter);
        self.next += 1;
        field.size
    }

    /// What does not fit becomes the largest number that does.
    pub fn number(mut self, name: &str, number: impl TryInto<u64>) -> Self {
        let size = self.field(name);
        let largest = u64::MAX >> (64 - 8 * size);
        let number = number.try_into().unwrap_or(largest).min(largest);
        self.bytes.extend_from_slice(&number.to_be_bytes()[8 - size..]);
        self
    }

    pub fn flag(self, name: &str, flag: bool) -> Self {
        self.number(name, u8::from(flag))
    }

    pub fn bytes(mut self, name: &str, bytes: &[u8]) -> Self {
        let size = self.field(name);
        debug_assert_eq!(size, bytes.len(), "{name}");
        self.bytes.extend_from_slice(bytes);
        self
    }

    pub fn id(self, name: &str, id: u128) -> Self {
        self.bytes(name, &id.to_be_bytes())
    }

    pub fn done(self) -> Vec<u8> {
        debug_assert_eq!(self.bytes.len(), self.record.size, "{} wants more", self.record.letter);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        let event =
            Writing::of('e').number("seq", 1_u64 << 30).number("name", b'Q').number("message", 7_usize);
        let bytes = event.number("size", 5_usize).done();
        let read = Record::named('e').expect("a record").read(&bytes, "an event").expect("long enough");
        assert_eq!((read.number("seq"), read.number("name")), (1 << 30, u64::from(b'Q')));
        assert_eq!((read.number("message"), read.number("size")), (7, 5));
        assert!(Record::named('e').expect("a record").read(&bytes[1..], "an event").is_err());
    }

    #[test]
    fn scripts_name_fields_by_their_place() {
        let record = Record::new('x', "B one I6 two c16 three; four");
        assert_eq!(record.in_lua("two").as_deref(), Some("x[2]"));
        assert_eq!(record.in_lua("four").as_deref(), Some("x[4]"));
        assert_eq!(record.in_lua("FORMAT").as_deref(), Some("'>BI6c16'"));
        let noughts = "{ 0, 0, '\\0\\0' }";
        assert_eq!(Record::new('y', "B a I4 b c2 c;").in_lua("NEW").as_deref(), Some(noughts));
        assert_eq!((record.in_lua("SIZE").as_deref(), record.in_lua("five")), (Some("23"), None));
    }
}
