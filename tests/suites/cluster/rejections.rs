//! Mistakes, as a person meets them: `kubectl apply` of each file in `examples/invalid/` prints the sentence its comment promises.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use holdfast_tests::cluster::Namespace;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/invalid");

/// The one that `password-in-url.yaml` should not have in it.
const PASSWORD: &str = "hunter2";

pub fn run(namespace: &Namespace) -> Result<String> {
    let mut files: Vec<_> =
        std::fs::read_dir(EXAMPLES)?.map(|file| Ok(file?.path())).collect::<Result<_>>()?;
    files.sort();
    ensure!(files.len() >= 10, "only {} examples", files.len());
    let mut report = String::new();
    for file in &files {
        let said = refusal(namespace, file).with_context(|| file.display().to_string())?;
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        report.push_str(&format!("  $ kubectl apply -f examples/invalid/{name}\n"));
        for line in said.lines() {
            report.push_str(&format!("    {line}\n"));
        }
    }
    Ok(report)
}

/// What kubectl says, if it is what the file's own comment promises.
fn refusal(namespace: &Namespace, file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file)?;
    let promised = text.lines().find_map(|line| line.strip_prefix("# refused: "));
    let promised = promised.context("no comment `# refused: …` says what is to be printed")?;
    let said = match namespace.kubectl(&["apply", "-f", &file.display().to_string()]) {
        Ok(said) => anyhow::bail!("it was accepted: {said}"),
        Err(error) => format!("{error:#}"),
    };
    ensure!(said.contains(promised), "expected {promised:?}, but it says:\n{said}");
    ensure!(!said.contains(PASSWORD), "it repeats a password:\n{said}");
    // The first line is our own: which command failed.
    Ok(said.lines().skip(1).collect::<Vec<_>>().join("\n"))
}
