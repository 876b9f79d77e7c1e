//! `write_file` and `edit_file`.

use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::time::sleep;

use super::{Refusal, Work, path, told};
use crate::workspace::{Condition, Done, FileError, FilePath, Part, Put};

/// Between two tries, where an answer was lost or the place does not answer; and how many of them.
const AGAIN: Duration = Duration::from_millis(200);
const PATIENCE: u32 = 50;

#[derive(Deserialize)]
struct Write {
    path: String,
    content: String,
}

#[derive(Deserialize)]
struct Edit {
    path: String,
    old_string: String,
    new_string: String,
}

impl Work<'_> {
    pub(super) async fn write(&self) -> Result<String, Refusal> {
        let Write { path: named, content } = self.input(&["path", "content"])?;
        let path = path(&named)?;
        let answer = format!("Wrote {path}: {} bytes, {} lines.", content.len(), content.lines().count());
        self.put(&path, content.into(), Condition::Any, answer).await
    }

    pub(super) async fn edit(&self) -> Result<String, Refusal> {
        let Edit { path: named, old_string, new_string } =
            self.input(&["path", "old_string", "new_string"])?;
        let path = path(&named)?;
        let trees = self.workspace.trees();
        // First: an edit that was made does not find its old text again.
        if let Some(answer) = self.recall().await? {
            return Ok(answer);
        }
        let found = trees.read(&self.tree, &path, Part::WHOLE).await.map_err(told)?;
        let before = found.ok_or_else(|| told(FileError::NotFound(path.clone())))?;
        let text = std::str::from_utf8(&before.bytes).ok().filter(|_| !before.about.binary);
        let text = text.ok_or_else(|| format!("{path} is not text; write it anew with write_file"))?;
        let (line, after) =
            replaced(text, &old_string, &new_string).map_err(|why| format!("{path}: {why}"))?;
        let answer = format!("Edited {path} at line {line}: it has {} bytes now.", after.len());
        // Whoever changed the file since we read it has won.
        self.put(&path, after.into(), Condition::Is(before.about.etag), answer).await
    }

    async fn put(
        &self,
        path: &FilePath,
        bytes: Bytes,
        condition: Condition,
        answer: String,
    ) -> Result<String, Refusal> {
        let put = Put { bytes, condition, stamp: Some(self.stamp()), answer: answer.clone() };
        loop {
            let error = match self.workspace.trees().put(&self.tree, path, &put).await {
                Ok(Done::Written { .. }) => return Ok(answer),
                Ok(Done::Recorded(before)) => return Ok(before),
                Err(FileError::Store(error)) => error,
                Err(error) => return Err(told(error)),
            };
            // This run may have written without hearing of it, or one before this: that is asked, never guessed.
            if let Some(before) = self.recall().await? {
                return Ok(before);
            }
            if !error.may_have_happened() {
                return Err(told(error.into()));
            }
            sleep(AGAIN).await;
        }
    }

    /// What this tool call answered if it was carried out, here or on the replica that had it before.
    async fn recall(&self) -> Result<Option<String>, Refusal> {
        let stamp = self.stamp();
        for _ in 0..PATIENCE {
            match self.workspace.trees().recall(&self.tree, &stamp).await {
                Err(FileError::Store(error)) if error.is_transient() => sleep(AGAIN).await,
                Err(FileError::Store(_)) => break,
                answer => return answer.map_err(told),
            }
        }
        Err("the workspace cannot be used at the moment, and whether this was written is not known; look before you try \
             again"
            .into())
    }
}

/// The line of the one place where `old` stands, and the text with `new` there instead.
fn replaced(text: &str, old: &str, new: &str) -> Result<(usize, String), Refusal> {
    if old.is_empty() {
        return Err("old_string is empty; nothing was changed, use write_file to write a whole file".into());
    }
    if old == new {
        return Err("old_string and new_string are the same; nothing was changed".into());
    }
    let Some(at) = text.find(old) else {
        return Err(
            "old_string is not in the file; nothing was changed, read the file and copy the text exactly, \
                    without line numbers"
                .into(),
        );
    };
    // Occurrences that overlap are two as well: which of them was meant cannot be told.
    let next = at + text[at..].chars().next().map_or(1, char::len_utf8);
    if let Some(second) = text[next..].find(old) {
        let (one, two) = (line_at(text, at), line_at(text, next + second));
        return Err(format!(
            "old_string is in the file more than once (lines {one} and {two} at least); nothing was changed, add what \
             stands around the one you mean"
        ));
    }
    let after = [&text[..at], new, &text[at + old.len()..]].concat();
    Ok((line_at(text, at), after))
}

fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_place_is_replaced_and_its_line_told() {
        assert_eq!(replaced("a\nbc\nd", "c", "x\ny"), Ok((2, "a\nbx\ny\nd".into())));
        assert_eq!(replaced("äöü", "ö", ""), Ok((1, "äü".into())));
        assert_eq!(replaced("one", "one", "two"), Ok((1, "two".into())));
    }

    #[test]
    fn what_is_not_there_once_is_not_touched() {
        assert!(replaced("a", "b", "c").is_err_and(|why| why.contains("not in the file")));
        assert!(replaced("b\nb", "b", "c").is_err_and(|why| why.contains("lines 1 and 2")));
        assert!(replaced("ööö", "öö", "c").is_err_and(|why| why.contains("more than once")));
        assert!(replaced("a", "", "c").is_err_and(|why| why.contains("empty")));
        assert!(replaced("a", "a", "a").is_err_and(|why| why.contains("the same")));
    }
}
