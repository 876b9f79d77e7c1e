//! What may name a file: a plain relative path, the same on every kind of tree.
//!
//! Everything that could mean another place than it seems to is refused, not repaired: `..`, empty parts, backslashes,
//! control characters, characters that cannot be seen or that turn the reading direction.

use std::fmt;
use std::sync::Arc;

/// The longest path, and the longest part between two slashes, in bytes.
pub const MAX_PATH_BYTES: usize = 1024;
const MAX_PART_BYTES: usize = 255;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    #[error("the path is empty; name a file, such as notes/todo.md")]
    Empty,
    #[error("the path is {0} bytes long; at most {MAX_PATH_BYTES} are allowed")]
    TooLong(usize),
    #[error("a part of the path is {0} bytes long; at most {MAX_PART_BYTES} are allowed between two slashes")]
    PartTooLong(usize),
    #[error("the path has a part {0:?}; write it without, starting at the top of the workspace")]
    Dots(String),
    #[error("the path has an empty part; write one slash between two names and none at the end")]
    EmptyPart,
    #[error("the path has a backslash; separate folders by /")]
    Backslash,
    #[error("the path has the character U+{0:04X}, which cannot be seen; leave it out")]
    Invisible(u32),
}

/// The path of a file in its tree: parts separated by `/`, none of them special.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FilePath(Arc<str>);

impl FilePath {
    /// A leading `/` or `./` means the top of the tree, as models like to write it.
    pub fn new(text: &str) -> Result<Self, PathError> {
        let plain = text.strip_prefix("./").or_else(|| text.strip_prefix('/')).unwrap_or(text);
        if plain.is_empty() {
            return Err(PathError::Empty);
        }
        if plain.len() > MAX_PATH_BYTES {
            return Err(PathError::TooLong(plain.len()));
        }
        for part in plain.split('/') {
            match part {
                "" => return Err(PathError::EmptyPart),
                "." | ".." => return Err(PathError::Dots(part.to_owned())),
                part if part.len() > MAX_PART_BYTES => return Err(PathError::PartTooLong(part.len())),
                _ => {}
            }
        }
        match plain.chars().find(|c| *c == '\\' || is_invisible(*c)) {
            Some('\\') => Err(PathError::Backslash),
            Some(c) => Err(PathError::Invisible(c.into())),
            None => Ok(Self(plain.into())),
        }
    }

    /// A folder to look in. `None` is the top of the tree: nothing, `/`, `.` or `./`. A slash at the end is fine.
    pub fn folder(text: &str) -> Result<Option<Self>, PathError> {
        match text {
            "" | "/" | "." | "./" => Ok(None),
            _ => Self::new(text.strip_suffix('/').unwrap_or(text)).map(Some),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folders it is in, the outermost first.
    pub fn ancestors(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(at, _)| &self.0[..at])
    }

    pub fn parent(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(parent, _)| parent)
    }

    pub fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }
}

/// Control characters, and what hides or turns around the letters beside it.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_are_taken_as_they_are() {
        for text in ["a", "a/b.txt", ".hidden", "a b/ü/😀", "..a", "a..", "...", "~", "C:", "．．／x", "con"]
        {
            assert_eq!(FilePath::new(text).expect(text).as_str(), text);
        }
        assert_eq!(FilePath::new("/a/b").expect("a path").as_str(), "a/b");
        assert_eq!(FilePath::new("./a/b").expect("a path").as_str(), "a/b");
        let longest = format!("{}/{}", "x".repeat(255), "y".repeat(255));
        assert!(FilePath::new(&longest).is_ok());
    }

    #[test]
    fn what_could_mean_another_place_is_refused() {
        for text in [
            "",
            "/",
            "//a",
            "a//b",
            "a/",
            "..",
            "../a",
            "a/../b",
            "a/..",
            ".",
            "./.",
            "a/./b",
            "/../a",
            "a\\b",
            "..\\a",
            "a\0b",
            "a\nb",
            "a\u{200b}b",
            "\u{202e}txt.a",
            "a\u{7f}",
        ] {
            assert!(FilePath::new(text).is_err(), "{text:?}");
        }
        assert_eq!(FilePath::new(&"x".repeat(256)), Err(PathError::PartTooLong(256)));
        let long = vec!["x"; 600].join("/");
        assert_eq!(FilePath::new(&long), Err(PathError::TooLong(1199)));
    }

    #[test]
    fn a_folder_may_end_in_a_slash_and_the_top_has_no_name() {
        for top in ["", "/", ".", "./"] {
            assert_eq!(FilePath::folder(top), Ok(None));
        }
        assert_eq!(FilePath::folder("a/b/").map(|f| f.map(|f| f.to_string())), Ok(Some("a/b".to_owned())));
        assert!(FilePath::folder("a//").is_err());
        assert!(FilePath::folder("..").is_err());
    }

    #[test]
    fn ancestors_come_from_the_outside() {
        let path = FilePath::new("a/b/c.txt").expect("a path");
        assert_eq!(path.ancestors().collect::<Vec<_>>(), ["a", "a/b"]);
        assert_eq!((path.parent(), path.name()), (Some("a/b"), "c.txt"));
    }
}
