//! The ratios to the floor, drawn.

use std::fmt::Write;

use crate::report::{Bound, Report, Row};

const BAR: usize = 22;
const LEFT: usize = 470;
const WIDTH: f64 = 420.0;
const MOST: f64 = 3.0;

/// One bar a row that has a ratio; a line where its target is.
pub fn draw(report: &Report) -> String {
    let rows: Vec<(&Row, f64)> = report.rows.iter().filter_map(|row| Some((row, row.ratio?))).collect();
    let height = rows.len() * BAR + 60;
    let x = |ratio: f64| LEFT as f64 + ratio.clamp(0.0, MOST) / MOST * WIDTH;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">Holdfast's sidecar as a multiple of the floor (1×); a mark where the target is</text>\n",
        LEFT + 500
    );
    for (n, (row, ratio)) in rows.iter().enumerate() {
        let y = 36 + n * BAR;
        let colour = match row.holds {
            Some(true) => "#2a7",
            Some(false) => "#c43",
            None => "#78a",
        };
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LEFT - 8,
            y + 13,
            escaped(&row.what)
        );
        let bar = x(*ratio) - LEFT as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{bar:.1}\" height=\"{}\" fill=\"{colour}\"/>",
            BAR - 6
        );
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{}\">{ratio:.2}×</text>", x(*ratio) + 6.0, y + 13);
        if let Some(Bound::RatioAtMost(target) | Bound::RatioAtLeast(target)) = row.target {
            let at = x(target);
            let _ = writeln!(svg, "<path d=\"M{at:.1} {} v{BAR}\" stroke=\"black\"/>", y - 3);
        }
    }
    let one = x(1.0);
    let _ =
        writeln!(svg, "<path d=\"M{one:.1} 30 V{}\" stroke=\"#999\" stroke-dasharray=\"3 3\"/>", height - 20);
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
