//! `list_files` and `glob_files`.

use std::fmt::Write;

use globset::{GlobBuilder, GlobMatcher};
use serde::Deserialize;

use super::{MAX_ANSWER, PAGE, Refusal, Work, folder, told};
use crate::workspace::{Entry, FilePath, Listed, Listing};

#[derive(Deserialize)]
struct List {
    path: Option<String>,
    after: Option<String>,
}

#[derive(Deserialize)]
struct Glob {
    pattern: String,
    path: Option<String>,
}

impl Work<'_> {
    pub(super) async fn list(&self) -> Result<String, Refusal> {
        let List { path, after } = self.input(&[])?;
        let below = folder(path.as_deref())?;
        let listing = Listing { below: below.clone(), after, folders: true, ..Listing::all(PAGE) };
        let page = self.workspace.trees().list(&self.tree, &listing).await.map_err(told)?;
        if page.entries.is_empty() {
            return Ok(match below {
                None if listing.after.is_none() => "[the workspace is empty]".into(),
                _ => "[nothing is there]".into(),
            });
        }
        let mut answer = String::new();
        let mut next = page.next;
        for Entry { path, what } in page.entries {
            // Writing to a string cannot fail.
            let _ = match what {
                Listed::Folder => writeln!(answer, "{path}"),
                Listed::File { size, .. } => writeln!(answer, "{path} ({size} bytes)"),
            };
            if answer.len() > MAX_ANSWER {
                next = Some(path);
                break;
            }
        }
        if let Some(next) = next {
            let _ = write!(answer, "[there is more; go on with after: {next:?}]");
        }
        Ok(answer)
    }

    pub(super) async fn glob(&self) -> Result<String, Refusal> {
        let Glob { pattern, path } = self.input(&["pattern"])?;
        let matcher = matcher(&pattern)?;
        let below = folder(path.as_deref())?;
        let mut answer = String::new();
        let mut pages = Pages::new(below);
        while let Some(entries) = pages.next(self).await? {
            for Entry { path, .. } in entries.into_iter().filter(|entry| matcher.is_match(&entry.path)) {
                if answer.len() + path.len() > MAX_ANSWER {
                    answer.push_str("[there are more; look in one folder at a time]");
                    return Ok(answer);
                }
                answer.push_str(&path);
                answer.push('\n');
            }
        }
        Ok(if answer.is_empty() { format!("[no file matches {pattern}]") } else { answer })
    }
}

/// A tree's files, a page at a time.
pub(super) struct Pages {
    below: Option<FilePath>,
    after: Option<String>,
    last: bool,
}

impl Pages {
    pub(super) fn new(below: Option<FilePath>) -> Self {
        Self { below, after: None, last: false }
    }

    pub(super) async fn next(&mut self, work: &Work<'_>) -> Result<Option<Vec<Entry>>, Refusal> {
        if self.last {
            return Ok(None);
        }
        let listing = Listing { below: self.below.clone(), after: self.after.take(), ..Listing::all(PAGE) };
        let page = work.workspace.trees().list(&work.tree, &listing).await.map_err(told)?;
        self.last = page.next.is_none();
        self.after = page.next;
        Ok(Some(page.entries))
    }
}

/// `*` and `?` stay within a folder; a pattern is matched against the path from the top of the tree.
pub(super) fn matcher(pattern: &str) -> Result<GlobMatcher, Refusal> {
    let plain = pattern.strip_prefix("./").or_else(|| pattern.strip_prefix('/')).unwrap_or(pattern);
    let glob = GlobBuilder::new(plain).literal_separator(true).backslash_escape(true).build();
    glob.map(|glob| glob.compile_matcher())
        .map_err(|error| format!("the pattern cannot be read: {}; write one such as **/*.md", error.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stay_within_a_folder_unless_there_are_two() {
        let matches = |pattern: &str, path: &str| matcher(pattern).expect(pattern).is_match(path);
        assert!(matches("*.md", "a.md") && !matches("*.md", "b/a.md"));
        assert!(matches("**/*.md", "b/c/a.md") && matches("**/*.md", "a.md"));
        assert!(matches("/src/*.{rs,toml}", "src/lib.rs") && !matches("src/?.rs", "src/ab.rs"));
        assert!(matcher("a[").is_err_and(|why| why.contains("cannot be read")));
    }
}
