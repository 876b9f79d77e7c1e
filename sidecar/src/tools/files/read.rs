//! `read_file`.

use std::fmt::Write;

use serde::Deserialize;

use super::{MAX_ANSWER, Refusal, Work, path, shown, told};
use crate::workspace::{FileError, Part};

const LINES: usize = 2000;

#[derive(Deserialize)]
struct Input {
    path: String,
    offset: Option<usize>,
    limit: Option<usize>,
}

impl Work<'_> {
    pub(super) async fn read(&self) -> Result<String, Refusal> {
        let Input { path: named, offset, limit } = self.input(&["path"])?;
        let path = path(&named)?;
        let found = self.workspace.trees().read(&self.tree, &path, Part::WHOLE).await.map_err(told)?;
        let content = found.ok_or_else(|| told(FileError::NotFound(path.clone())))?;
        let text = std::str::from_utf8(&content.bytes).ok().filter(|_| !content.about.binary);
        let text = text.ok_or_else(|| {
            format!(
                "{path} is not text but {} bytes of something else; it cannot be shown",
                content.about.size
            )
        })?;
        numbered(text, offset.unwrap_or(1), limit.unwrap_or(LINES))
    }
}

/// Lines `first` and following, each with its number.
fn numbered(text: &str, first: usize, limit: usize) -> Result<String, Refusal> {
    if first == 0 || limit == 0 {
        return Err("offset and limit count from 1; nothing was read".into());
    }
    let total = text.lines().count();
    if total == 0 {
        return Ok("[the file is empty]".into());
    }
    if first > total {
        return Err(format!("the file has {total} lines; read from an offset of at most {total}"));
    }
    let (mut answer, mut last) = (String::new(), first - 1);
    for (index, line) in text.lines().enumerate().skip(first - 1).take(limit) {
        let line = shown(line);
        if !answer.is_empty() && answer.len() + line.len() > MAX_ANSWER {
            break;
        }
        last = index + 1;
        // Writing to a string cannot fail.
        let _ = writeln!(answer, "{last:>6}\t{line}");
    }
    if first > 1 || last < total {
        let _ = write!(answer, "[lines {first} to {last} of {total}");
        answer.push_str(&if last < total {
            format!("; go on with offset {}]", last + 1)
        } else {
            "]".into()
        });
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_with_their_numbers_and_say_where_to_go_on() {
        assert_eq!(numbered("a\nb\n", 1, 10).as_deref(), Ok("     1\ta\n     2\tb\n"));
        let part = numbered("a\nb\nc\nd", 2, 2).expect("two lines");
        assert_eq!(part, "     2\tb\n     3\tc\n[lines 2 to 3 of 4; go on with offset 4]");
        assert_eq!(numbered("a\nb", 2, 9).as_deref(), Ok("     2\tb\n[lines 2 to 2 of 2]"));
        assert_eq!(numbered("", 1, 9).as_deref(), Ok("[the file is empty]"));
        assert!(numbered("a", 2, 9).is_err_and(|why| why.contains("has 1 lines")));
        assert!(numbered("a", 0, 9).is_err() && numbered("a", 1, 0).is_err());
    }

    #[test]
    fn an_answer_is_bounded_by_bytes_and_so_is_a_line() {
        let line = "x".repeat(1999);
        let text = vec![line.as_str(); 100].join("\n");
        let answer = numbered(&text, 1, 2000).expect("lines");
        assert!(answer.len() < MAX_ANSWER + 1000, "{}", answer.len());
        assert!(answer.ends_with("of 100; go on with offset 33]"), "{}", &answer[answer.len() - 80..]);
        let long = numbered(&"ä".repeat(5000), 1, 1).expect("a line");
        assert!(long.ends_with("[cut: the line has 10000 bytes]\n"), "{}", &long[long.len() - 80..]);
    }
}
