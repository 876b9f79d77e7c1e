//! The scripts and how they are called.
//!
//! A script's first lines are its signature: the flags, the parts it shares, the KEYS and the ARGV by name. They are read here, so a caller
//! names what it passes and the script names what it gets, and neither counts.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::LazyLock;

use redis::{Cmd, ToRedisArgs, Value};
use sha1::{Digest, Sha1};

use super::fault::Fault;
use super::keys::{Key, SlotKeys};
use super::link::Link;
use crate::state::CallId;
use crate::store::error::StoreError;

/// What all scripts share.
const BASE: &str = include_str!("scripts/base.lua");

/// A piece of Lua by its name. Each script takes only the parts it names: they are run anew with every call.
pub type Part = (&'static str, &'static str);

const PARTS: &[Part] = &[
    ("prelude", include_str!("scripts/prelude.lua")),
    ("calls", include_str!("scripts/calls.lua")),
    ("lease", include_str!("scripts/lease.lua")),
    ("holder", include_str!("scripts/holder.lua")),
];

/// Redis' own time, in milliseconds.
pub const SERVER_TIME: &str =
    "local now = redis.call('TIME')\nnow = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)\n";

/// A test's time, as the last argument of every call.
#[cfg(feature = "mutants")]
const CALLERS_TIME: &str = "local now = tonumber(ARGV[#ARGV])\n";

pub struct Script {
    pub name: &'static str,
    pub keys: Vec<&'static str>,
    arguments: Vec<&'static str>,
    pub source: String,
    sha: String,
}

impl Script {
    pub fn new(name: &'static str, text: &'static str, parts: &[Part], time: &str) -> Self {
        let (flags, body) = text.split_once('\n').unwrap_or((text, ""));
        let signature = |label: &str| {
            text.lines()
                .filter_map(|line| line.strip_prefix(label).map(str::split_whitespace))
                .flat_map(|words| words.take_while(|word| *word != "then"))
                .collect::<Vec<_>>()
        };
        let (keys, arguments) = (signature("-- KEYS"), signature("-- ARGV"));

        let mut source = format!("{flags}\n");
        for (table, list, names) in [("K", "KEYS", &keys), ("A", "ARGV", &arguments)] {
            let fields: Vec<_> =
                names.iter().enumerate().map(|(i, name)| format!("{name}={list}[{}]", i + 1)).collect();
            let _ = writeln!(source, "local {table} = {{ {} }}", fields.join(", "));
        }
        let _ = writeln!(source, "local rest = {}", arguments.len() + 1);
        source.push_str(time);
        source.push_str(BASE);
        let wanted = signature("-- PARTS");
        for (_, part) in parts.iter().filter(|(name, _)| wanted.contains(name)) {
            source.push_str(part);
        }
        source.push_str(body);
        let sha = Sha1::digest(&source).iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        Self { name, keys, arguments, source, sha }
    }
}

/// A struct with a script a field, each from the file of its name in `scripts/` beside the caller.
macro_rules! scripts {
    ($scripts:ident: $($name:ident),* $(,)?) => {
        pub struct $scripts { $(pub $name: $crate::store::redis::Script),* }

        impl $scripts {
            fn new(parts: &[$crate::store::redis::Part], time: &str) -> Self {
                Self { $($name: $crate::store::redis::Script::new(
                    stringify!($name),
                    include_str!(concat!("scripts/", stringify!($name), ".lua")),
                    parts,
                    time,
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

pub static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(PARTS, SERVER_TIME));

#[cfg(feature = "mutants")]
pub static SCRIPTS_ON_CALLERS_TIME: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(PARTS, CALLERS_TIME));

/// One call of a script: its keys, then its arguments in the order of the signature.
pub struct Invocation<'a> {
    script: &'a Script,
    /// Each with the type that it must be of.
    pub keys: Vec<(&'static str, String)>,
    command: Cmd,
    named: usize,
}

impl<'a> Invocation<'a> {
    pub fn of_slot(script: &'a Script, slot: &SlotKeys, call: Option<&CallId>) -> Self {
        let key = |name: &&'static str| {
            let key = Key::named(name)?;
            Some((key.kind(), slot.key(key, call)?))
        };
        Self::with_keys(script, script.keys.iter().filter_map(key).collect())
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
    commands_of(&SCRIPTS.all())
}

pub fn commands_of(scripts: &[&Script]) -> BTreeSet<String> {
    scripts
        .iter()
        .flat_map(|script| script.source.split("redis.call('").skip(1))
        .filter_map(|rest| rest.split('\'').next())
        .map(str::to_lowercase)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_in_a_signature_is_one_we_know() {
        for script in SCRIPTS.all() {
            assert!(!script.keys.is_empty(), "{}.lua", script.name);
            assert!(script.keys.iter().all(|name| Key::named(name).is_some()), "{}.lua", script.name);
        }
    }

    #[test]
    fn what_frees_memory_or_ends_work_runs_without_memory_and_reads_do_not_write() {
        let flags = |script: &Script| script.source.lines().next().map(str::to_owned).unwrap_or_default();
        let of = |wanted: &str| -> Vec<_> {
            let all = SCRIPTS.all();
            all.into_iter().filter(|script| flags(script) == wanted).map(|script| script.name).collect()
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
        for script in SCRIPTS.all() {
            assert!(!script.source.contains("cjson"), "{}.lua", script.name);
            assert!(!script.source.contains("'hf:"), "{}.lua", script.name);
        }
    }
}
