//! The documented statements about jobs, read from text.
//!
//! ```sql
//! SHOW JOBS [FOR TABLE name | FOR JOB 'id'] [LIMIT n]
//! SHOW JOB EVENTS [FOR JOB] 'id' [LIMIT n]
//! DESCRIBE JOB 'id'
//! CANCEL JOB 'id'   PAUSE JOB 'id'   RESUME JOB 'id'
//! ```
//!
//! Words are known in any case, a name may stand in quotes of any kind, and a semicolon may end it.

pub(crate) mod rows;

use winnow::ascii::{Caseless, dec_uint, multispace0, multispace1};
use winnow::combinator::{alt, delimited, eof, opt, preceded};
use winnow::error::{ContextError, ErrMode};
use winnow::token::{take_till, take_while};
use winnow::{ModalResult, Parser};

use crate::error::{Error, Result};
use crate::registry::EVENTS_MAX;

/// Rows of an answer, where the statement names no limit.
const LIMIT: u64 = 1_000;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Statement {
    /// Jobs, the newest first.
    Jobs {
        /// Of this table only.
        table: Option<String>,
        /// The parts of this job only.
        parent: Option<String>,
        /// How many.
        limit: u64,
    },
    /// What happened to a job.
    Events {
        /// The job.
        id: String,
        /// How many.
        limit: u64,
    },
    /// Everything about a job.
    Describe(String),
    /// Stop a job for good.
    Cancel(String),
    /// Keep a job from running.
    Pause(String),
    /// Let a paused job go on.
    Resume(String),
}

impl Statement {
    /// Whether it changes a job, and does not only look.
    pub fn changes(&self) -> bool {
        matches!(self, Self::Cancel(_) | Self::Pause(_) | Self::Resume(_))
    }
}

/// Reads one statement.
///
/// # Errors
/// `Invalid` with where it stopped making sense.
pub fn parse(text: &str) -> Result<Statement> {
    let mut rest = text;
    let read = delimited(multispace0, statement, (multispace0, opt(';'), multispace0, eof)).parse_next(&mut rest);
    let statement = read.map_err(|_: ErrMode<ContextError>| {
        let at = rest.trim_start();
        let near = if at.is_empty() { "its end".to_string() } else { format!("`{at}`") };
        Error::Invalid(format!(
            "the statement is not understood near {near}; known are SHOW JOBS [FOR TABLE name | FOR JOB 'id'] [LIMIT n], \
             SHOW JOB EVENTS 'id' [LIMIT n], DESCRIBE JOB 'id', CANCEL JOB 'id', PAUSE JOB 'id', RESUME JOB 'id'"
        ))
    })?;
    match &statement {
        Statement::Jobs { limit, .. } | Statement::Events { limit, .. } if !(1..=EVENTS_MAX).contains(limit) => {
            Err(Error::Invalid(format!("LIMIT {limit} is out of range: 1 to {EVENTS_MAX}")))
        }
        _ => Ok(statement),
    }
}

fn statement(rest: &mut &str) -> ModalResult<Statement> {
    let verb = |verb: &'static str, of: fn(String) -> Statement| preceded(words([verb, "JOB"]), name).map(of);
    alt((
        events,
        jobs,
        verb("DESCRIBE", Statement::Describe),
        verb("CANCEL", Statement::Cancel),
        verb("PAUSE", Statement::Pause),
        verb("RESUME", Statement::Resume),
    ))
    .parse_next(rest)
}

fn jobs(rest: &mut &str) -> ModalResult<Statement> {
    words(["SHOW", "JOBS"]).parse_next(rest)?;
    let table = opt(preceded(words(["FOR", "TABLE"]), name)).parse_next(rest)?;
    let parent = opt(preceded(words(["FOR", "JOB"]), name)).parse_next(rest)?;
    Ok(Statement::Jobs { table, parent, limit: limit(rest)? })
}

fn events(rest: &mut &str) -> ModalResult<Statement> {
    words(["SHOW", "JOB", "EVENTS"]).parse_next(rest)?;
    opt(words(["FOR", "JOB"])).parse_next(rest)?;
    Ok(Statement::Events { id: name(rest)?, limit: limit(rest)? })
}

fn limit(rest: &mut &str) -> ModalResult<u64> {
    let number = opt((words(["LIMIT"]), multispace1, dec_uint::<_, u64, _>)).parse_next(rest)?;
    Ok(number.map_or(LIMIT, |(_, _, number)| number))
}

/// These words, each behind some space, but for the first of a statement.
fn words<'a, const N: usize>(words: [&'static str; N]) -> impl Parser<&'a str, (), ErrMode<ContextError>> {
    move |rest: &mut &'a str| {
        for word in words {
            multispace0.parse_next(rest)?;
            Caseless(word).parse_next(rest)?;
            if rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                return Err(ErrMode::Backtrack(ContextError::new()));
            }
        }
        Ok(())
    }
}

/// A name or an id, in quotes or plain.
fn name(rest: &mut &str) -> ModalResult<String> {
    let quoted = |quote: char| delimited(quote, take_till(1.., quote), quote);
    let plain = take_while(1.., |c: char| !c.is_whitespace() && !matches!(c, ';' | '\'' | '"' | '`'));
    preceded(multispace0, alt((quoted('\''), quoted('"'), quoted('`'), plain))).map(str::to_string).parse_next(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_statements_are_read_in_any_case_and_quoting() {
        let jobs = |table: Option<&str>, parent: Option<&str>, limit| Statement::Jobs {
            table: table.map(Into::into),
            parent: parent.map(Into::into),
            limit,
        };
        let id = || "0198-a".to_string();
        for (text, read) in [
            ("SHOW JOBS", jobs(None, None, LIMIT)),
            ("  show\n jobs limit 5 ; ", jobs(None, None, 5)),
            ("SHOW JOBS FOR TABLE docs", jobs(Some("docs"), None, LIMIT)),
            ("show jobs for table \"my docs\" limit 10", jobs(Some("my docs"), None, 10)),
            ("SHOW JOBS FOR JOB '0198-a' LIMIT 10000", jobs(None, Some("0198-a"), 10_000)),
            ("SHOW JOB EVENTS FOR JOB '0198-a'", Statement::Events { id: id(), limit: LIMIT }),
            ("SHOW JOB EVENTS 0198-a LIMIT 3", Statement::Events { id: id(), limit: 3 }),
            ("describe job `0198-a`", Statement::Describe(id())),
            ("CANCEL JOB '0198-a';", Statement::Cancel(id())),
            ("PAUSE JOB 0198-a", Statement::Pause(id())),
            ("Resume Job 0198-a", Statement::Resume(id())),
        ] {
            assert_eq!(parse(text).expect("it is one of those"), read, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused_with_where_and_what_is() {
        for (text, near) in [
            ("", "its end"),
            ("DROP TABLE x", "`DROP TABLE x`"),
            ("SHOW JOBS FOR TABLE", "`FOR TABLE`"),
            ("SHOW JOBSX", "JOBSX"),
            ("SHOW JOBS; DROP TABLE x", "DROP TABLE x"),
            ("CANCEL JOB 'open", "'open"),
            ("SHOW JOBS LIMIT many", "many"),
            ("SHOW JOBS LIMIT 99999999999999999999999", "999"),
        ] {
            let why = parse(text).expect_err("it is none").to_string();
            assert!(why.contains(near) && why.contains("DESCRIBE JOB"), "{text}: {why}");
        }
        for limit in [0, EVENTS_MAX + 1] {
            let why = parse(&format!("SHOW JOBS LIMIT {limit}")).expect_err("out of range").to_string();
            assert!(why.contains("1 to 10000"), "{why}");
        }
    }
}
