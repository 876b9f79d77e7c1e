//! Built in: the tools by which a model works on files, offered where the manifest has a filesystem.
//!
//! ```text
//! read.rs    read_file
//! write.rs   write_file, edit_file       fenced, each tool call once
//! find.rs    list_files, glob_files
//! grep.rs    grep_files
//! ```
//!
//! Every refusal is a sentence that the model can act on. Which tree a call works in follows from its session alone:
//! no argument can name another.

mod find;
mod grep;
mod read;
mod write;

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Safety, ToolCall, ToolOutput, ToolSpec};
use crate::workspace::{FileError, FilePath, PathError, Stamp, Tree, Workspace};

/// Bytes of one answer: more is told to be asked for in parts.
const MAX_ANSWER: usize = 64 << 10;
/// Characters of one line that are shown.
const MAX_LINE: usize = 2000;
/// Entries in one page of a tree that is looked through.
const PAGE: usize = 1000;

/// Why a tool did nothing, in words for the model.
type Refusal = String;

#[derive(Debug, Clone)]
pub struct FileTools {
    workspace: Workspace,
}

/// One call: its tree, and who calls.
struct Work<'a> {
    workspace: &'a Workspace,
    tree: Tree,
    call: &'a ToolCall<'a>,
}

impl FileTools {
    pub fn new(workspace: Workspace) -> Self {
        Self { workspace }
    }

    pub fn specs(&self) -> Vec<ToolSpec> {
        let max = self.workspace.trees().limits().max_file;
        let path = json!({"type": "string", "description": "The file's path in the workspace, such as notes/todo.md."});
        let folder = json!({"type": "string", "description": "Only what is in this folder. Absent: the whole workspace."});
        let whole =
            |text: &str, least: u64| json!({"type": "integer", "minimum": least, "description": text});
        vec![
            spec(
                "read_file",
                "Read a text file from the workspace. Every line comes with its number and a tab before it.",
                &json!({
                    "path": path,
                    "offset": whole("The first line to read, counted from 1.", 1),
                    "limit": whole("How many lines to read; 2000 if absent.", 1),
                }),
                &["path"],
                Safety::ReadOnly,
            ),
            spec(
                "write_file",
                &format!(
                    "Write a whole file into the workspace, in place of the one that may be there. At most {max} bytes."
                ),
                &json!({"path": path, "content": {"type": "string", "description": "The whole content."}}),
                &["path", "content"],
                Safety::Idempotent,
            ),
            spec(
                "edit_file",
                "Replace one text in a file of the workspace by another. The old text must be in the file exactly once, \
                 with its white space, and without the line numbers that read_file shows.",
                &json!({
                    "path": path,
                    "old_string": {"type": "string", "description": "The text to replace, with enough around it to be there only once."},
                    "new_string": {"type": "string", "description": "What to put in its place."},
                }),
                &["path", "old_string", "new_string"],
                Safety::Idempotent,
            ),
            spec(
                "list_files",
                "List what is in one folder of the workspace: files with their sizes, folders with a slash at the end.",
                &json!({
                    "path": {"type": "string", "description": "The folder. Absent: the top of the workspace."},
                    "after": {"type": "string", "description": "Go on after this entry of the list before."},
                }),
                &[],
                Safety::ReadOnly,
            ),
            spec(
                "glob_files",
                "Find files in the workspace by their paths, such as **/*.md, src/*.{rs,toml} or notes/202?-*.txt.",
                &json!({
                    "pattern": {"type": "string", "description": "* and ? stay within a folder, ** does not."},
                    "path": folder,
                }),
                &["pattern"],
                Safety::ReadOnly,
            ),
            spec(
                "grep_files",
                "Search the text files of the workspace line by line for a regular expression.",
                &json!({
                    "pattern": {"type": "string", "description": "The expression: Perl's syntax without look-around and back-references."},
                    "path": {"type": "string", "description": "Only this file, or what is in this folder."},
                    "glob": {"type": "string", "description": "Only files whose paths match, such as **/*.md."},
                    "ignore_case": {"type": "boolean"},
                    "limit": whole("How many matching lines to show; 100 if absent.", 1),
                }),
                &["pattern"],
                Safety::ReadOnly,
            ),
        ]
    }

    /// `None` where the call is for another tool.
    pub async fn run(&self, call: &ToolCall<'_>) -> Option<ToolOutput> {
        let work = Work { workspace: &self.workspace, tree: self.workspace.tree(call.caller.slot), call };
        let answer = match call.name {
            "read_file" => work.read().await,
            "write_file" => work.write().await,
            "edit_file" => work.edit().await,
            "list_files" => work.list().await,
            "glob_files" => work.glob().await,
            "grep_files" => work.grep().await,
            _ => return None,
        };
        Some(answer.map_or_else(ToolOutput::error, ToolOutput::text))
    }
}

impl Work<'_> {
    fn input<T: DeserializeOwned>(&self, required: &[&str]) -> Result<T, Refusal> {
        let required: Vec<String> = required.iter().map(|name| (*name).to_owned()).collect();
        let arguments = super::arguments::check(self.call.input, &required)?;
        serde_json::from_value(Value::Object(arguments))
            .map_err(|error| format!("the arguments do not fit: {error}; nothing was done"))
    }

    fn stamp(&self) -> Stamp {
        let caller = &self.call.caller;
        Stamp {
            slot: caller.slot.clone(),
            call: caller.call.clone(),
            fence: caller.fence,
            op: self.call.idempotency_key.to_owned(),
        }
    }
}

fn path(text: &str) -> Result<FilePath, Refusal> {
    FilePath::new(text).map_err(|error| error.to_string())
}

fn folder(text: Option<&str>) -> Result<Option<FilePath>, Refusal> {
    FilePath::folder(text.unwrap_or_default()).map_err(|error: PathError| error.to_string())
}

fn told(error: FileError) -> Refusal {
    match error {
        FileError::Store(error) => {
            tracing::warn!(error = error.label(), "a workspace could not be used");
            "the workspace cannot be used at the moment; nothing was done, try again later".to_owned()
        }
        error => error.to_string(),
    }
}

/// A line as it is shown: not longer than a model should be made to read.
fn shown(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE) {
        Some((end, _)) => format!("{} [cut: the line has {} bytes]", &line[..end], line.len()),
        None => line.to_owned(),
    }
}

fn spec(name: &str, description: &str, properties: &Value, required: &[&str], safety: Safety) -> ToolSpec {
    let schema = json!({"type": "object", "properties": properties, "required": required});
    ToolSpec {
        name: name.into(),
        description: description.into(),
        schema: RawValue::from_string(schema.to_string())
            .map_or_else(|_| RawValue::NULL.to_owned().into(), Arc::from),
        safety,
    }
}
