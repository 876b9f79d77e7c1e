//! Trees in the agent's Redis: one Lua script an operation, all keys of a tree in one hash slot.
//!
//! ```text
//! hf:{P/T}:tree             hash    bytes, files, floor
//! hf:{P/T}:names            zset    every path, in the order of its bytes
//! hf:{P/T}:about            hash    path → etag, size, time, text or not
//! hf:{P/T}:data             hash    path → content
//! hf:{P/T}:writer:<slot>    hash    fence, call, and what each of its tool calls answered
//! ```
//!
//! `P` is the prefix and `T` is `a` (the agent's), `u.<user>` or `s.<slot>`, with ids as `store/redis/keys.rs` spells them; the tree of all agents is
//! `hf:{/global}`, which no prefix can spell.

mod keys;

use std::sync::{Arc, LazyLock};

use self::keys::TreeKeys;
use super::contract::{
    About, Condition, Content, Done, Entry, Etag, FileError, Listed, Listing, Page, Part, Put, Stamp, Text,
    TreeLimits, Trees,
};
use super::path::FilePath;
use super::text::is_binary;
use super::tree::Tree;
use crate::store::redis::{self as shared, Answer, Ground, Invocation, Link, SERVER_TIME, Script};
use crate::store::{Millis, StoreError};
use async_trait::async_trait;

const GROUND: Ground<'_> =
    Ground { parts: &[("tree", include_str!("scripts/tree.lua"))], constants: &[], time: SERVER_TIME };

shared::scripts!(Scripts: put, delete, read, texts, list, recall, touch, erase);

static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(GROUND));

/// Every command the scripts use: what an ACL must allow.
pub fn commands() -> std::collections::BTreeSet<String> {
    shared::commands_of(&SCRIPTS.all())
}

pub struct Remote {
    link: Arc<dyn Link>,
    prefix: String,
    limits: TreeLimits,
}

impl Remote {
    /// `prefix` names the agent among all that share the server.
    pub fn over(link: Arc<dyn Link>, prefix: &str, limits: TreeLimits) -> Result<Self, StoreError> {
        if prefix.is_empty() || prefix.contains(['{', '}', '/']) {
            let why = "it must not be empty or have braces or slashes";
            return Err(StoreError::Failed(format!("the prefix {prefix:?} cannot be used: {why}")));
        }
        Ok(Self { link, prefix: prefix.to_owned(), limits })
    }

    fn on<'a>(&self, script: &'a Script, tree: &Tree, stamp: Option<&Stamp>) -> Invocation<'a> {
        let keys = TreeKeys::new(&self.prefix, tree);
        let invocation = Invocation::with_keys(script, keys.of(script, stamp.map(|stamp| &stamp.slot)));
        if invocation.wants("ttl") {
            let ttl = Millis::try_from(self.limits.ttl.as_millis()).unwrap_or(Millis::MAX);
            return invocation.arg("ttl", ttl);
        }
        invocation
    }

    async fn ask(&self, invocation: Invocation<'_>) -> Result<Answer, StoreError> {
        Answer::of(invocation.send(&*self.link).await?)
    }
}

fn conditioned<'a>(invocation: Invocation<'a>, condition: &Condition) -> Invocation<'a> {
    let (word, etag) = match condition {
        Condition::Any => ("any", ""),
        Condition::Exists => ("exists", ""),
        Condition::Absent => ("absent", ""),
        Condition::Is(etag) => ("is", etag.as_str()),
    };
    invocation.arg("condition", word).arg("wanted", etag)
}

#[async_trait]
impl Trees for Remote {
    fn limits(&self) -> &TreeLimits {
        &self.limits
    }

    async fn read(&self, tree: &Tree, path: &FilePath, part: Part) -> Result<Option<Content>, FileError> {
        // Lua counts in floating point.
        let bounded = |number: u64| number.min(1 << 52);
        let invocation = self
            .on(&SCRIPTS.read, tree, None)
            .arg("path", path.as_str())
            .arg("from", bounded(part.from))
            .arg("len", bounded(part.len));
        let mut answer = self.ask(invocation).await?;
        match answer.text("an outcome")?.as_str() {
            "file" => {
                let about = about(&answer.text("a file")?)?;
                Ok(Some(Content { about, bytes: answer.blob("a content")?.into_bytes() }))
            }
            "folder" => Err(FileError::IsFolder(path.clone())),
            "nothing" => Ok(None),
            other => Err(unknown(other)),
        }
    }

    async fn texts(&self, tree: &Tree, paths: &[String], budget: usize) -> Result<Vec<Text>, FileError> {
        let mut invocation = self.on(&SCRIPTS.texts, tree, None).arg("budget", budget);
        paths.iter().for_each(|path| invocation.push(path));
        let mut answer = self.ask(invocation).await?;
        let mut texts = Vec::new();
        while !answer.is_empty() {
            let (kind, bytes) = (answer.text("an outcome")?, answer.blob("a text")?);
            texts.push(match kind.as_str() {
                "text" => Text::Lines(bytes.into_bytes()),
                "binary" => Text::Binary,
                "gone" => Text::Gone,
                other => return Err(unknown(other)),
            });
        }
        Ok(texts)
    }

    async fn list(&self, tree: &Tree, listing: &Listing) -> Result<Page, FileError> {
        let (from, to, skip) = bounds(listing);
        let invocation = self
            .on(&SCRIPTS.list, tree, None)
            .arg("from", from)
            .arg("to", to)
            .arg("skip", skip)
            .flag("folders", listing.folders)
            .arg("limit", listing.limit);
        let mut answer = self.ask(invocation).await?;
        let more = answer.flag("whether there is more")?;
        let mut entries = Vec::new();
        while !answer.is_empty() {
            let (path, told) = (answer.text("a path")?, answer.text("a file")?);
            let what = if told.is_empty() {
                Listed::Folder
            } else {
                let About { size, etag, modified, .. } = about(&told)?;
                Listed::File { size, modified, etag: Some(etag) }
            };
            entries.push(Entry { path, what });
        }
        let next = entries.last().filter(|_| more).map(|entry| entry.path.clone());
        Ok(Page { entries, next })
    }

    async fn put(&self, tree: &Tree, path: &FilePath, put: &Put) -> Result<Done, FileError> {
        let (size, etag) = (put.bytes.len() as u64, Etag::of(&put.bytes));
        self.limits.check_file(size)?;
        let binary = is_binary(&put.bytes);
        let stamp = put.stamp.as_ref();
        let invocation = self
            .on(&SCRIPTS.put, tree, stamp)
            .arg("path", path.as_str())
            .arg("content", &put.bytes[..])
            .arg("etag", etag.as_str())
            .flag("binary", binary);
        let mut invocation = conditioned(invocation, &put.condition)
            .arg("maxTree", self.limits.max_tree)
            .arg("maxFiles", self.limits.max_files)
            .arg("fence", stamp.map_or(0, |stamp| stamp.fence))
            .arg("call", stamp.map_or("", |stamp| stamp.call.as_str()))
            .arg("op", stamp.map_or("", |stamp| &stamp.op))
            .arg("answer", &put.answer);
        path.ancestors().for_each(|folder| invocation.push(folder));
        let mut answer = self.ask(invocation).await?;
        match answer.text("an outcome")?.as_str() {
            "written" => {
                let modified = answer.number("a time")?;
                let created = answer.flag("a flag")?;
                Ok(Done::Written { about: About { size, etag, modified, binary }, created })
            }
            "recorded" => Ok(Done::Recorded(answer.text("an answer")?)),
            "blocked" => Err(FileError::NotAFolder { path: path.clone(), file: answer.text("a path")? }),
            "limit" => {
                let (held, files) = (answer.number("a size")?, answer.number("a count")?);
                let old = answer.optional_number("a size")?;
                self.limits.check_tree(held, files, size, old)?;
                Err(unknown("limit"))
            }
            other => Err(refusal(other, path, &mut answer)?),
        }
    }

    async fn delete(&self, tree: &Tree, path: &FilePath, condition: &Condition) -> Result<bool, FileError> {
        let invocation = self.on(&SCRIPTS.delete, tree, None).arg("path", path.as_str());
        let mut answer = self.ask(conditioned(invocation, condition)).await?;
        match answer.text("an outcome")?.as_str() {
            "deleted" => Ok(true),
            "nothing" => Ok(false),
            other => Err(refusal(other, path, &mut answer)?),
        }
    }

    async fn recall(&self, tree: &Tree, stamp: &Stamp) -> Result<Option<String>, FileError> {
        let invocation = self
            .on(&SCRIPTS.recall, tree, Some(stamp))
            .arg("fence", stamp.fence)
            .arg("call", stamp.call.as_str())
            .arg("op", &stamp.op);
        let mut answer = self.ask(invocation).await?;
        match answer.text("an outcome")?.as_str() {
            "ok" if answer.is_empty() => Ok(None),
            "ok" => Ok(Some(answer.text("an answer")?)),
            "fenced" => Err(FileError::Fenced),
            other => Err(unknown(other)),
        }
    }

    async fn touch(&self, tree: &Tree) -> Result<(), FileError> {
        self.ask(self.on(&SCRIPTS.touch, tree, None)).await?;
        Ok(())
    }

    async fn clock(&self, tree: &Tree) -> Result<Millis, FileError> {
        let key = TreeKeys::new(&self.prefix, tree).tree();
        let time = self.link.send(&key, &redis::cmd("TIME")).await.map_err(StoreError::from)?;
        let mut time = Answer::of(time)?;
        let (seconds, micros) = (time.number::<Millis>("a time")?, time.number::<Millis>("a time")?);
        Ok(seconds * 1000 + micros / 1000)
    }

    async fn erase(&self, tree: &Tree, floor: Millis) -> Result<(), FileError> {
        let keys = TreeKeys::new(&self.prefix, tree);
        let writer = match tree {
            Tree::Session(slot) => Some(slot),
            _ => None,
        };
        let ttl = Millis::try_from(self.limits.ttl.as_millis()).unwrap_or(Millis::MAX);
        let erase = Invocation::with_keys(&SCRIPTS.erase, keys.of(&SCRIPTS.erase, writer));
        self.ask(erase.arg("ttl", ttl).arg("floor", floor)).await?;
        Ok(())
    }
}

/// The first and the last path of a listing, as `ZRANGEBYLEX` takes them, and how long their common beginning is. `0` is the
/// byte after `/`.
fn bounds(listing: &Listing) -> (String, String, usize) {
    let prefix = listing.below.as_ref().map(|folder| format!("{folder}/")).unwrap_or_default();
    let to = match prefix.strip_suffix('/') {
        Some(folder) => format!("({folder}0"),
        None => "+".to_owned(),
    };
    let from = match listing.after.as_deref() {
        Some(after) if after >= prefix.as_str() && !after.is_empty() => match after.strip_suffix('/') {
            Some(folder) => format!("[{folder}0"),
            None => format!("({after}"),
        },
        _ if prefix.is_empty() => "-".to_owned(),
        _ => format!("[{prefix}"),
    };
    (from, to, prefix.len())
}

fn about(text: &str) -> Result<About, StoreError> {
    let mut words = text.split(' ');
    let mut next = || words.next();
    let read = (|| {
        let (etag, size, modified, binary) = (next()?, next()?.parse().ok()?, next()?.parse().ok()?, next()?);
        Some(About { size, etag: Etag::named(etag), modified, binary: binary == "1" })
    })();
    read.ok_or_else(|| StoreError::Corrupt("Redis answered something else where a file was expected".into()))
}

fn refusal(outcome: &str, path: &FilePath, answer: &mut Answer) -> Result<FileError, StoreError> {
    Ok(match outcome {
        "fenced" => FileError::Fenced,
        "folder" => FileError::IsFolder(path.clone()),
        "changed" => {
            let now = if answer.is_empty() { None } else { answer.optional_blob("an etag")? };
            let now = now.and_then(|etag| String::from_utf8(etag.to_vec()).ok()).map(Etag::named);
            FileError::Changed { path: path.clone(), now }
        }
        other => unknown(other),
    })
}

fn unknown(outcome: &str) -> FileError {
    StoreError::Corrupt(format!("Redis answered {outcome:?} where an outcome was expected")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_says_its_keys_and_none_names_one_itself() {
        for script in SCRIPTS.all() {
            assert!(script.keys.iter().all(|name| keys::kind(name).is_some()), "{}.lua", script.name);
            assert!(
                !script.source.contains("'hf:") && !script.source.contains("cjson"),
                "{}.lua",
                script.name
            );
        }
    }

    #[test]
    fn a_listing_begins_and_ends_where_its_folder_does() {
        let of = |below: Option<&str>, after: Option<&str>| {
            let below = below.map(|folder| FilePath::new(folder).expect("a path"));
            bounds(&Listing { below, after: after.map(str::to_owned), ..Listing::all(1) })
        };
        assert_eq!(of(None, None), ("-".into(), "+".into(), 0));
        assert_eq!(of(None, Some("a")), ("(a".into(), "+".into(), 0));
        assert_eq!(of(Some("b"), None), ("[b/".into(), "(b0".into(), 2));
        assert_eq!(of(Some("b"), Some("a")), ("[b/".into(), "(b0".into(), 2));
        assert_eq!(of(Some("b"), Some("b/c/")), ("[b/c0".into(), "(b0".into(), 2));
    }

    #[test]
    fn what_cannot_be_read_is_damage() {
        assert!(about("abc 1 2 0").is_ok_and(|about| about.size == 1 && !about.binary));
        assert!(about("abc").is_err());
    }
}
