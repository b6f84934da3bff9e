//! What people see of a run: numbers with units, aligned columns, no noise.

use std::time::Duration;

use planner::draw::bytes;
use planner::plan::Hold;
use serde::Serialize;

use crate::report::{JobEnd, TableReport};

/// Stands where a value is missing.
const NOTHING: &str = "-";
const GAP: &str = "  ";

/// `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    String::from_utf8_lossy(&groups.join(&b',')).into_owned()
}

/// `0.08 s`, `12.4 s`, `3 min 05 s`, `2 h 07 min`.
pub fn took(millis: u64) -> String {
    let secs = Duration::from_millis(millis).as_secs_f64();
    let whole = millis.saturating_add(500) / 1000;
    match millis {
        0..10_000 => format!("{secs:.2} s"),
        10_000..59_950 => format!("{secs:.1} s"),
        59_950..3_599_500 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// `1 table`, `2 tables`.
pub fn things(n: u64, thing: &str) -> String {
    format!("{} {thing}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Why a shard is not folded although it should be, and what to do.
pub fn held(shard: &str, hold: &Hold) -> String {
    match hold {
        Hold::Pass { holder, since_ms } => {
            format!("a pass runs on shard `{shard}` already ({holder}, since {})", crate::env::show(*since_ms))
        }
        Hold::NoPrimaryKey => format!(
            "shard `{shard}` can't be folded: the table has no primary key; \
             set one with `table.set_unenforced_primary_key([...])`"
        ),
        Hold::Paused => {
            format!("shard `{shard}` is not folded: the table is paused; take `caretaker.paused` out of its config")
        }
        Hold::Clone { table } => format!("shard `{shard}` waits for the clone `{table}`"),
        Hold::Mismatch { kind, at_ms } => format!(
            "shard `{shard}` is left as it is: `{kind}` changed the table's answers ({}); see `caretaker verify --help`",
            crate::env::show(*at_ms)
        ),
        Hold::Detached => format!(
            "shard `{shard}` is left as it is: the table's LSM write spec was unset, so nothing reads its SSTables; \
             set the same spec again to have them back"
        ),
        Hold::Running { kind, holder, since_ms } => {
            format!("shard `{shard}` waits: `{kind}` runs already ({holder}, since {})", crate::env::show(*since_ms))
        }
        Hold::Compaction { .. } => format!("shard `{shard}` waits for a compaction"),
        Hold::Remap { .. } => format!("shard `{shard}` waits for a remap"),
        Hold::CatchUp { index } => format!("shard `{shard}` waits until index `{index}` has caught up"),
        Hold::Failing { kind, times, until_ms } => format!(
            "shard `{shard}` waits until {}: `{kind}` failed {times} times in a row",
            crate::env::show(*until_ms)
        ),
        Hold::Sealed => format!("shard `{shard}` is being dropped and is left alone"),
        Hold::Index { index } => format!("shard `{shard}` waits for index `{index}`"),
        Hold::Retained { version } => format!("shard `{shard}` is needed by {version}"),
    }
}

/// On which side a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// Aligned columns under their names; a column that holds nothing is left out.
pub struct Grid {
    columns: Vec<(&'static str, Side)>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    /// An empty grid.
    pub fn new(columns: impl IntoIterator<Item = (&'static str, Side)>) -> Self {
        Self { columns: columns.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row: one cell a column, an empty one where there is nothing to say.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The lines, the one with the names first.
    pub fn lines(&self) -> Vec<String> {
        let cell = |row: &'_ Vec<String>, at: usize| row.get(at).cloned().unwrap_or_default();
        let used: Vec<usize> =
            (0..self.columns.len()).filter(|at| self.rows.iter().any(|row| !cell(row, *at).is_empty())).collect();
        let width = |at: usize| {
            let widest = self.rows.iter().map(|row| cell(row, at).chars().count()).max().unwrap_or_default();
            widest.max(self.columns[at].0.chars().count())
        };
        let widths: Vec<usize> = used.iter().map(|at| width(*at)).collect();
        let line = |text: &dyn Fn(usize) -> String| {
            let cells = used.iter().zip(&widths).map(|(at, width)| {
                let (text, width) = (text(*at), *width);
                let text = if text.is_empty() { NOTHING.to_string() } else { text };
                match self.columns[*at].1 {
                    Side::Left => format!("{text:<width$}"),
                    Side::Right => format!("{text:>width$}"),
                }
            });
            cells.collect::<Vec<_>>().join(GAP).trim_end().to_string()
        };
        let mut lines = vec![line(&|at| self.columns[at].0.to_string())];
        lines.extend(self.rows.iter().map(|row| line(&|at| cell(row, at))));
        lines
    }
}

/// Sums over the tables of a run; also the last line of its `--json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Tables looked at.
    pub tables: u64,
    /// Of these, tables where jobs ran and none failed.
    pub tended: u64,
    /// Of these, tables with nothing to do.
    pub idle: u64,
    /// Of these, tables that are due, but held by something, and where no job ran.
    pub held: u64,
    /// Of these, tables where something failed.
    pub failed: u64,
    /// Tables not looked at, because the run was interrupted.
    pub left: u64,
    /// A signal ended the run: jobs in progress were finished, no other was begun.
    pub interrupted: bool,
    /// SSTables folded.
    pub sstables_folded: u64,
    /// SSTables that stay unfolded: below the triggers, or held.
    pub sstables_waiting: u64,
    /// SSTables that are folded and still listed: an index lags, or readers are waited for.
    pub sstables_listed: u64,
    /// Rows with a new key.
    pub rows_inserted: u64,
    /// Rows replaced by a newer value.
    pub rows_updated: u64,
    /// Rows deleted.
    pub rows_deleted: u64,
    /// Fragments that compactions replaced.
    pub fragments_compacted: u64,
    /// Old versions removed.
    pub versions_removed: u64,
    /// Bytes of data files written.
    pub bytes_written: u64,
    /// Bytes of files deleted.
    pub bytes_collected: u64,
    /// Wall time, milliseconds.
    pub millis: u64,
}

/// A run as it goes on: totals of every table, a row of each that was touched, failures.
pub struct Summary {
    /// The sums so far.
    pub totals: Totals,
    /// What did not work out, a sentence each.
    pub failures: Vec<String>,
    /// What others did first or hold; nothing is wrong.
    pub notes: Vec<String>,
    grid: Grid,
    verbose: bool,
}

/// The jobs of one table, summed.
#[derive(Default)]
struct Work {
    sstables: u64,
    inserted: u64,
    updated: u64,
    deleted: u64,
    written: u64,
    indexes: u64,
    compacted: u64,
    versions: u64,
    retired: u64,
    files: u64,
    collected: u64,
}

impl Work {
    fn of(report: &TableReport) -> Self {
        let mut work = Self::default();
        for job in &report.jobs {
            match &job.end {
                JobEnd::Folded(fold) => {
                    work.sstables += fold.sstables;
                    work.inserted += fold.rows_inserted;
                    work.updated += fold.rows_updated;
                    work.deleted += fold.rows_deleted;
                    work.written += fold.bytes_written;
                }
                JobEnd::CaughtUp | JobEnd::Indexed | JobEnd::Remapped => work.indexes += job.on.len() as u64,
                JobEnd::Compacted(compact) => {
                    work.compacted += compact.fragments_removed;
                    work.written += compact.bytes_written;
                }
                JobEnd::Cleaned(cleanup) => {
                    work.versions += cleanup.versions;
                    work.files += cleanup.files;
                    work.collected += cleanup.bytes;
                }
                JobEnd::Retired { sstables } => work.retired += sstables,
                JobEnd::Collected { files, bytes } => {
                    work.files += files;
                    work.collected += bytes;
                }
                JobEnd::Part { .. }
                | JobEnd::Recovered { .. }
                | JobEnd::Superseded { .. }
                | JobEnd::Busy { .. }
                | JobEnd::Failed { .. } => {}
            }
        }
        work
    }
}

impl Summary {
    /// Nothing yet. A verbose one has a row for idle tables too.
    pub fn new(verbose: bool) -> Self {
        use Side::{Left, Right};
        let columns = [
            ("table", Left),
            ("rows", Right),
            ("new", Right),
            ("changed", Right),
            ("deleted", Right),
            ("SSTables", Right),
            ("written", Right),
            ("indexes", Right),
            ("fragments", Right),
            ("retired", Right),
            ("versions", Right),
            ("collected", Right),
            ("version", Right),
            ("time", Right),
        ];
        let grid = Grid::new(columns);
        Self { totals: Totals::default(), failures: Vec::new(), notes: Vec::new(), grid, verbose }
    }

    /// Takes one table's report.
    pub fn add(&mut self, report: &TableReport) {
        let work = Work::of(report);
        let quiet = report.jobs.is_empty() && !report.failed();
        let totals = &mut self.totals;
        totals.tables += 1;
        totals.failed += u64::from(report.failed());
        totals.idle += u64::from(quiet && report.held.is_empty());
        totals.held += u64::from(quiet && !report.held.is_empty());
        totals.tended += u64::from(!report.jobs.is_empty() && !report.failed());
        totals.sstables_folded += work.sstables;
        totals.sstables_waiting += report.after.as_ref().map_or(0, |after| after.unfolded);
        totals.sstables_listed += report.after.as_ref().map_or(0, |after| after.folded_listed);
        totals.rows_inserted += work.inserted;
        totals.rows_updated += work.updated;
        totals.rows_deleted += work.deleted;
        totals.fragments_compacted += work.compacted;
        totals.versions_removed += work.versions;
        totals.bytes_written += work.written;
        totals.bytes_collected += work.collected;
        self.remarks(report);
        if self.verbose || report.jobs.iter().any(|job| has_worked(&job.end)) {
            self.grid.row(cells(report, &work));
        }
    }

    fn remarks(&mut self, report: &TableReport) {
        let table = &report.table;
        if let Some(error) = &report.error {
            self.failures.push(format!("table `{table}`: {error}"));
        }
        let holds = report.held.iter().map(|h| format!("table `{table}`: {}", held(&h.shard, &h.hold)));
        self.notes.extend(holds);
        self.notes.extend(report.complaints.iter().map(|why| format!("table `{table}`: not followed: {why}")));
        for job in &report.jobs {
            let what = || match job.on.as_slice() {
                [] => format!("table `{table}`, {}", job.job),
                on => format!("table `{table}`, {} of {}", job.job, on.join(", ")),
            };
            match &job.end {
                JobEnd::Failed { why, .. } => self.failures.push(format!("{}: {why}", what())),
                JobEnd::Superseded { why } | JobEnd::Busy { why } => self.notes.push(format!("{}: {why}", what())),
                _ => {}
            }
        }
    }

    /// The table rows, aligned, the header first; empty when no table has one.
    pub fn rows(&mut self) -> Vec<String> {
        self.grid.rows.sort();
        if self.grid.is_empty() { Vec::new() } else { self.grid.lines() }
    }

    /// The closing sentences.
    pub fn closing(&self) -> String {
        let totals = &self.totals;
        let sums = [
            (totals.tended, "tended"),
            (totals.idle, "idle"),
            (totals.held, "held"),
            (totals.failed, "failed"),
            (totals.left, "not reached"),
        ];
        let parts: Vec<String> =
            sums.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", count(*n))).collect();
        let all = things(totals.tables + totals.left, "table");
        let mut text = format!("{all} in {}: {}", took(totals.millis), parts.join(", "));
        let left = [(totals.sstables_waiting, "not folded yet"), (totals.sstables_listed, "folded and still listed")];
        let left: Vec<String> =
            left.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{} {what}", things(*n, "SSTable"))).collect();
        if totals.interrupted {
            text += "\ninterrupted: jobs in progress were finished, no other was begun; run it again for the rest";
        }
        if !left.is_empty() {
            text += &format!("\n{}; `caretaker plan` says why", left.join(", "));
        }
        text
    }
}

fn has_worked(end: &JobEnd) -> bool {
    !matches!(end, JobEnd::Superseded { .. } | JobEnd::Busy { .. } | JobEnd::Failed { .. })
}

fn cells(report: &TableReport, work: &Work) -> [String; 14] {
    let some = |n: u64| if n == 0 { String::new() } else { count(n) };
    let change = |of: &dyn Fn(&crate::report::Snapshot) -> Option<u64>| {
        let (before, after) = (report.before.as_ref().and_then(of), report.after.as_ref().and_then(of));
        match (before, after) {
            (Some(before), Some(after)) if before == after => count(after),
            (Some(before), Some(after)) => format!("{} -> {}", count(before), count(after)),
            _ => String::new(),
        }
    };
    [
        report.table.clone(),
        change(&|s| s.rows),
        some(work.inserted),
        some(work.updated),
        some(work.deleted),
        change(&|s| Some(s.unfolded + s.folded_listed)),
        if work.written == 0 { String::new() } else { bytes(work.written) },
        some(work.indexes),
        if work.compacted == 0 { String::new() } else { change(&|s| s.fragments) },
        some(work.retired),
        some(work.versions),
        if work.files == 0 {
            String::new()
        } else {
            format!("{} ({})", things(work.files, "file"), bytes(work.collected))
        },
        change(&|s| Some(s.version)),
        took(report.millis),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{JobReport, Snapshot};
    use crate::run::fold::FoldReport;

    #[test]
    fn numbers_are_grouped_and_times_have_units() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let times = [8, 9_999, 12_340, 59_960, 185_000, 3_599_999, 7_620_000].map(took);
        assert_eq!(times, ["0.01 s", "10.00 s", "12.3 s", "1 min 00 s", "3 min 05 s", "1 h 00 min", "2 h 07 min"]);
        assert_eq!([things(1, "table"), things(2, "table")], ["1 table", "2 tables"]);
    }

    #[test]
    fn columns_are_aligned_and_empty_ones_left_out() {
        let mut grid = Grid::new([("name", Side::Left), ("nothing", Side::Left), ("n", Side::Right)]);
        grid.row(["a".into(), String::new(), "1,000".into()]);
        grid.row(["longer".into(), String::new(), String::new()]);
        assert_eq!(grid.lines(), ["name        n", "a       1,000", "longer      -"]);
    }

    fn report(table: &str, jobs: Vec<JobEnd>, error: Option<&str>) -> TableReport {
        let job = |end| JobReport::new("memwal_compaction", vec!["3f".into()], 5, end);
        let at =
            |version, rows, unfolded| Some(Snapshot { version, rows: Some(rows), unfolded, ..Snapshot::default() });
        let (before, after) = if jobs.is_empty() { (at(3, 10, 1), at(3, 10, 1)) } else { (at(3, 10, 4), at(5, 12, 0)) };
        TableReport {
            table: table.into(),
            before,
            after,
            jobs: jobs.into_iter().map(job).collect(),
            held: Vec::new(),
            complaints: Vec::new(),
            error: error.map(str::to_string),
            millis: 40,
        }
    }

    #[test]
    fn a_summary_has_a_row_for_each_touched_table_and_counts_the_rest() {
        let fold =
            FoldReport { sstables: 4, rows_inserted: 2, rows_updated: 3, bytes_written: 2048, ..FoldReport::default() };
        let mut summary = Summary::new(false);
        summary.add(&report("docs", vec![JobEnd::Folded(fold)], None));
        summary.add(&report("idle", vec![], None));
        summary.add(&report("bad", vec![], Some("no such bucket")));
        summary.totals.millis = 90;
        let rows = summary.rows();
        assert_eq!(rows[0], "table      rows  new  changed  SSTables  written  version    time");
        assert_eq!(rows[1], "docs   10 -> 12    2        3    4 -> 0       2K   3 -> 5  0.04 s");
        assert_eq!(rows.len(), 2);
        let closing =
            "3 tables in 0.09 s: 1 tended, 1 idle, 1 failed\n2 SSTables not folded yet; `caretaker plan` says why";
        assert_eq!(summary.closing(), closing);
        assert_eq!(summary.failures, ["table `bad`: no such bucket"]);
    }

    #[test]
    fn r2_12_a_superseded_job_is_a_note_and_no_failure() {
        let mut summary = Summary::new(false);
        summary.add(&report("docs", vec![JobEnd::Superseded { why: "superseded: folded by process 7".into() }], None));
        assert_eq!((summary.totals.failed, summary.failures.len(), summary.notes.len()), (0, 0, 1));
    }
}
