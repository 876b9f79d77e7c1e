//! A manifest read strictly, every mistake with its line.

use std::fmt;

use crate::Agent;

/// One thing that is wrong, where it is, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Counted from 1.
    pub line: usize,
    /// Counted from 1.
    pub column: usize,
    /// The field, for example `spec.model.provider`; empty for the document itself.
    pub path: String,
    pub message: String,
}

/// Everything that is wrong with a manifest, in the order of its lines.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Mistakes {
    pub mistakes: Vec<Mistake>,
    file: String,
}

impl Mistakes {
    /// Say this file name before every line.
    #[must_use]
    pub fn in_file(mut self, file: &str) -> Self {
        file.clone_into(&mut self.file);
        self
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Mistake { line, column, path, message }) in self.mistakes.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            let colon = if path.is_empty() { "" } else { ": " };
            write!(f, "{newline}{}:{line}:{column}: {path}{colon}{message}", self.file)?;
        }
        Ok(())
    }
}

/// Read one Agent, or say everything that is wrong with it.
pub fn parse(text: &str) -> Result<Agent, Mistakes> {
    serde_yaml::from_str(text).map_err(|error| Mistakes {
        mistakes: vec![Mistake {
            line: error.location().map_or(1, |at| at.line()),
            column: error.location().map_or(1, |at| at.column()),
            path: String::new(),
            message: error.to_string(),
        }],
        file: "manifest".into(),
    })
}
