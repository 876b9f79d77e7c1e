//! The six tools, as a model calls them.

use std::sync::Arc;

use holdfast_sidecar::state::{Block, Id, Slot};
use holdfast_sidecar::tools::files::FileTools;
use holdfast_sidecar::tools::{Caller, Safety, ToolCall, ToolOutput};
use holdfast_sidecar::workspace::{Isolation, TreeLimits, Workspace};
use serde_json::{Value, json};

use crate::kit::{Bench, Opened, read, slot, user, write};

/// Someone at work: every tool call has a key of its own.
pub struct Desk {
    tools: FileTools,
    pub slot: Slot,
    pub fence: u64,
    calls: std::cell::Cell<usize>,
}

impl Desk {
    pub fn new(trees: &Opened, isolation: Isolation, slot: Slot) -> Self {
        let tools = FileTools::new(Workspace::new(trees.shared(), isolation));
        Self { tools, slot, fence: 1, calls: std::cell::Cell::default() }
    }

    pub async fn output(&self, name: &str, input: &Value, key: &str) -> ToolOutput {
        let (call, context) = (Id::new("call", "c").expect("an id"), Arc::default());
        let caller = Caller { slot: &self.slot, call: &call, fence: self.fence };
        let call = ToolCall { id: "t1", name, input, idempotency_key: key, caller, context: &context };
        self.tools.run(&call).await.unwrap_or_else(|| panic!("no tool {name}"))
    }

    async fn run(&self, name: &str, input: &Value) -> ToolOutput {
        self.calls.set(self.calls.get() + 1);
        self.output(name, input, &format!("op-{}", self.calls.get())).await
    }

    pub async fn ok(&self, name: &str, input: Value) -> String {
        let output = self.run(name, &input).await;
        assert!(!output.is_error, "{name} {input}: {output:?}");
        text(&output)
    }

    pub async fn refused(&self, name: &str, input: Value) -> String {
        let output = self.run(name, &input).await;
        assert!(output.is_error, "{name} {input}: {output:?}");
        text(&output)
    }
}

pub fn text(output: &ToolOutput) -> String {
    output.content.iter().filter_map(Block::as_text).collect()
}

pub async fn a_model_writes_reads_edits_and_finds(bench: Bench) {
    let trees = bench.trees();
    let desk = Desk::new(&trees, Isolation::User, slot(Some("u"), "s"));
    let classes: Vec<_> = desk.tools.specs().into_iter().map(|spec| (spec.name, spec.safety)).collect();
    let (safe, keyed) = (Safety::ReadOnly, Safety::Idempotent);
    let expected = [
        ("read_file", safe),
        ("write_file", keyed),
        ("edit_file", keyed),
        ("list_files", safe),
        ("glob_files", safe),
        ("grep_files", safe),
    ];
    assert_eq!(classes, expected.map(|(name, safety)| (name.to_owned(), safety)));

    assert_eq!(desk.ok("list_files", json!({})).await, "[the workspace is empty]");
    let wrote = desk.ok("write_file", json!({"path": "/notes/todo.md", "content": "- look\n- leap\n"})).await;
    assert_eq!(wrote, "Wrote notes/todo.md: 14 bytes, 2 lines.");
    desk.ok("write_file", json!({"path": "src/main.rs", "content": "fn main() {\n    leap();\n}\n"})).await;
    write(&*trees, &user("u"), "logo.png", b"\x89PNG\0").await;
    assert_eq!(
        desk.ok("read_file", json!({"path": "notes/todo.md"})).await,
        "     1\t- look\n     2\t- leap\n"
    );
    let edited = desk
        .ok("edit_file", json!({"path": "notes/todo.md", "old_string": "- leap", "new_string": "- leap far"}))
        .await;
    assert_eq!(edited, "Edited notes/todo.md at line 2: it has 18 bytes now.");
    assert_eq!(read(&*trees, &user("u"), "notes/todo.md").await.as_deref(), Some("- look\n- leap far\n"));
    assert_eq!(desk.ok("list_files", json!({"path": "/"})).await, "logo.png (5 bytes)\nnotes/\nsrc/\n");
    assert_eq!(desk.ok("list_files", json!({"path": "src/"})).await, "src/main.rs (26 bytes)\n");
    assert_eq!(
        desk.ok("glob_files", json!({"pattern": "**/*.{md,rs}"})).await,
        "notes/todo.md\nsrc/main.rs\n"
    );
    assert_eq!(desk.ok("glob_files", json!({"pattern": "*.md"})).await, "[no file matches *.md]");
    let found = desk.ok("grep_files", json!({"pattern": r"\bLEAP\b", "ignore_case": true})).await;
    let rest = "[2 lines match, in 2 of 2 files; 1 files that are not text were left out]";
    assert_eq!(found, format!("notes/todo.md:2: - leap far\nsrc/main.rs:2:     leap();\n{rest}"));
    let found = desk.ok("grep_files", json!({"pattern": "leap", "path": "src/main.rs"})).await;
    assert!(found.starts_with("src/main.rs:2:"), "{found}");
    let found = desk.ok("grep_files", json!({"pattern": "leap", "glob": "**/*.md", "limit": 1})).await;
    assert!(found.starts_with("notes/todo.md:2: - leap far\n[1 lines match"), "{found}");
    assert!(
        desk.ok("grep_files", json!({"pattern": "fly"})).await.starts_with("[no line matches fly; 2 files")
    );
}

pub async fn what_cannot_be_done_is_said_so_that_it_can_be_acted_on(bench: Bench) {
    let limits = TreeLimits { max_file: 20, max_tree: 30, ..TreeLimits::default() };
    let trees = (bench.open)(limits).trees("test.agent");
    let desk = Desk::new(&trees, Isolation::User, slot(Some("u"), "s"));
    write(&*trees, &user("u"), "a/b", "x\nx\n").await;
    write(&*trees, &user("u"), "bin", b"\0").await;
    let edit = |old: &str, new: &str| json!({"path": "a/b", "old_string": old, "new_string": new});
    for (name, input, says) in [
        ("read_file", json!({"path": "none"}), "none does not exist; list"),
        ("read_file", json!({"path": "a"}), "is a folder"),
        ("read_file", json!({"path": "bin"}), "not text but 1 bytes"),
        ("read_file", json!({"path": "a/b", "offset": 9}), "has 2 lines"),
        ("read_file", json!({}), "missing: path"),
        ("read_file", json!({"path": 7}), "do not fit"),
        ("read_file", json!({"path": "../../etc/passwd"}), "write it without"),
        ("write_file", json!({"path": "a/b/c", "content": ""}), "a/b is a file"),
        ("write_file", json!({"path": "a", "content": ""}), "is a folder"),
        (
            "write_file",
            json!({"path": "c", "content": "x".repeat(21)}),
            "would have 21 bytes and may have 20; split",
        ),
        ("write_file", json!({"path": "a\u{200b}", "content": ""}), "U+200B"),
        ("edit_file", edit("y", "z"), "not in the file; nothing was changed"),
        ("edit_file", edit("x", "z"), "lines 1 and 2"),
        ("edit_file", json!({"path": "none", "old_string": "a", "new_string": "b"}), "does not exist"),
        ("edit_file", json!({"path": "bin", "old_string": "a", "new_string": "b"}), "not text"),
        ("grep_files", json!({"pattern": "("}), "cannot be used"),
        ("grep_files", json!({"pattern": "(?=look)"}), "cannot be used"),
        ("grep_files", json!({"pattern": "x{1000}{1000}"}), "cannot be used"),
        ("glob_files", json!({"pattern": "a["}), "cannot be read"),
        ("list_files", json!({"path": "a/.."}), "write it without"),
    ] {
        let said = desk.refused(name, input.clone()).await;
        assert!(said.contains(says), "{name} {input}: {said}");
    }
    desk.ok("write_file", json!({"path": "c", "content": "x".repeat(20)})).await;
    let said = desk.refused("write_file", json!({"path": "d", "content": "x".repeat(20)})).await;
    assert!(said.contains("would hold 45 bytes and may hold 30; remove or shorten"), "{said}");
    assert_eq!(read(&*trees, &user("u"), "a/b").await.as_deref(), Some("x\nx\n"));
}

pub async fn an_edit_that_lost_a_race_says_so_and_changes_nothing(bench: Bench) {
    let place = (bench.open)(TreeLimits::default());
    let (one, two) = (place.trees("test.agent"), place.trees("test.agent"));
    let desks = [
        Desk::new(&one, Isolation::User, slot(Some("u"), "s1")),
        Desk::new(&two, Isolation::User, slot(Some("u"), "s2")),
    ];
    let (mut made, mut lost) = (Vec::new(), 0);
    write(&*one, &user("u"), "log", "END").await;
    for n in 0..200 {
        let edit =
            |mark: String| json!({"path": "log", "old_string": "END", "new_string": format!("{mark}\nEND")});
        let marks = [format!("a{n}"), format!("b{n}")];
        let (a, b) = (edit(marks[0].clone()), edit(marks[1].clone()));
        let key = format!("op-{n}");
        let (a, b) =
            tokio::join!(desks[0].output("edit_file", &a, &key), desks[1].output("edit_file", &b, &key));
        assert!(!a.is_error || !b.is_error, "somebody wins: {a:?} {b:?}");
        for (output, mark) in [a, b].iter().zip(marks) {
            if output.is_error {
                assert!(
                    text(output).contains("changed meanwhile; nothing was written, read it again"),
                    "{output:?}"
                );
                lost += 1;
            } else {
                made.push(mark);
            }
        }
        // Both have met; more of it would show nothing else.
        if lost >= 3 {
            break;
        }
    }
    let text = read(&*one, &user("u"), "log").await.expect("there");
    let mut lines: Vec<_> = text.lines().filter(|line| *line != "END").collect();
    lines.sort_unstable();
    made.sort();
    assert_eq!(
        lines, made,
        "what was said to be made is there once, what was said to be lost is not; {lost} were lost"
    );
    assert!(lost > 0, "no two edits ever met");

    // The same tool call again, as after a takeover: the same words, and no second edit.
    let again = json!({"path": "log", "old_string": "END", "new_string": "once\nEND"});
    let first = desks[0].output("edit_file", &again, "op-again").await;
    let second = desks[0].output("edit_file", &again, "op-again").await;
    assert_eq!(first, second);
    assert!(!first.is_error);
    let text = read(&*one, &user("u"), "log").await.expect("there");
    assert_eq!(text.matches("once").count(), 1);
    let mut late = Desk::new(&one, Isolation::User, slot(Some("u"), "s1"));
    late.fence = 0;
    let output = late.output("write_file", &json!({"path": "log", "content": "late"}), "op-late").await;
    assert!(output.is_error && self::text(&output).contains("taken over"), "{output:?}");
}
