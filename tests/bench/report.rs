//! What was measured, as a table, as JSON, as a chart and as the page `docs/performance.md`.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use crate::chart;

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Bound {
    RatioAtMost(f64),
    RatioAtLeast(f64),
    AtMost(f64),
}

#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub what: String,
    pub unit: &'static str,
    pub floor: Option<f64>,
    pub ours: f64,
    pub ratio: Option<f64>,
    pub target: Option<Bound>,
    pub holds: Option<bool>,
}

impl Row {
    pub fn must_hold(&mut self, bound: Bound) {
        self.target = Some(bound);
        let ratio = self.ratio.unwrap_or(f64::NAN);
        self.holds = Some(match bound {
            Bound::RatioAtMost(most) => ratio <= most,
            Bound::RatioAtLeast(least) => ratio >= least,
            Bound::AtMost(most) => self.ours <= most,
        });
    }

    pub fn must_hold_if(&mut self, asked: bool, bound: Bound) {
        if asked {
            self.must_hold(bound);
        }
    }

    fn target(&self) -> String {
        let said = match self.target {
            None => return String::new(),
            Some(Bound::RatioAtMost(most)) => format!("≤ {most}×"),
            Some(Bound::RatioAtLeast(least)) => format!("≥ {least}×"),
            Some(Bound::AtMost(most)) => format!("≤ {most} {}", self.unit),
        };
        format!("{said} {}", if self.holds == Some(true) { "✓" } else { "✗" })
    }
}

#[derive(Debug, Serialize)]
pub struct Report {
    pub command: String,
    pub machine: String,
    pub rows: Vec<Row>,
}

impl Report {
    pub fn new(command: &str) -> Self {
        Self { command: command.to_owned(), machine: machine(), rows: Vec::new() }
    }

    /// A figure of both; its ratio says how far we are from the least it can be.
    pub fn row(&mut self, what: &str, unit: &'static str, floor: f64, ours: f64) -> &mut Row {
        self.push(Row {
            what: what.to_owned(),
            unit,
            floor: Some(floor),
            ours,
            ratio: Some(ours / floor),
            target: None,
            holds: None,
        })
    }

    /// A figure that the floor does not have.
    pub fn figure(&mut self, what: &str, unit: &'static str, ours: f64) -> &mut Row {
        self.push(Row {
            what: what.to_owned(),
            unit,
            floor: None,
            ours,
            ratio: None,
            target: None,
            holds: None,
        })
    }

    fn push(&mut self, row: Row) -> &mut Row {
        let at = self.rows.len();
        self.rows.push(row);
        &mut self.rows[at]
    }

    /// A Markdown table, which is also one to look at.
    pub fn table(&self) -> String {
        let mut lines =
            vec![["what".to_owned(), "floor".into(), "Holdfast".into(), "ratio".into(), "target".into()]];
        for row in &self.rows {
            let figure = |value: f64| format!("{} {}", short(value), row.unit).trim_end().to_owned();
            let ratio = row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}×"));
            lines.push([
                row.what.clone(),
                row.floor.map_or_else(String::new, figure),
                figure(row.ours),
                ratio,
                row.target(),
            ]);
        }
        let width = |place: usize| lines.iter().map(|line| line[place].chars().count()).max().unwrap_or(0);
        let widths: [usize; 5] = std::array::from_fn(width);
        let mut table = String::new();
        for (n, line) in lines.iter().enumerate() {
            for (cell, width) in line.iter().zip(widths) {
                let _ = write!(table, "| {cell}{} ", " ".repeat(width - cell.chars().count()));
            }
            table.push_str("|\n");
            if n == 0 {
                let rule: Vec<String> = widths
                    .iter()
                    .enumerate()
                    .map(|(n, width)| {
                        "-".repeat(width + usize::from(n == 0 || n == 4) + 1)
                            + if (1..4).contains(&n) { ":" } else { "" }
                    })
                    .collect();
                let _ = writeln!(table, "|{}|", rule.join("|"));
            }
        }
        table
    }

    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("sidecar.json"), serde_json::to_string_pretty(self)?)?;
        fs::write(folder.join("sidecar.svg"), chart::draw(self))?;
        Ok(())
    }

    /// Puts the table between the page's markers; what stands around them is written by hand.
    pub fn publish(&self, page: &Path) -> Result<()> {
        let text = format!("`{}` on {}:\n\n{}", self.command, self.machine, self.table());
        splice(page, "sidecar", &text)
    }
}

/// Replaces what stands between `<!-- name -->` and `<!-- /name -->`.
pub fn splice(page: &Path, name: &str, text: &str) -> Result<()> {
    let old = fs::read_to_string(page)?;
    let (open, close) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
    let parts = old.split_once(&open).and_then(|(before, rest)| Some((before, rest.split_once(&close)?.1)));
    let (before, after) =
        parts.ok_or_else(|| anyhow::anyhow!("{} has no place for {name}", page.display()))?;
    fs::write(page, format!("{before}{open}{}\n{close}{after}", text.trim_end()))?;
    Ok(())
}

pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1))
        .unwrap_or("an unknown processor")
        .trim();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let system = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    format!("{cores} cores of {name}, {}", system.unwrap_or("Linux").trim_matches('"'))
}
