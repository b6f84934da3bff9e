//! The tables, and what brings a database from one schema to the next.
//!
//! A job is open while `ended_ms` is null. `open_key` says what it does to what: of equal ones only one
//! may be open. `holds` is the lane it occupies while it runs: of those only one may run.

use sqlx::AnyConnection;

use super::store::{Engine, Store, number, run};
use crate::error::{Error, Result};

/// What the engines spell differently.
pub(super) struct Words {
    /// Milliseconds since the epoch.
    pub(super) now: &'static str,
    /// Rows that another claims at this moment are not waited for.
    pub(super) skip: &'static str,
}

pub(super) const SQLITE: Words = Words { now: "cast(unixepoch('subsec') * 1000 as integer)", skip: "" };
pub(super) const POSTGRES: Words =
    Words { now: "cast(extract(epoch from clock_timestamp()) * 1000 as bigint)", skip: "FOR UPDATE SKIP LOCKED" };

/// Guards the making of tables against another process that does the same. Any number serves.
const MIGRATION_LOCK: i64 = 0x6361_7265_7461;

/// Each counts itself in `user_version`. What stands here was shipped: it is added to, never changed.
pub(super) const SQLITE_MIGRATIONS: &[&str] = &[
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
    "
    ALTER TABLE cleanup RENAME TO caretaker_cleanup;
    ALTER TABLE failing RENAME TO caretaker_failing;
    ALTER TABLE unindexed RENAME TO caretaker_unindexed;
    ALTER TABLE mismatch RENAME TO caretaker_mismatch;
    CREATE TABLE caretaker_job (
        id TEXT PRIMARY KEY,
        parent TEXT, kind TEXT NOT NULL, table_name TEXT NOT NULL, uri TEXT NOT NULL, shard TEXT,
        open_key TEXT NOT NULL, lane TEXT, holds TEXT, only_worker TEXT,
        state TEXT NOT NULL, priority INTEGER NOT NULL, spec TEXT NOT NULL, seen TEXT NOT NULL,
        need_bytes INTEGER NOT NULL, size_bytes INTEGER NOT NULL,
        created_ms INTEGER NOT NULL, run_at_ms INTEGER NOT NULL, started_ms INTEGER, ended_ms INTEGER,
        attempt INTEGER NOT NULL, lease TEXT, worker TEXT, heartbeat_ms INTEGER, ask TEXT,
        stage TEXT, rows_done INTEGER NOT NULL, rows_total INTEGER NOT NULL,
        outcome TEXT, result TEXT, phase TEXT, message TEXT, retryable INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX caretaker_job_open ON caretaker_job (open_key) WHERE ended_ms IS NULL;
    CREATE UNIQUE INDEX caretaker_job_lane ON caretaker_job (holds) WHERE holds IS NOT NULL;
    CREATE INDEX caretaker_job_waiting ON caretaker_job (priority, id) WHERE state = 'pending';
    CREATE INDEX caretaker_job_late ON caretaker_job (run_at_ms) WHERE state = 'pending' AND priority > 0;
    CREATE INDEX caretaker_job_running ON caretaker_job (heartbeat_ms) WHERE state = 'running';
    CREATE INDEX caretaker_job_last ON caretaker_job (open_key, ended_ms);
    CREATE INDEX caretaker_job_uri ON caretaker_job (uri, ended_ms);
    CREATE INDEX caretaker_job_table ON caretaker_job (table_name, id);
    CREATE INDEX caretaker_job_kind ON caretaker_job (kind, id);
    CREATE INDEX caretaker_job_state ON caretaker_job (state, id);
    CREATE INDEX caretaker_job_parent ON caretaker_job (parent) WHERE parent IS NOT NULL;
    CREATE INDEX caretaker_job_ended ON caretaker_job (ended_ms) WHERE ended_ms IS NOT NULL;
    CREATE TABLE caretaker_event (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        job TEXT NOT NULL, at_ms INTEGER NOT NULL, state TEXT NOT NULL,
        worker TEXT, message TEXT, rows_done INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX caretaker_event_job ON caretaker_event (job, id);
    CREATE TABLE caretaker_archive (
        id TEXT PRIMARY KEY, ended_ms INTEGER NOT NULL, job TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX caretaker_archive_ended ON caretaker_archive (ended_ms);
    CREATE TABLE caretaker_member (
        name TEXT PRIMARY KEY, role TEXT NOT NULL, root TEXT NOT NULL, host TEXT NOT NULL,
        pid INTEGER NOT NULL, version TEXT NOT NULL, started_ms INTEGER NOT NULL, seen_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO caretaker_job
        SELECT printf('%08x-%04x-7000-8000-%012x', ended_at_ms >> 16, ended_at_ms & 65535, id),
               NULL, job, uri, uri, NULL, job || ' ' || uri, NULL, NULL, NULL,
               CASE outcome WHEN 'failed' THEN 'failed' ELSE 'succeeded' END, 0, '{}', '', 0, 0,
               max(ended_at_ms - millis, 0), max(ended_at_ms - millis, 0), max(ended_at_ms - millis, 0), ended_at_ms,
               1, NULL, NULL, NULL, NULL, NULL, 0, 0, outcome, report, NULL, NULL, NULL
        FROM result WHERE true;
    DROP TABLE result;
    PRAGMA user_version = 3;
",
    "
    ALTER TABLE caretaker_job ADD COLUMN policy TEXT;
    CREATE TABLE caretaker_decision (
        id TEXT PRIMARY KEY, uri TEXT NOT NULL, table_name TEXT NOT NULL, version INTEGER NOT NULL, at_ms INTEGER NOT NULL,
        jobs INTEGER NOT NULL, plan_sha256 TEXT NOT NULL, planner TEXT NOT NULL, policy TEXT NOT NULL, fell_back TEXT,
        candidate TEXT, candidate_said TEXT, body BLOB NOT NULL, bytes INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX caretaker_decision_uri ON caretaker_decision (uri, id);
    CREATE INDEX caretaker_decision_table ON caretaker_decision (table_name, id);
    CREATE INDEX caretaker_decision_bytes ON caretaker_decision (bytes);
    CREATE INDEX caretaker_decision_by ON caretaker_decision (planner, candidate);
    CREATE TABLE caretaker_plugin (
        sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, file BLOB NOT NULL,
        bytes INTEGER NOT NULL, loaded_ms INTEGER NOT NULL
    ) STRICT;
    PRAGMA user_version = 4;
",
];

/// Each counts itself in `caretaker_schema`.
pub(super) const POSTGRES_MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE caretaker_cleanup (
        uri TEXT PRIMARY KEY,
        start_version BIGINT, finished_at_ms BIGINT, recorded_version BIGINT, failed_at_ms BIGINT
    );
    CREATE TABLE caretaker_failing (
        uri TEXT NOT NULL, job TEXT NOT NULL, times BIGINT NOT NULL, last_at_ms BIGINT NOT NULL,
        PRIMARY KEY (uri, job)
    );
    CREATE TABLE caretaker_unindexed (
        uri TEXT NOT NULL, index_name TEXT NOT NULL, since_ms BIGINT NOT NULL, PRIMARY KEY (uri, index_name)
    );
    CREATE TABLE caretaker_mismatch (
        uri TEXT PRIMARY KEY, job TEXT NOT NULL, at_ms BIGINT NOT NULL, why TEXT NOT NULL
    );
    CREATE TABLE caretaker_job (
        id TEXT PRIMARY KEY,
        parent TEXT, kind TEXT NOT NULL, table_name TEXT NOT NULL, uri TEXT NOT NULL, shard TEXT,
        open_key TEXT NOT NULL, lane TEXT, holds TEXT, only_worker TEXT,
        state TEXT NOT NULL, priority BIGINT NOT NULL, spec TEXT NOT NULL, seen TEXT NOT NULL,
        need_bytes BIGINT NOT NULL, size_bytes BIGINT NOT NULL,
        created_ms BIGINT NOT NULL, run_at_ms BIGINT NOT NULL, started_ms BIGINT, ended_ms BIGINT,
        attempt BIGINT NOT NULL, lease TEXT, worker TEXT, heartbeat_ms BIGINT, ask TEXT,
        stage TEXT, rows_done BIGINT NOT NULL, rows_total BIGINT NOT NULL,
        outcome TEXT, result TEXT, phase TEXT, message TEXT, retryable BIGINT
    ) WITH (fillfactor = 70);
    CREATE UNIQUE INDEX caretaker_job_open ON caretaker_job (open_key) WHERE ended_ms IS NULL;
    CREATE UNIQUE INDEX caretaker_job_lane ON caretaker_job (holds) WHERE holds IS NOT NULL;
    CREATE INDEX caretaker_job_waiting ON caretaker_job (priority, id) WHERE state = 'pending';
    CREATE INDEX caretaker_job_late ON caretaker_job (run_at_ms) WHERE state = 'pending' AND priority > 0;
    CREATE INDEX caretaker_job_running ON caretaker_job (heartbeat_ms) WHERE state = 'running';
    CREATE INDEX caretaker_job_last ON caretaker_job (open_key, ended_ms);
    CREATE INDEX caretaker_job_uri ON caretaker_job (uri, ended_ms);
    CREATE INDEX caretaker_job_table ON caretaker_job (table_name, id);
    CREATE INDEX caretaker_job_kind ON caretaker_job (kind, id);
    CREATE INDEX caretaker_job_state ON caretaker_job (state, id);
    CREATE INDEX caretaker_job_parent ON caretaker_job (parent) WHERE parent IS NOT NULL;
    CREATE INDEX caretaker_job_ended ON caretaker_job (ended_ms) WHERE ended_ms IS NOT NULL;
    CREATE TABLE caretaker_event (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        job TEXT NOT NULL, at_ms BIGINT NOT NULL, state TEXT NOT NULL,
        worker TEXT, message TEXT, rows_done BIGINT NOT NULL
    );
    CREATE INDEX caretaker_event_job ON caretaker_event (job, id);
    CREATE TABLE caretaker_archive (id TEXT PRIMARY KEY, ended_ms BIGINT NOT NULL, job TEXT NOT NULL);
    CREATE INDEX caretaker_archive_ended ON caretaker_archive (ended_ms);
    CREATE TABLE caretaker_member (
        name TEXT PRIMARY KEY, role TEXT NOT NULL, root TEXT NOT NULL, host TEXT NOT NULL,
        pid BIGINT NOT NULL, version TEXT NOT NULL, started_ms BIGINT NOT NULL, seen_ms BIGINT NOT NULL
    );
    INSERT INTO caretaker_schema (version) VALUES (1);
",
    "
    ALTER TABLE caretaker_job ADD COLUMN policy TEXT;
    CREATE TABLE caretaker_decision (
        id TEXT PRIMARY KEY, uri TEXT NOT NULL, table_name TEXT NOT NULL, version BIGINT NOT NULL, at_ms BIGINT NOT NULL,
        jobs BIGINT NOT NULL, plan_sha256 TEXT NOT NULL, planner TEXT NOT NULL, policy TEXT NOT NULL, fell_back TEXT,
        candidate TEXT, candidate_said TEXT, body BYTEA NOT NULL, bytes BIGINT NOT NULL
    );
    CREATE INDEX caretaker_decision_uri ON caretaker_decision (uri, id);
    CREATE INDEX caretaker_decision_table ON caretaker_decision (table_name, id);
    CREATE INDEX caretaker_decision_bytes ON caretaker_decision (bytes);
    CREATE INDEX caretaker_decision_by ON caretaker_decision (planner, candidate);
    CREATE TABLE caretaker_plugin (
        sha256 TEXT PRIMARY KEY, name TEXT NOT NULL, version TEXT NOT NULL, file BYTEA NOT NULL,
        bytes BIGINT NOT NULL, loaded_ms BIGINT NOT NULL
    );
    INSERT INTO caretaker_schema (version) VALUES (2);
",
];

/// Brings the database up to date, beside others that do the same.
pub(super) async fn migrate(connection: &mut AnyConnection, store: &Store) -> Result<()> {
    let migrations = store.engine.migrations();
    if version(connection, store).await? == migrations.len() {
        return Ok(());
    }
    let begin = match store.engine {
        Engine::Sqlite => "BEGIN IMMEDIATE".to_string(),
        Engine::Postgres => format!(
            "BEGIN; SELECT pg_advisory_xact_lock({MIGRATION_LOCK}); \
             CREATE TABLE IF NOT EXISTS caretaker_schema (version BIGINT PRIMARY KEY)"
        ),
    };
    run(connection, &begin).await.map_err(|e| store.trouble(e))?;
    let made = async {
        // Another process may have been faster.
        let had = version(connection, store).await?;
        for migration in migrations.iter().skip(had) {
            run(connection, migration).await.map_err(|e| store.trouble(e))?;
        }
        Ok(())
    };
    let made = made.await;
    let end = if made.is_ok() { "COMMIT" } else { "ROLLBACK" };
    let ended = run(connection, end).await.map_err(|e| store.trouble(e));
    made.and(ended)
}

/// A fresh SQLite database.
pub(super) async fn create(connection: &mut AnyConnection) -> sqlx::Result<()> {
    for migration in SQLITE_MIGRATIONS {
        run(connection, migration).await?;
    }
    Ok(())
}

/// How many migrations the database has had.
pub(super) async fn version(connection: &mut AnyConnection, store: &Store) -> Result<usize> {
    let asked = match store.engine {
        Engine::Sqlite => number(connection, "PRAGMA user_version").await,
        Engine::Postgres => match number(connection, "SELECT coalesce(max(version), 0) FROM caretaker_schema").await {
            // No such table: nothing was made yet.
            Err(error) if error.as_database_error().and_then(|e| e.code()).is_some_and(|code| code == "42P01") => Ok(0),
            asked => asked,
        },
    };
    let version = asked.map_err(|e| store.trouble(e))?;
    let known = store.engine.migrations().len();
    match usize::try_from(version) {
        Ok(had) if had <= known => Ok(had),
        _ => Err(Error::Invalid(format!(
            "`{}` was written by a newer Caretaker (schema {version}, this one knows {known}); use that version, or \
             another {}",
            store.place,
            if store.engine == Engine::Sqlite { "folder with --state-dir" } else { "database with --registry" }
        ))),
    }
}
