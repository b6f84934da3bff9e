//! A timeline as a picture that stands by itself.

use alloc::{format, string::String, string::ToString, vec::Vec};

use super::timeline::{Scale, Series, series};
use super::{cut, duration};
use crate::simulate::{JobOutcome, JobRecord, Timeline};

/// The picture's width, and where the series begin and end in it.
const WIDTH: u64 = 960;
const LEFT: u64 = 176;
const RIGHT: u64 = 940;
/// Height of a series, and of a row of jobs.
const PANEL: u64 = 64;
const LANE: u64 = 18;
/// Points of a line.
const POINTS: usize = 600;

const STYLE: &str = "svg{color-scheme:light dark;--ink:#1c1e21;--soft:#6a7078;--line:#d5d9de;--paper:#fff;--main:#2563c9;--bad:#c2410c;--fill:#2563c922}\
@media(prefers-color-scheme:dark){svg{--ink:#e8eaed;--soft:#9aa2ab;--line:#3a4048;--paper:#16181b;--main:#7aaefc;--bad:#fb8a4c;--fill:#7aaefc22}}\
text{font:12px system-ui,sans-serif;fill:var(--ink)}.soft{fill:var(--soft)}.end{text-anchor:end}.paper{fill:var(--paper)}.axis{stroke:var(--line)}\
.curve{fill:none;stroke:var(--main);stroke-width:1.5}.area{fill:var(--fill)}.bound{stroke:var(--bad);stroke-dasharray:4 3}\
.done{fill:var(--main)}.open{fill:var(--soft)}.failed,.conflict{fill:var(--bad)}";

/// A timeline as an SVG document: the series that tell most, then every listed job in a row of its kind.
pub fn svg(timeline: &Timeline) -> String {
    let chosen = ["SSTables", "staleness", "unindexed", "fragments", "versions", "on disk", "garbage", "held"];
    let panels: Vec<Series<'_>> = series(&timeline.samples).into_iter().filter(|s| chosen.contains(&s.name)).collect();
    let mut kinds: Vec<&str> = timeline.jobs.iter().map(|job| job.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let jobs_at = 40 + panels.len() as u64 * PANEL + 20;
    let height = jobs_at + kinds.len() as u64 * LANE + 40;
    let what = format!("{} over {}", cut(&timeline.facts.table, 60), duration(timeline.duration_ms));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{what}\">\
         <style>{STYLE}</style><rect class=\"paper\" width=\"{WIDTH}\" height=\"{height}\"/>\
         <text x=\"12\" y=\"22\">{what}</text>",
        what = escaped(&what)
    );
    for (nth, panel) in panels.iter().enumerate() {
        out += &self::panel(timeline, panel, 40 + nth as u64 * PANEL);
    }
    for (nth, kind) in kinds.iter().enumerate() {
        let top = jobs_at + nth as u64 * LANE;
        out += &format!("<text class=\"end\" x=\"{}\" y=\"{}\">{}</text>", LEFT - 8, top + 13, escaped(&cut(kind, 24)));
        for job in timeline.jobs.iter().filter(|job| job.kind == *kind) {
            out += &self::job(timeline, job, top);
        }
    }
    out += &axis(timeline, height - 24);
    out + "</svg>\n"
}

fn x(timeline: &Timeline, at_ms: u64) -> u64 {
    let part = u128::from(at_ms.min(timeline.duration_ms)) * u128::from(RIGHT - LEFT);
    LEFT + u64::try_from(part / u128::from(timeline.duration_ms.max(1))).unwrap_or(0)
}

fn panel(timeline: &Timeline, series: &Series<'_>, top: u64) -> String {
    let most = series.values.iter().copied().max().unwrap_or(0);
    let (low, high) = (top + PANEL - 10, top + 6);
    let y = |value: u64| {
        let up = u128::from(value) * u128::from(low - high) / u128::from(most.max(1));
        low - u64::try_from(up).unwrap_or(0).min(low - high)
    };
    let per_point = series.values.len().div_ceil(POINTS).max(1);
    let ends = timeline.samples.at_ms.chunks(per_point).filter_map(|chunk| chunk.last());
    let peaks = series.values.chunks(per_point).map(|chunk| chunk.iter().copied().max().unwrap_or(0));
    let points: String = ends.zip(peaks).map(|(at, peak)| format!(" {},{}", x(timeline, *at), y(peak))).collect();
    let mut out = format!(
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{low}\" x2=\"{RIGHT}\" y2=\"{low}\"/>\
         <text class=\"end\" x=\"{}\" y=\"{}\">{}</text><text class=\"soft end\" x=\"{}\" y=\"{}\">most {}</text>\
         <polygon class=\"area\" points=\"{LEFT},{low}{points} {RIGHT},{low}\"/><polyline class=\"curve\" points=\"{}\"/>",
        LEFT - 8,
        top + 24,
        series.name,
        LEFT - 8,
        top + 40,
        series.scale.text(most),
        points.trim_start()
    );
    let bound = timeline.totals.staleness.bound_ms.filter(|bound| series.name == "staleness" && *bound <= most);
    if let Some(bound) = bound.filter(|_| series.scale == Scale::Time) {
        let at = y(bound);
        out += &format!("<line class=\"bound\" x1=\"{LEFT}\" y1=\"{at}\" x2=\"{RIGHT}\" y2=\"{at}\"/>");
    }
    out
}

fn job(timeline: &Timeline, job: &JobRecord, top: u64) -> String {
    let Some(started) = job.started_ms else { return String::new() };
    let (from, to) = (x(timeline, started), x(timeline, job.ended_ms.unwrap_or(timeline.duration_ms)));
    let class = match job.outcome {
        JobOutcome::Done => "done",
        JobOutcome::Open => "open",
        JobOutcome::Failed => "failed",
        JobOutcome::Conflict => "conflict",
    };
    let shard = job.shard.as_ref().map(|shard| format!(" of {}", cut(shard, 40))).unwrap_or_default();
    let title = format!("{}{shard}, {class}, at {}", cut(&job.kind, 40), duration(started));
    format!(
        "<rect class=\"{class}\" x=\"{from}\" y=\"{}\" width=\"{}\" height=\"{}\"><title>{}</title></rect>",
        top + 3,
        (to - from).max(1),
        LANE - 6,
        escaped(&title)
    )
}

fn axis(timeline: &Timeline, y: u64) -> String {
    let tick = |nth: u64| {
        let at = timeline.duration_ms / 6 * nth;
        let place = x(timeline, at);
        let end = if nth == 6 { " end" } else { "" };
        format!("<text class=\"soft{end}\" x=\"{place}\" y=\"{y}\">{}</text>", duration(at))
    };
    (0..=6).map(tick).collect()
}

/// Text that can't end what it stands in.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // What XML has no place for, control characters beside the breaks.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            c => out += c.to_string().as_str(),
        }
    }
    out
}
