//! The scripts and how they are called.
//!
//! A script's first lines are its signature: the flags, the parts it shares, the KEYS and the ARGV by name. They are read here, so a caller
//! names what it passes and the script names what it gets, and neither counts.

use std::collections::BTreeSet;
use std::fmt::Write;

use redis::{Cmd, ToRedisArgs, Value};
use sha1::{Digest, Sha1};

use super::fault::Fault;
use super::keys::{Key, SlotKeys};
use super::link::Link;
use super::record::Record;
use crate::state::CallId;
use crate::store::contract::{Limits, REMEMBERED_CALLS};
use crate::store::error::StoreError;
use crate::store::slot::millis;

/// What all scripts share.
const BASE: &str = include_str!("scripts/base.lua");

/// A piece of Lua by its name. Each script takes only the parts it names, and some only where they are needed (`-- HERE`):
/// every function in them is made anew with every call.
pub type Part = (&'static str, &'static str);

const PARTS: &[Part] = &[
    ("prelude", include_str!("scripts/prelude.lua")),
    ("called", include_str!("scripts/called.lua")),
    ("queue", include_str!("scripts/queue.lua")),
    ("graves", include_str!("scripts/graves.lua")),
    ("calls", include_str!("scripts/calls.lua")),
    ("marks", include_str!("scripts/marks.lua")),
    ("journal", include_str!("scripts/journal.lua")),
    ("replies", include_str!("scripts/replies.lua")),
    ("lease", include_str!("scripts/lease.lua")),
    ("admit", include_str!("scripts/admit.lua")),
    ("attach", include_str!("scripts/attach.lua")),
    ("holder", include_str!("scripts/holder.lua")),
    ("log", include_str!("scripts/log.lua")),
    ("pulse", include_str!("scripts/pulse.lua")),
    ("announce", include_str!("scripts/announce.lua")),
];

/// Redis' own time, in milliseconds.
pub const SERVER_TIME: &str = "local arguments, now = #ARGV, redis.call('TIME')\n\
    now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)\n";

/// A test's time, as the last argument of every call.
#[cfg(feature = "mutants")]
const CALLERS_TIME: &str = "local arguments, now = #ARGV - 1, tonumber(ARGV[#ARGV])\n";

/// A number that does not change while the process lives: part of the text, not sent with every call.
pub type Constant = (&'static str, u64);

/// What scripts stand on, beside their own text.
#[derive(Clone, Copy)]
pub struct Ground<'a> {
    pub parts: &'a [Part],
    pub constants: &'a [Constant],
    pub time: &'a str,
}

pub struct Script {
    pub name: &'static str,
    /// Those with a `?` behind them may be left out; they are the last.
    pub keys: Vec<&'static str>,
    arguments: Vec<&'static str>,
    pub source: String,
    sha: String,
}

impl Script {
    pub fn new(name: &'static str, text: &'static str, ground: Ground<'_>) -> Self {
        let (flags, body) = text.split_once('\n').unwrap_or((text, ""));
        let signature = |label: &str| {
            text.lines()
                .filter_map(|line| line.strip_prefix(label).map(str::split_whitespace))
                .flat_map(|words| words.take_while(|word| *word != "then"))
                .collect::<Vec<_>>()
        };
        let (keys, arguments) = (signature("-- KEYS"), signature("-- ARGV"));

        let mut text = format!("local rest = {}\n", arguments.len() + 1);
        text.push_str(ground.time);
        text.push_str(BASE);
        let parts = |wanted: &[&str]| {
            let wanted = ground.parts.iter().filter(|(name, _)| wanted.contains(name));
            wanted.map(|(_, part)| *part).collect::<String>()
        };
        text.push_str(&parts(&signature("-- PARTS")));
        for line in body.lines() {
            match line.trim_start().strip_prefix("-- HERE ") {
                Some(wanted) => text.push_str(&parts(&wanted.split(' ').collect::<Vec<_>>())),
                None => text.push_str(line),
            }
            text.push('\n');
        }
        let place = |list: &str, names: &[&str], name: &str| {
            let place = names.iter().position(|known| known.trim_end_matches('?') == name);
            place.map_or_else(|| "nil".to_owned(), |place| format!("{list}[{}]", place + 1))
        };
        let named = |table: &str, name: &str| match table {
            "K" => Some(place("KEYS", &keys, name)),
            "A" => Some(place("ARGV", &arguments, name)),
            "LIMIT" => ground
                .constants
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, number)| number.to_string()),
            letter => Record::named(letter.chars().next().filter(|_| letter.len() == 1)?)?.in_lua(name),
        };
        let source = format!("{flags}\n{}", resolved(&text, named));
        let sha = Sha1::digest(&source).iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        Self { name, keys, arguments, source, sha }
    }
}

/// Puts in what `<table>.<name>` stands for, wherever `named` knows it: looking names up while a script runs costs more than
/// most of its commands. Comments go too.
fn resolved(text: &str, named: impl Fn(&str, &str) -> Option<String>) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut source = String::with_capacity(text.len());
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--")) {
        let mut rest = line;
        while let Some(dot) = rest.find('.') {
            let (before, after) = (&rest[..dot], &rest[dot + 1..]);
            let table = &before[before.rfind(|c| !word(c)).map_or(0, |at| at + 1)..];
            let name = &after[..after.find(|c| !word(c)).unwrap_or(after.len())];
            match named(table, name) {
                Some(found) => {
                    source.push_str(&before[..before.len() - table.len()]);
                    source.push_str(&found);
                    rest = &after[name.len()..];
                }
                None => {
                    source.push_str(&rest[..=dot]);
                    rest = after;
                }
            }
        }
        source.push_str(rest);
        source.push('\n');
    }
    source
}

/// A struct with a script a field, each from the file of its name in `scripts/` beside the caller.
macro_rules! scripts {
    ($scripts:ident: $($name:ident),* $(,)?) => {
        pub struct $scripts { $(pub $name: $crate::store::redis::Script),* }

        impl $scripts {
            fn new(ground: $crate::store::redis::Ground<'_>) -> Self {
                Self { $($name: $crate::store::redis::Script::new(
                    stringify!($name),
                    include_str!(concat!("scripts/", stringify!($name), ".lua")),
                    ground,
                )),* }
            }

            pub fn all(&self) -> Vec<&$crate::store::redis::Script> {
                vec![$(&self.$name),*]
            }
        }
    };
}
pub(crate) use scripts;

scripts!(
    Scripts: begin, claim, append, renew, commit, suspend, interrupt, retry, rewrite, delete, load, status, live,
    list, overdue,
);

impl Scripts {
    pub fn with(limits: &Limits) -> Self {
        Self::over(limits, SERVER_TIME)
    }

    #[cfg(feature = "mutants")]
    pub fn on_callers_time(limits: &Limits) -> Self {
        Self::over(limits, CALLERS_TIME)
    }

    fn over(limits: &Limits, time: &str) -> Self {
        let (lease, session) = (millis(limits.lease), millis(limits.session_ttl));
        let constants = [
            ("lease", lease),
            ("renew", lease * 2 / 3),
            ("sessionTtl", session),
            ("stride", session / 8 + 1),
            ("replyTtl", millis(limits.reply_ttl)),
            ("eventTtl", millis(limits.event_ttl)),
            ("eventBytes", limits.event_log_bytes as u64),
            ("queue", limits.queue_limit as u64),
            ("remembered", REMEMBERED_CALLS as u64),
        ];
        Self::new(Ground { parts: PARTS, constants: &constants, time })
    }
}

/// One call of a script: its keys, then its arguments in the order of the signature.
pub struct Invocation<'a> {
    script: &'a Script,
    /// Each with the type that it must be of.
    pub keys: Vec<(&'static str, String)>,
    command: Cmd,
    named: usize,
}

impl<'a> Invocation<'a> {
    /// `all`: also the keys that may be left out.
    pub fn of_slot(script: &'a Script, slot: &SlotKeys, call: Option<&CallId>, all: bool) -> Self {
        let wanted = script.keys.iter().filter(|name| all || !name.ends_with('?'));
        let key = |name: &&'static str| {
            let key = Key::named(name.trim_end_matches('?'))?;
            Some((key.kind(), slot.key(key, call)?))
        };
        Self::with_keys(script, wanted.filter_map(key).collect())
    }

    pub fn with_keys(script: &'a Script, keys: Vec<(&'static str, String)>) -> Self {
        let mut command = Cmd::new();
        command.arg("EVALSHA").arg(&script.sha).arg(keys.len());
        for (_, key) in &keys {
            command.arg(key);
        }
        Self { script, keys, command, named: 0 }
    }

    /// Whether `name` is the next argument.
    pub fn wants(&self, name: &str) -> bool {
        self.script.arguments.get(self.named) == Some(&name)
    }

    pub fn arg(mut self, name: &str, value: impl ToRedisArgs) -> Self {
        debug_assert_eq!(
            self.script.arguments.get(self.named),
            Some(&name),
            "the next argument of {}.lua",
            self.script.name
        );
        self.named += 1;
        self.command.arg(value);
        self
    }

    pub fn flag(self, name: &str, value: bool) -> Self {
        self.arg(name, u8::from(value))
    }

    /// An argument without a name, after all that have one.
    pub fn push(&mut self, value: impl ToRedisArgs) {
        debug_assert_eq!(
            self.named,
            self.script.arguments.len(),
            "{}.lua wants more names",
            self.script.name
        );
        self.command.arg(value);
    }

    #[cfg(feature = "mutants")]
    pub fn at(mut self, now: u64) -> Self {
        self.push(now);
        self
    }

    pub fn command(&self) -> &Cmd {
        debug_assert!(self.named == self.script.arguments.len(), "{}.lua wants more", self.script.name);
        &self.command
    }

    /// Sends it, with its source to a server that does not know the script yet.
    pub async fn send(&self, link: &dyn Link) -> Result<Value, StoreError> {
        let key = self.keys.first().map_or("", |(_, key)| key.as_str());
        let answer = match link.send(key, self.command()).await {
            Err(Fault::NoScript) => link.send(key, &self.with_source()).await,
            answer => answer,
        };
        match answer {
            Err(Fault::WrongType) => Err(self.culprit(link, key).await),
            answer => Ok(answer?),
        }
    }

    /// Which of the keys holds something else than it should.
    async fn culprit(&self, link: &dyn Link, route: &str) -> StoreError {
        let mut types = redis::pipe();
        for (_, key) in &self.keys {
            types.cmd("TYPE").arg(key);
        }
        let found = link.send_all(route, &types).await.unwrap_or_default();
        let wrong = self.keys.iter().zip(found).find_map(|((kind, key), found)| match found {
            Value::SimpleString(found) if found != "none" && found != *kind => {
                Some(format!("{key} is a {found}, not a {kind}"))
            }
            _ => None,
        });
        StoreError::Corrupt(wrong.unwrap_or_else(|| "a key is of another type".to_owned()))
    }

    /// The same call with the source in it, for a server that does not know the script yet.
    pub fn with_source(&self) -> Cmd {
        let mut command = Cmd::new();
        command.arg("EVAL").arg(&self.script.source);
        for argument in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = argument {
                command.arg(bytes);
            }
        }
        command
    }
}

/// Every command the scripts use: what an ACL must allow.
pub fn commands() -> BTreeSet<String> {
    commands_of(&Scripts::with(&Limits::default()).all())
}

pub fn commands_of(scripts: &[&Script]) -> BTreeSet<String> {
    scripts
        .iter()
        .flat_map(|script| script.source.split("call('").skip(1))
        .filter_map(|rest| rest.split('\'').next())
        .map(str::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scripts() -> Scripts {
        Scripts::with(&Limits::default())
    }

    #[test]
    fn names_are_put_in_and_nothing_else() {
        let named = |table: &str, name: &str| (table == "s").then(|| format!("<{name}>"));
        let text = "-- s.comment\n  local a = s.one + is.two[s.three].four .. 's.'\n";
        assert_eq!(resolved(text, named), "local a = <one> + is.two[<three>].four .. '<>'\n");
    }

    #[test]
    fn no_script_names_a_field_that_no_record_has() {
        for script in scripts().all() {
            for letter in "scpdrehqkKA".chars().map(String::from).chain(["LIMIT".to_owned()]) {
                let table = format!("{letter}.");
                let mut places = script.source.match_indices(&table);
                let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
                let left = places.find(|(at, _)| {
                    !script.source[..*at].ends_with(word)
                        && script.source[at + table.len()..].starts_with(word)
                });
                assert_eq!(left.map(|(at, _)| &script.source[at..at + 20]), None, "{}.lua", script.name);
            }
        }
    }

    #[test]
    fn every_key_in_a_signature_is_one_we_know() {
        for script in scripts().all() {
            assert!(!script.keys.is_empty(), "{}.lua", script.name);
            let known = |name: &&str| Key::named(name.trim_end_matches('?')).is_some();
            assert!(script.keys.iter().all(known), "{}.lua", script.name);
        }
    }

    #[test]
    fn what_frees_memory_or_ends_work_runs_without_memory_and_reads_do_not_write() {
        let flags = |script: &Script| script.source.lines().next().map(str::to_owned).unwrap_or_default();
        let of = |wanted: &str| -> Vec<_> {
            let scripts = scripts();
            scripts
                .all()
                .into_iter()
                .filter(|script| flags(script) == wanted)
                .map(|script| script.name)
                .collect()
        };
        assert_eq!(
            of("#!lua flags=allow-oom"),
            ["claim", "renew", "commit", "suspend", "interrupt", "delete"]
        );
        assert_eq!(of("#!lua flags=no-writes"), ["load", "status", "live", "list", "overdue"]);
        assert_eq!(of("#!lua"), ["begin", "append", "retry", "rewrite"]);
    }

    #[test]
    fn no_script_parses_json_or_names_a_key_itself() {
        for script in scripts().all() {
            assert!(!script.source.contains("cjson"), "{}.lua", script.name);
            // But for the channel, whose name nobody has to know beforehand.
            let channel = "call('PUBLISH', 'hf:'";
            assert!(!script.source.replace(channel, "").contains("'hf:"), "{}.lua", script.name);
        }
    }
}
