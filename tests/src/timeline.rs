//! A picture of a run: replicas as they come and go, the calls of every session below them, and who took what over.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::cluster::artefact;
use crate::cluster::pods::Life;
use crate::load::{Happened, How, Told};

const LEFT: f64 = 190.0;
const WIDTH: f64 = 1100.0;
const TOP: f64 = 64.0;
const POD: f64 = 18.0;
const SESSION: f64 = 7.0;

const COLOURS: [&str; 8] =
    ["#2a6fbb", "#1b8a5a", "#9a5bb5", "#c7541f", "#0f8b8d", "#a63d57", "#6b7a1e", "#5560c0"];

/// Times are milliseconds since 1970.
pub struct Timeline {
    pub pods: BTreeMap<String, Life>,
    pub told: Vec<Told>,
    /// What was done, and when.
    pub faults: Vec<(u64, String)>,
}

impl Timeline {
    /// Writes `<target>/cluster/<name>.svg`; where it is.
    pub fn write(&self, name: &str) -> Result<PathBuf> {
        let path = artefact(&format!("{name}.svg"))?;
        std::fs::write(&path, self.svg(name)).with_context(|| path.display().to_string())?;
        Ok(path)
    }

    pub fn svg(&self, name: &str) -> String {
        let (first, last) = self.span();
        let x = |at: u64| LEFT + at.saturating_sub(first) as f64 / (last - first).max(1) as f64 * WIDTH;
        let sessions = self.sessions();
        let calls_top = TOP + POD * self.pods.len() as f64 + 34.0;
        let height = calls_top + SESSION * sessions.len() as f64 + 24.0;
        let mut svg = String::new();
        let _ = write!(
            svg,
            r##"<svg xmlns="http://www.w3.org/2000/svg" width="{w}" height="{height}" viewBox="0 0 {w} {height}" font-family="sans-serif" font-size="11">
<rect width="100%" height="100%" fill="#fff"/>
<text x="8" y="18" font-size="14" font-weight="bold">{name}: {calls} calls of {n} sessions</text>
<text x="8" y="36" fill="#666">pale: starting · full: serving · amber: told to stop, drains and relays · a call changes colour with the replica that takes it over · ● given back · ○ taken over · red: client cut off</text>
"##,
            w = LEFT + WIDTH + 20.0,
            calls = self.told.len(),
            n = sessions.len(),
        );
        self.draw_clock(&mut svg, first, last, height, &x);
        for (row, (pod, life)) in self.pods.iter().enumerate() {
            self.draw_pod(&mut svg, TOP + POD * row as f64, pod, life, last, &x);
        }
        let _ = writeln!(svg, r#"<text x="8" y="{:.0}" font-weight="bold">sessions</text>"#, calls_top - 8.0);
        for told in &self.told {
            let row = sessions.get(&(told.user.as_str(), told.session.as_str())).copied().unwrap_or(0);
            self.draw_call(&mut svg, calls_top + SESSION * row as f64, told, &x);
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn span(&self) -> (u64, u64) {
        let first = self.told.iter().map(|told| told.began).min().unwrap_or(0);
        let last = self.told.iter().map(end_of).max().unwrap_or(first + 1);
        let gone = self.pods.values().filter_map(|life| life.gone).max().unwrap_or(last);
        (first, last.max(gone))
    }

    fn sessions(&self) -> BTreeMap<(&str, &str), usize> {
        let mut rows = BTreeMap::new();
        for told in &self.told {
            let next = rows.len();
            rows.entry((told.user.as_str(), told.session.as_str())).or_insert(next);
        }
        rows
    }

    fn colour(&self, pod: &str) -> &'static str {
        let place = self.pods.keys().position(|known| known == pod).unwrap_or(0);
        COLOURS[place % COLOURS.len()]
    }

    fn draw_clock(&self, svg: &mut String, first: u64, last: u64, height: f64, x: &impl Fn(u64) -> f64) {
        for at in (first..last).step_by(10_000) {
            let _ = writeln!(
                svg,
                r##"<path d="M{x:.1} {TOP}V{height}" stroke="#eee"/><text x="{x:.1}" y="{height:.0}" fill="#999">{} s</text>"##,
                (at - first) / 1000,
                x = x(at),
            );
        }
        for (at, what) in &self.faults {
            let _ = writeln!(
                svg,
                r##"<path d="M{x:.1} 44V{height}" stroke="#c00" stroke-dasharray="3 3"/><text x="{:.1}" y="54" fill="#c00">{what}</text>"##,
                x(*at) + 3.0,
                x = x(*at),
            );
        }
    }

    fn draw_pod(&self, svg: &mut String, y: f64, pod: &str, life: &Life, last: u64, x: &impl Fn(u64) -> f64) {
        let ready = life.ready.unwrap_or(last);
        let deleted = life.deleted.unwrap_or(last);
        let gone = life.ends.last().map(|end| end.at).filter(|_| life.deleted.is_some()).unwrap_or(last);
        let colour = self.colour(pod);
        let _ = writeln!(svg, r#"<text x="8" y="{:.1}">{pod}</text>"#, y + 12.0);
        for (from, to, fill, opacity) in [
            (life.created, ready.min(deleted), colour, 0.25),
            (ready.min(deleted), deleted, colour, 1.0),
            (deleted, gone, "#e8a317", 1.0),
        ] {
            let width = (x(to) - x(from)).max(0.0);
            let _ = writeln!(
                svg,
                r#"<rect x="{:.1}" y="{:.1}" width="{width:.1}" height="{}" fill="{fill}" opacity="{opacity}"/>"#,
                x(from),
                y + 3.0,
                POD - 6.0,
            );
        }
        for end in life.ends.iter().filter(|end| end.exit_code != 0) {
            let _ = writeln!(
                svg,
                r##"<text x="{:.1}" y="{:.1}" fill="#c00" font-weight="bold">✕ {}</text>"##,
                x(end.at),
                y + 13.0,
                end.reason,
            );
        }
    }

    fn draw_call(&self, svg: &mut String, y: f64, told: &Told, x: &impl Fn(u64) -> f64) {
        let y = y + SESSION / 2.0;
        let colour = if told.how == How::Stream { "#7aa7d9" } else { "#b9c4cc" };
        let colour = if told.resumes > 0 && told.how != How::Stream { "#9a5bb5" } else { colour };
        line(svg, y, x(told.began), x(end_of(told)) - 1.0, colour, 2.5);
        for mark in &told.marks {
            let at = x(mark.at);
            match &mark.what {
                Happened::Resumed(replica) => {
                    line(svg, y, at, x(end_of(told)) - 1.0, self.colour(replica), 3.5);
                    let _ = writeln!(
                        svg,
                        r##"<circle cx="{at:.1}" cy="{y:.1}" r="2.6" fill="#fff" stroke="#000"/>"##
                    );
                }
                Happened::Suspended => {
                    let _ = writeln!(svg, r#"<circle cx="{at:.1}" cy="{y:.1}" r="2.6"/>"#);
                }
                Happened::Cut | Happened::Failed(_) => line(svg, y, at, at + 2.0, "#d00", 6.0),
                Happened::Heard => {}
            }
        }
    }
}

fn end_of(told: &Told) -> u64 {
    told.began + u64::try_from(told.took.as_millis()).unwrap_or(0)
}

fn line(svg: &mut String, y: f64, from: f64, to: f64, colour: &str, width: f64) {
    let _ = writeln!(
        svg,
        r#"<path d="M{from:.1} {y:.1}H{:.1}" stroke="{colour}" stroke-width="{width}"/>"#,
        to.max(from + 1.0)
    );
}
