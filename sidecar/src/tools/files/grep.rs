//! `grep_files`: line by line, in time that grows with the text and never with the expression's tricks.

use std::fmt::Write;

use regex::{Regex, RegexBuilder};
use serde::Deserialize;

use super::find::{Pages, matcher};
use super::{MAX_ANSWER, Refusal, Work, folder, shown, told};
use crate::workspace::{Entry, Text};

const MATCHES: usize = 100;
const MAX_MATCHES: usize = 1000;
/// Bytes of files that are held at a time.
const HELD: usize = 4 << 20;
/// Bytes of a compiled expression.
const LARGEST_PATTERN: usize = 1 << 20;

#[derive(Deserialize)]
struct Input {
    pattern: String,
    path: Option<String>,
    glob: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    limit: Option<usize>,
}

impl Work<'_> {
    pub(super) async fn grep(&self) -> Result<String, Refusal> {
        let Input { pattern, path, glob, ignore_case, limit } = self.input(&["pattern"])?;
        let regex =
            RegexBuilder::new(&pattern).case_insensitive(ignore_case).size_limit(LARGEST_PATTERN).build();
        let regex =
            regex.map_err(|error| format!("the pattern cannot be used: {error}; nothing was searched"))?;
        let glob = glob.as_deref().map(matcher).transpose()?;
        let below = folder(path.as_deref())?;
        let mut search = Search::new(regex, limit.unwrap_or(MATCHES).clamp(1, MAX_MATCHES));

        // The path may be a file's own.
        if let Some(file) = &below {
            search = self.search(search, vec![file.to_string()]).await?;
        }
        let mut pages = Pages::new(below);
        while !search.full
            && let Some(entries) = pages.next(self).await?
        {
            let wanted = |entry: &Entry| glob.as_ref().is_none_or(|glob| glob.is_match(&entry.path));
            let paths = entries.into_iter().filter(wanted).map(|entry| entry.path).collect();
            search = self.search(search, paths).await?;
        }
        Ok(search.told(&pattern))
    }

    async fn search(&self, mut search: Search, mut paths: Vec<String>) -> Result<Search, Refusal> {
        while !paths.is_empty() && !search.full {
            let texts = self.workspace.trees().texts(&self.tree, &paths, HELD).await.map_err(told)?;
            let rest = paths.split_off(texts.len().clamp(1, paths.len()));
            let found: Vec<_> = paths.into_iter().zip(texts).collect();
            // Megabytes of text are not for a thread that others wait for.
            let searched = tokio::task::spawn_blocking(move || {
                for (path, text) in found {
                    search.look_through(&path, &text);
                }
                search
            });
            search = searched.await.map_err(|_| "the search crashed; try a simpler pattern".to_owned())?;
            paths = rest;
        }
        Ok(search)
    }
}

struct Search {
    regex: Regex,
    limit: usize,
    answer: String,
    matches: usize,
    files: usize,
    searched: usize,
    binary: usize,
    full: bool,
}

impl Search {
    fn new(regex: Regex, limit: usize) -> Self {
        Self {
            regex,
            limit,
            answer: String::new(),
            matches: 0,
            files: 0,
            searched: 0,
            binary: 0,
            full: false,
        }
    }

    fn look_through(&mut self, path: &str, text: &Text) {
        let bytes = match text {
            Text::Gone => return,
            Text::Binary => {
                self.binary += 1;
                return;
            }
            Text::Lines(bytes) => bytes,
        };
        self.searched += 1;
        let before = self.matches;
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        for (index, line) in text.lines().enumerate().filter(|(_, line)| self.regex.is_match(line)) {
            if self.matches == self.limit || self.answer.len() > MAX_ANSWER {
                self.full = true;
                break;
            }
            self.matches += 1;
            // Writing to a string cannot fail.
            let _ = writeln!(self.answer, "{path}:{}: {}", index + 1, shown(line));
        }
        self.files += usize::from(self.matches > before);
    }

    fn told(self, pattern: &str) -> String {
        let Self { mut answer, matches, files, searched, binary, full, .. } = self;
        if matches == 0 {
            answer = format!("[no line matches {pattern}; {searched} files were searched");
        } else if full {
            let _ = write!(answer, "[the first {matches} lines that match; narrow the pattern, path or glob");
        } else {
            let _ = write!(answer, "[{matches} lines match, in {files} of {searched} files");
        }
        if binary > 0 {
            let _ = write!(answer, "; {binary} files that are not text were left out");
        }
        answer.push(']');
        answer
    }
}
