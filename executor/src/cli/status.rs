//! `caretaker status`: every table in a line, for whoever looks after them.

use clap::Args;
use planner::draw::duration;
use planner::plan::Trigger;
use tokio_util::sync::CancellationToken;

use super::each::{each, none_found, selected};
use super::out::{DIM, complain, say, styled};
use super::run::line;
use super::{Exit, Work};
use crate::catalog::TableRef;
use crate::error::Result;
use crate::read::Depth;
use crate::show::{Grid, Side, count, things};
use crate::status::{Health, Status};

/// How `--help` explains the words.
pub(super) const WORDS: &str = "\
Health, the worst first; within a word tables stand by name:
  unreadable  it could not be evaluated; the exit code is 1
  failing     work that is due has failed, and has not succeeded since
  held        work that is due waits for somebody to change something
  paused      its config says so: nothing but index catch-up runs
  due         work waits for the next run, or is being done
  ok          nothing is due

SSTables are those not folded yet; `unindexed` is of the index that lacks most rows.";

#[derive(Args)]
pub(super) struct StatusArgs {
    /// Database or table.
    pub(super) root: String,
    /// Only this table; may be given again.
    #[arg(long = "table", value_name = "NAME")]
    tables: Vec<String>,
    /// One JSON object a line as tables are read, by name.
    #[arg(long)]
    json: bool,
}

/// Prints a line for each table, the worst first. Folders are not walked: a few small reads a table.
pub(super) async fn run(args: &StatusArgs, work: &Work) -> Result<Exit> {
    let tables = selected(&work.root, &work.session, &args.tables).await?;
    if tables.is_empty() && !args.json {
        return none_found(&work.root);
    }
    let tender = &work.tender(CancellationToken::new());
    let look = async |table: &TableRef| {
        let seen = tender.evaluate(table, Depth::Fold, Trigger::Tick).await?;
        Ok(Status::new(&seen.facts, &seen.plan, work.registry.last_success(&table.uri).await?))
    };
    let mut board = Board::default();
    each(work, &tables, look, |table, seen| {
        match &seen {
            Ok(status) if args.json => line(status)?,
            Err(error) if args.json => {
                let why = error.to_string();
                line(&serde_json::json!({ "table": table.name, "health": Health::Unreadable, "error": why }))?;
            }
            _ => {}
        }
        board.add(&table.name, seen);
        Ok(())
    })
    .await?;
    if !args.json {
        board.print()?;
    }
    Ok(if board.failures.is_empty() { Exit::Done } else { Exit::Failed })
}

/// What stays of each table until all were read.
#[derive(Default)]
struct Board {
    rows: Vec<(Health, [String; COLUMNS.len()])>,
    notes: Vec<String>,
    failures: Vec<String>,
}

const COLUMNS: [(&str, Side); 10] = [
    ("table", Side::Left),
    ("health", Side::Left),
    ("SSTables", Side::Right),
    ("oldest", Side::Right),
    ("unindexed", Side::Right),
    ("fragments", Side::Right),
    ("version", Side::Right),
    ("cleaned", Side::Right),
    ("last success", Side::Left),
    ("work", Side::Left),
];

impl Board {
    fn add(&mut self, table: &str, seen: Result<Status>) {
        match seen {
            Ok(status) => {
                self.notes.extend(status.complaints.iter().map(|why| format!("table `{table}`: not followed: {why}")));
                self.rows.push((status.health, cells(&status)));
            }
            Err(error) => {
                self.failures.push(format!("table `{table}`: {error}"));
                let mut cells: [String; COLUMNS.len()] = Default::default();
                (cells[0], cells[1]) = (table.into(), word(Health::Unreadable).into());
                self.rows.push((Health::Unreadable, cells));
            }
        }
    }

    fn print(&mut self) -> Result<()> {
        self.rows.sort();
        let closing = closing(&self.rows.iter().map(|(health, _)| *health).collect::<Vec<_>>());
        let mut grid = Grid::new(COLUMNS);
        self.rows.drain(..).for_each(|(_, cells)| grid.row(cells));
        if let Some((names, rows)) = grid.lines().split_first() {
            say(styled(DIM, names))?;
            rows.iter().try_for_each(say)?;
            say("")?;
        }
        self.notes.iter().try_for_each(say)?;
        say(closing)?;
        self.failures.iter().for_each(complain);
        Ok(())
    }
}

fn cells(status: &Status) -> [String; COLUMNS.len()] {
    let ago = |at_ms: u64| duration(status.at_ms.saturating_sub(at_ms));
    let now = &status.now;
    [
        status.table.clone(),
        word(status.health).into(),
        if now.shards == 0 { String::new() } else { count(now.unfolded) },
        status.oldest_unfolded_at_ms.map(ago).unwrap_or_default(),
        status.lagging.as_ref().map(|lag| format!("{} {}", count(lag.rows), lag.index)).unwrap_or_default(),
        now.fragments.map(count).unwrap_or_default(),
        count(now.version),
        match (status.last_cleanup, &status.cleanup_off) {
            (Some(last), _) => format!("{} ago", ago(last.finished_at_ms)),
            (None, Some(_)) => "off".into(),
            (None, None) => "never".into(),
        },
        status
            .last_success
            .as_ref()
            .map(|last| format!("{} {} ago", last.job, ago(last.ended_at_ms)))
            .unwrap_or_default(),
        status.work(),
    ]
}

fn word(health: Health) -> &'static str {
    match health {
        Health::Unreadable => "unreadable",
        Health::Failing => "failing",
        Health::Held => "held",
        Health::Paused => "paused",
        Health::Due => "due",
        Health::Ok => "ok",
    }
}

/// `12 tables: 1 failing, 2 due, 9 ok`, of healths that are sorted.
fn closing(healths: &[Health]) -> String {
    let of_each = healths.chunk_by(|a, b| a == b);
    let parts: Vec<String> = of_each.map(|same| format!("{} {}", count(same.len() as u64), word(same[0]))).collect();
    format!("{}: {}", things(healths.len() as u64, "table"), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    #[test]
    fn every_word_is_explained() {
        let all = [Health::Unreadable, Health::Failing, Health::Held, Health::Paused, Health::Due, Health::Ok];
        assert!(all.is_sorted(), "the worst first");
        for health in all {
            assert!(WORDS.lines().any(|line| line.trim_start().starts_with(word(health))), "{health:?}");
            assert_eq!(serde_json::json!(health), word(health), "text and JSON say the same");
        }
    }

    #[test]
    fn the_closing_line_counts_each_health() {
        assert_eq!(closing(&[Health::Failing, Health::Ok, Health::Ok]), "3 tables: 1 failing, 2 ok");
    }

    #[test]
    fn a_table_that_can_not_be_read_has_a_row_and_its_reason() {
        let mut board = Board::default();
        board.add("bad", Err(Error::Invalid("no manifest".into())));
        assert_eq!(board.rows[0].1[..2], ["bad", "unreadable"]);
        assert_eq!(board.failures, ["table `bad`: no manifest"]);
    }
}
