//! Files in a load: what clients order to be written, and the judge of what is there in the end.
//!
//! An edit puts a mark of its own before the end of a log that two clients share; a write replaces a client's own paper.
//! What was ordered stands in what was said, what came of it in what was answered: the judge needs nothing else but the
//! files.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::checker::Verdict;
use crate::http::Http;
use crate::load::{Session, Told};

pub const TORN: &str = "files that are not whole";
pub const LOST: &str = "file edits acknowledged and not there";
pub const TWICE: &str = "file edits made twice";
pub const REFUSED: &str = "file edits refused and there all the same";

/// What every log begins as.
pub const BLANK: &str = "top\nEND\n";
/// Lines of a paper: enough bytes for a torn one to be seen.
const LINES: usize = 100;

/// Orders for the fake model: `mark` before the end of a log.
pub fn edit(path: &str, mark: &str) -> Value {
    let input = json!({"path": path, "old_string": "END", "new_string": format!("{mark}\nEND")});
    json!({"name": "edit_file", "input": input})
}

/// Orders for the fake model: a whole paper of `mark`s.
pub fn write(path: &str, mark: &str) -> Value {
    json!({"name": "write_file", "input": {"path": path, "content": format!("{mark}\n").repeat(LINES)}})
}

/// The text of each file by whose it is and its path; `None` where there is none.
pub type Found = BTreeMap<(String, String), Option<String>>;

/// One order, and what its client knows of it.
struct Order<'a> {
    call: &'a str,
    kind: Kind,
    known: Known,
}

enum Kind {
    Edit { mark: String },
    Write { content: String },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Known {
    /// The tool said that it was done.
    Done,
    /// The tool said that nothing was.
    NotDone,
    /// Nobody could tell.
    Unknown,
}

/// Every order, in the order of the clients' logs, by whose file it is of.
fn orders(told: &[Told]) -> BTreeMap<(String, String), Vec<Order<'_>>> {
    let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for told in told {
        let Some((_, said)) = told.said.split_once('#') else { continue };
        let Ok(said) = serde_json::from_str::<Value>(said) else { continue };
        let answer = told.outcome.as_ref().and_then(|outcome| outcome["text"].as_str()).unwrap_or_default();
        for tool in said["tools"].as_array().into_iter().flatten() {
            let input = |name: &str| tool["input"][name].as_str().unwrap_or_default().to_owned();
            let path = input("path");
            let (kind, done) = match tool["name"].as_str() {
                Some("edit_file") => {
                    let mark = input("new_string").trim_end_matches("\nEND").to_owned();
                    (Kind::Edit { mark }, format!("Edited {path}"))
                }
                Some("write_file") => (Kind::Write { content: input("content") }, format!("Wrote {path}")),
                _ => continue,
            };
            let known = if answer.contains(&done) {
                Known::Done
            } else if answer.contains(&format!("{path} has changed meanwhile; nothing was written")) {
                Known::NotDone
            } else {
                Known::Unknown
            };
            found.entry((told.user.clone(), path)).or_default().push(Order { call: &told.call, kind, known });
        }
    }
    found
}

/// Asks for every file that was ordered, through `door`.
pub async fn find(http: &Http, door: &str, told: &[Told]) -> Result<Found> {
    let mut found = Found::new();
    for (user, path) in orders(told).into_keys() {
        let session = Session { user: user.clone(), session: "reader".into() };
        let answer = http.get(&format!("{door}{}/files/{path}", session.path())).await?;
        let text = match answer.status {
            200 => answer.body.as_str().map(str::to_owned),
            404 => None,
            status => bail!("{path} of {user} cannot be read: {status} {}", answer.body),
        };
        found.insert((user, path), text);
    }
    Ok(found)
}

pub fn judge(told: &[Told], found: &Found, verdict: &mut Verdict) {
    for (whose, orders) in orders(told) {
        let text = found.get(&whose).and_then(Option::as_deref).unwrap_or_default();
        let (user, path) = &whose;
        let file = format!("{path} of {user}");
        if orders.iter().any(|order| matches!(order.kind, Kind::Edit { .. })) {
            judge_log(&file, text, &orders, verdict);
        } else {
            judge_paper(&file, text, &orders, verdict);
        }
    }
}

/// A log has its frame, the marks that were put into it, and nothing else.
fn judge_log(file: &str, text: &str, orders: &[Order<'_>], verdict: &mut Verdict) {
    let marks = orders.iter().filter_map(|order| match &order.kind {
        Kind::Edit { mark } => Some((mark.as_str(), order)),
        Kind::Write { .. } => None,
    });
    let marks: Vec<_> = marks.collect();
    let known: BTreeSet<_> = marks.iter().map(|(mark, _)| *mark).collect();
    let inner = text.strip_prefix("top\n").and_then(|text| text.strip_suffix("END\n"));
    let whole = inner.is_some_and(|inner| inner.lines().all(|line| known.contains(line)));
    verdict.count(TORN, whole, || format!("{file}: {text:?}"));
    for (mark, order) in marks {
        let times = text.lines().filter(|line| *line == mark).count();
        let case = || format!("{}: {mark:?} is {times} times in {file}", order.call);
        verdict.count(TWICE, times <= 1, case);
        match order.known {
            Known::Done => verdict.count(LOST, times > 0, case),
            Known::NotDone => verdict.count(REFUSED, times == 0, case),
            Known::Unknown => {}
        }
    }
}

/// A paper is the last one its client was told of, or a later one whose end nobody could tell; never one from before.
fn judge_paper(file: &str, text: &str, orders: &[Order<'_>], verdict: &mut Verdict) {
    let contents = orders.iter().filter_map(|order| match &order.kind {
        Kind::Write { content } => Some((content.as_str(), order.known)),
        Kind::Edit { .. } => None,
    });
    let contents: Vec<_> = contents.collect();
    let begins = || text.chars().take(40).collect::<String>();
    let any = text.is_empty() || contents.iter().any(|(content, _)| *content == text);
    verdict.count(TORN, any, || format!("{file}: {} bytes, {:?}…", text.len(), begins()));
    if let Some(last) = contents.iter().rposition(|(_, known)| *known == Known::Done) {
        let since = &contents[last..];
        let kept = since.iter().any(|(content, known)| *known != Known::NotDone && *content == text);
        verdict.count(LOST, kept, || format!("{file} is older than its last writing: {:?}…", begins()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Call, How};

    fn told(call: &str, order: &Value, answer: &str) -> Told {
        let session = Session { user: "u".into(), session: "s".into() };
        let said = format!("{call} #{}", json!({"tools": [order]}));
        let call = Call { id: call.into(), said, how: How::Plain };
        let mut told = Told::new(&session, &call);
        told.outcome = Some(json!({"status": "completed", "text": format!("The tools said: {answer}")}));
        told
    }

    fn log() -> Vec<Told> {
        vec![
            told("1", &edit("log", "one"), "Edited log at line 2"),
            told(
                "2",
                &edit("log", "two"),
                "log has changed meanwhile; nothing was written, read it again first",
            ),
            told("3", &edit("log", "three"), "the tool did not answer within 5 s; its outcome is unknown"),
        ]
    }

    fn papers() -> Vec<Told> {
        ["one", "two", "three"]
            .map(|mark| {
                let answer = if mark == "three" { "outcome unknown" } else { "Wrote paper: 9 bytes" };
                told(mark, &write("paper", mark), answer)
            })
            .into()
    }

    fn broken(told: &[Told], path: &str, text: &str) -> Vec<&'static str> {
        let mut verdict = Verdict::default();
        judge(told, &[(("u".to_owned(), path.to_owned()), Some(text.to_owned()))].into(), &mut verdict);
        verdict.0.into_iter().filter(|(_, count)| count.broken > 0).map(|(promise, _)| promise).collect()
    }

    #[test]
    fn each_crime_against_a_file_is_found_by_its_name() {
        for innocent in ["top\none\nEND\n", "top\none\nthree\nEND\n"] {
            assert_eq!(broken(&log(), "log", innocent), Vec::<&str>::new());
        }
        assert_eq!(broken(&log(), "log", "top\nEND\n"), [LOST]);
        assert_eq!(broken(&log(), "log", "top\none\none\nEND\n"), [TWICE]);
        assert_eq!(broken(&log(), "log", "top\none\nthree\nthree\nEND\n"), [TWICE]);
        assert_eq!(broken(&log(), "log", "top\none\ntwo\nEND\n"), [REFUSED]);
        for torn in ["top\none\n", "top\none\nthr\nEND\n", "one\nEND\n"] {
            assert_eq!(broken(&log(), "log", torn), [TORN], "{torn:?}");
        }

        let paper = |mark: &str| format!("{mark}\n").repeat(LINES);
        assert_eq!(broken(&papers(), "paper", &paper("two")), Vec::<&str>::new());
        assert_eq!(broken(&papers(), "paper", &paper("three")), Vec::<&str>::new());
        assert_eq!(broken(&papers(), "paper", &paper("one")), [LOST]);
        assert_eq!(broken(&papers(), "paper", ""), [LOST]);
        assert_eq!(broken(&papers(), "paper", &paper("two")[1..]), [LOST, TORN]);
    }
}
