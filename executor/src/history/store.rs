//! The file: opened, brought to the newest schema, and its troubles in words.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{Executor, Row};

use crate::error::{Error, Result};

/// The file in the state folder.
const FILE: &str = "caretaker.sqlite";
/// How long a writer waits for another process.
const BUSY: Duration = Duration::from_secs(10);

/// What brings a file from one schema to the next; each counts itself in `user_version`.
/// What stands here was shipped: it is added to, never changed.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE cleanup (
        uri TEXT PRIMARY KEY,
        start_version INTEGER, finished_at_ms INTEGER, recorded_version INTEGER,
        failed_at_ms INTEGER
    ) STRICT;
    CREATE TABLE failing (
        uri TEXT NOT NULL, job TEXT NOT NULL,
        times INTEGER NOT NULL, last_at_ms INTEGER NOT NULL,
        PRIMARY KEY (uri, job)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE unindexed (
        uri TEXT NOT NULL, index_name TEXT NOT NULL, since_ms INTEGER NOT NULL,
        PRIMARY KEY (uri, index_name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE result (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        uri TEXT NOT NULL, job TEXT NOT NULL, outcome TEXT NOT NULL,
        ended_at_ms INTEGER NOT NULL, millis INTEGER NOT NULL, report TEXT NOT NULL
    ) STRICT;
    CREATE INDEX result_of_table ON result (uri, id);
    CREATE INDEX result_by_age ON result (ended_at_ms);
    PRAGMA user_version = 1;
",
    "
    CREATE TABLE mismatch (
        uri TEXT PRIMARY KEY, job TEXT NOT NULL, at_ms INTEGER NOT NULL, why TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    PRAGMA user_version = 2;
",
];

/// One connection: SQLite has one writer anyway, and so nobody here ever finds it locked by a neighbour.
fn pool() -> SqlitePoolOptions {
    // With a thousand evaluations at once each waits its turn, which is nothing to warn of.
    let quiet = SqlitePoolOptions::new().acquire_slow_level(log::LevelFilter::Off);
    quiet.max_connections(1).idle_timeout(None).max_lifetime(None).test_before_acquire(false)
}

/// A history that ends with the process.
pub(super) fn in_memory() -> SqlitePool {
    let fresh = pool().after_connect(|connection, _| {
        Box::pin(async move { migrate(connection, "memory").await.map_err(|e| sqlx::Error::Configuration(e.into())) })
    });
    fresh.connect_lazy_with(SqliteConnectOptions::new().in_memory(true))
}

/// Opens the file in `dir` for reading and writing.
pub(super) async fn open(dir: &Path) -> Result<(SqlitePool, String)> {
    std::fs::create_dir_all(dir).map_err(|e| {
        Error::Invalid(format!("can't make the state folder `{}`: {e}; name another with --state-dir", dir.display()))
    })?;
    let file = dir.join(FILE);
    let place = file.display().to_string();
    let options = SqliteConnectOptions::new()
        .filename(&file)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .busy_timeout(BUSY);
    let pool = pool().connect_with(options).await.map_err(|e| trouble(&place, e))?;
    let mut connection = pool.acquire().await.map_err(|e| trouble(&place, e))?;
    migrate(&mut connection, &place).await?;
    drop(connection);
    Ok((pool, place))
}

/// Opens the file in `dir` for reading; `None` where there is none.
pub(super) async fn look(dir: &Path) -> Result<Option<(SqlitePool, String)>> {
    let file = dir.join(FILE);
    if !file.exists() {
        return Ok(None);
    }
    let place = file.display().to_string();
    let options = SqliteConnectOptions::new().filename(&file).read_only(true).busy_timeout(BUSY);
    let pool = pool().connect_with(options).await.map_err(|e| trouble(&place, e))?;
    let mut connection = pool.acquire().await.map_err(|e| trouble(&place, e))?;
    let had = schema(&mut connection, &place).await?;
    drop(connection);
    // One that an older version left is brought up to date by the next `run` or `serve`.
    Ok((had == MIGRATIONS.len()).then_some((pool, place)))
}

async fn migrate(connection: &mut SqliteConnection, place: &str) -> Result<()> {
    if schema(connection, place).await? == MIGRATIONS.len() {
        return Ok(());
    }
    run(connection, "BEGIN IMMEDIATE", place).await?;
    // Another process may have been faster.
    let had = schema(connection, place).await?;
    for migration in MIGRATIONS.iter().skip(had) {
        run(connection, migration, place).await?;
    }
    run(connection, "COMMIT", place).await
}

async fn run(connection: &mut SqliteConnection, sql: &'static str, place: &str) -> Result<()> {
    // The trait's own method gives a boxed future, which the hook of the pool can hold.
    connection.execute(sql).await.map(drop).map_err(|e| trouble(place, e))
}

/// How many migrations the file has had.
async fn schema(connection: &mut SqliteConnection, place: &str) -> Result<usize> {
    let row = connection.fetch_one("PRAGMA user_version").await;
    let version: i64 = row.and_then(|row| row.try_get(0)).map_err(|e| trouble(place, e))?;
    match usize::try_from(version) {
        Ok(had) if had <= MIGRATIONS.len() => Ok(had),
        _ => Err(Error::Invalid(format!(
            "`{place}` was written by a newer Caretaker (schema {}, this one knows {}); use that version, or another \
             folder with --state-dir",
            version,
            MIGRATIONS.len()
        ))),
    }
}

/// An error of the database by what to do about it.
pub(super) fn trouble(place: &str, error: sqlx::Error) -> Error {
    let code = error.as_database_error().and_then(|e| e.code()).and_then(|code| code.parse::<i32>().ok());
    // The low byte is the kind, the rest of it the detail.
    match code.map(|code| code & 0xff) {
        Some(5 | 6) => {
            Error::Retry(format!("`{place}` is in use by another process for {} s: {error}", BUSY.as_secs()))
        }
        Some(8 | 14 | 23) => Error::Invalid(format!(
            "`{place}` can't be opened for writing: {error}; give this user write access to the file and its folder, \
             or name another with --state-dir"
        )),
        Some(11 | 26) => Error::Invalid(format!(
            "`{place}` is damaged or no SQLite file: {error}; move it away, and the history begins anew"
        )),
        Some(10 | 13) => Error::Retry(format!("`{place}` can't be written: {error}")),
        _ if matches!(error, sqlx::Error::PoolTimedOut) => Error::Retry(format!("`{place}` is too busy: {error}")),
        _ => Error::Fatal(format!("`{place}`: {error}")),
    }
}

/// SQLite's integers have a sign. Versions and times are far from the end of either.
pub(super) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn uint(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
