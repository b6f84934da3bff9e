//! The database: opened, brought to the newest schema, and its troubles in words.
//!
//! One SQL text serves both engines. What they spell differently is written `{so}` and filled in once
//! by [`Store::sql`].

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use sqlx::any::{AnyConnectOptions, AnyPoolOptions};
use sqlx::{Any, AnyConnection, AnyPool, ConnectOptions, Connection, Executor, Row, Transaction};

use super::Place;
use super::schema::{self, POSTGRES, SQLITE};
use crate::error::{Error, Result};

/// How one that ends with the process is called.
pub(super) const MEMORY: &str = "memory";
/// The file in the state folder.
const FILE: &str = "caretaker.sqlite";
/// How long a writer waits for another process.
const BUSY: Duration = Duration::from_secs(10);
/// How long a database that does not answer is waited for, where the question may be asked again.
const PATIENCE: Duration = Duration::from_secs(20);
/// The first pause between two such tries, and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How long a connection to a server may take.
const CONNECT: Duration = Duration::from_secs(5);
/// Connections to a server, of one process.
const CONNECTIONS: u32 = 8;
/// How long an answer of a server may take. A connection that the network cut says nothing, for hours.
const ANSWER: Duration = Duration::from_secs(10);
/// Who gives up waiting after so long does not trust the connections any more.
const SLOW: Duration = Duration::from_secs(3);
/// How long a server keeps the locks of a transaction that nobody is heard of, less than a lease: it can't
/// tell whoever was cut off or stands still from one that thinks.
const SILENT_MS: u64 = 10_000;

/// Which engine it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    Sqlite,
    Postgres,
}

/// An open database.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pool: Arc<Mutex<AnyPool>>,
    /// Makes new connections in place of a pool's whose connections hang.
    options: Option<AnyConnectOptions>,
    pub(super) engine: Engine,
    /// Where it is, for messages; without a password.
    pub(super) place: String,
    /// How it is reached. It may hold a password: never shown.
    pub(super) address: Hidden,
}

/// An address that no message and no log shows.
#[derive(Clone, Default)]
pub(super) struct Hidden(String);

impl std::ops::Deref for Hidden {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Hidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("hidden")
    }
}

impl Store {
    /// Opens the database for reading and writing, and makes what is missing.
    pub(super) async fn open(place: &Place) -> Result<Self> {
        let store = match place {
            Place::Memory => Self::in_memory(),
            Place::Folder(dir) => {
                std::fs::create_dir_all(dir).map_err(|e| {
                    let dir = dir.display();
                    Error::Invalid(format!("can't make the state folder `{dir}`: {e}; name another with --state-dir"))
                })?;
                Self::file(dir, "rwc")?
            }
            Place::Postgres(url) => Self::server(url)?,
        };
        let mut connection = store.connect().await?;
        schema::migrate(&mut connection, &store).await?;
        Ok(store)
    }

    /// Opens the database to look at it only; `None` where there is nothing to see yet.
    pub(super) async fn look(place: &Place) -> Result<Option<Self>> {
        let store = match place {
            Place::Memory => return Ok(None),
            Place::Folder(dir) if !dir.join(FILE).exists() => return Ok(None),
            Place::Folder(dir) => Self::file(dir, "ro")?,
            Place::Postgres(url) => Self::server(url)?,
        };
        let had = schema::version(&mut *store.connect().await?, &store).await?;
        // One that an older version left is brought up to date by the next process that writes.
        Ok((had == store.engine.migrations().len()).then_some(store))
    }

    /// A database that ends with the process. It is made when it is first used.
    pub(super) fn in_memory() -> Self {
        sqlx::any::install_default_drivers();
        let fresh = one().after_connect(|connection, _| {
            Box::pin(async move {
                let made = schema::create(connection).await;
                made.map_err(|e| sqlx::Error::Configuration(e.into()))
            })
        });
        let options = options("sqlite::memory:").unwrap_or_else(|e| unreachable!("it is a constant: {e}"));
        let pool = fresh.connect_lazy_with(options);
        Self::of(pool, Engine::Sqlite, MEMORY.into())
    }

    fn file(dir: &Path, mode: &str) -> Result<Self> {
        sqlx::any::install_default_drivers();
        let file = dir.join(FILE);
        let place = file.display().to_string();
        let path = file.to_str().ok_or_else(|| Error::Invalid(format!("`{place}` is not UTF-8")))?;
        let escaped = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
        let options = options(&format!("sqlite://{escaped}?mode={mode}")).map_err(|e| trouble(&place, e))?;
        let writes = mode != "ro";
        let pool = one().after_connect(move |connection, _| {
            Box::pin(async move {
                connection.execute(format!("PRAGMA busy_timeout = {}", BUSY.as_millis()).as_str()).await?;
                if writes {
                    // What is wrong with the file the first statement on it says better.
                    let _ = connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL").await;
                }
                Ok(())
            })
        });
        // On a full disk SQLite rolls back by itself, and the driver takes the transaction for open ever after.
        let pool = pool.before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }));
        Ok(Self::of(pool.connect_lazy_with(options), Engine::Sqlite, place))
    }

    fn server(address: &str) -> Result<Self> {
        sqlx::any::install_default_drivers();
        let mut url = parse(address)?;
        let place = masked(&url);
        // Statements that a connection remembers are of no use behind a pooler that changes it under them.
        if !url.query_pairs().any(|(key, _)| key == "statement-cache-capacity") {
            url.query_pairs_mut().append_pair("statement-cache-capacity", "0");
        }
        if !url.query_pairs().any(|(key, _)| key == "application_name") {
            url.query_pairs_mut().append_pair("application_name", "caretaker");
        }
        let options = options(url.as_str()).map_err(|e| trouble(&place, e))?;
        let store = Self::of(several(&options), Engine::Postgres, place);
        Ok(Self { options: Some(options), address: Hidden(url.into()), ..store })
    }

    fn of(pool: AnyPool, engine: Engine, place: String) -> Self {
        Self { pool: Arc::new(Mutex::new(pool)), options: None, engine, place, address: Hidden::default() }
    }

    /// The connections.
    pub(super) fn pool(&self) -> AnyPool {
        self.pool.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    async fn connect(&self) -> Result<sqlx::pool::PoolConnection<Any>> {
        self.pool().acquire().await.map_err(|e| self.trouble(e))
    }

    /// A statement in this engine's words.
    pub(super) fn sql(&self, text: &str) -> String {
        match self.engine {
            Engine::Sqlite => text.replace("{now}", SQLITE.now).replace("{skip}", SQLITE.skip),
            Engine::Postgres => text.replace("{now}", POSTGRES.now).replace("{skip}", POSTGRES.skip),
        }
    }

    /// Begins a transaction that writes.
    pub(super) async fn begin(&self) -> sqlx::Result<Transaction<'static, Any>> {
        match self.engine {
            // One that reads before it writes would have to begin anew when another was faster.
            Engine::Sqlite => self.pool().begin_with("BEGIN IMMEDIATE").await,
            Engine::Postgres => {
                let begin = format!("BEGIN; SET LOCAL idle_in_transaction_session_timeout = {SILENT_MS}");
                self.pool().begin_with(begin).await
            }
        }
    }

    /// The database's own time: that of machines differs, and leases are compared.
    pub(super) async fn now(&self, connection: &mut AnyConnection) -> sqlx::Result<i64> {
        sqlx::query_scalar(&self.sql("SELECT {now}")).fetch_one(connection).await
    }

    /// Asks again, for a while, where the database does not answer: it restarts, or the network does.
    /// Only for what may be done twice.
    pub(super) async fn again<'a, T>(&self, ask: impl Fn() -> BoxFuture<'a, sqlx::Result<T>>) -> Result<T> {
        let until = tokio::time::Instant::now() + PATIENCE;
        let mut pause = PAUSE.0;
        loop {
            let error = match self.once(ask()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let passing = matches!(error, Error::Away(_));
            if !passing || tokio::time::Instant::now() + pause > until {
                return Err(error);
            }
            tracing::debug!(%error, "asking the registry again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// Asks, and waits a bounded time for the answer.
    pub(super) async fn once<T>(&self, ask: impl Future<Output = sqlx::Result<T>>) -> Result<T> {
        self.timely(ask).await.map_err(|e| self.trouble(e))
    }

    /// The same, with the engine's own error. Where no answer came it may be done all the same.
    pub(super) async fn timely<T>(&self, ask: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
        let Some(options) = &self.options else { return ask.await };
        let mut asked = Asked { store: self, options, pool: self.pool(), since: Instant::now(), answered: false };
        let answer = tokio::time::timeout(ANSWER, ask).await;
        asked.answered = answer.is_ok();
        let late = || std::io::Error::other(format!("no answer within {} s", ANSWER.as_secs()));
        answer.unwrap_or_else(|_| Err(late().into()))
    }

    pub(super) fn trouble(&self, error: sqlx::Error) -> Error {
        trouble(&self.place, error)
    }
}

/// A question that is out.
struct Asked<'a> {
    store: &'a Store,
    options: &'a AnyConnectOptions,
    pool: AnyPool,
    since: Instant,
    answered: bool,
}

impl Drop for Asked<'_> {
    /// A connection that hangs holds its place in the pool, also when nobody waits for it: once all hang,
    /// nothing could be asked any more, though the server is back.
    fn drop(&mut self) {
        if self.answered || self.since.elapsed() < SLOW {
            return;
        }
        let mut pool = self.store.pool.lock().unwrap_or_else(|e| e.into_inner());
        // Another may have been faster.
        if std::ptr::eq(pool.options(), self.pool.options()) {
            *pool = several(self.options);
        }
    }
}

impl Engine {
    pub(super) fn migrations(self) -> &'static [&'static str] {
        match self {
            Self::Sqlite => schema::SQLITE_MIGRATIONS,
            Self::Postgres => schema::POSTGRES_MIGRATIONS,
        }
    }
}

/// One connection: SQLite has one writer anyway, and so nobody here ever finds it locked by a neighbour.
fn one() -> AnyPoolOptions {
    // With a thousand evaluations at once each waits its turn, which is nothing to warn of.
    let quiet = AnyPoolOptions::new().acquire_slow_level(log::LevelFilter::Off);
    quiet.max_connections(1).idle_timeout(None).max_lifetime(None).test_before_acquire(false)
}

/// Connections to a server.
fn several(options: &AnyConnectOptions) -> AnyPool {
    let pool = AnyPoolOptions::new().max_connections(CONNECTIONS).acquire_timeout(CONNECT);
    pool.acquire_slow_level(log::LevelFilter::Off).connect_lazy_with(options.clone())
}

fn options(url: &str) -> sqlx::Result<AnyConnectOptions> {
    let parsed: AnyConnectOptions = url.parse()?;
    Ok(parsed.log_statements(log::LevelFilter::Trace).log_slow_statements(log::LevelFilter::Debug, BUSY))
}

/// A server's address.
pub(super) fn parse(address: &str) -> Result<url::Url> {
    let url = url::Url::parse(address).ok().filter(|url| matches!(url.scheme(), "postgres" | "postgresql"));
    // What does not parse is not shown: it may hold a password.
    url.ok_or_else(|| {
        Error::Invalid(
            "the registry's address is not understood; write postgres://user@host:5432/database, or leave it out for a \
             file in the state folder"
                .into(),
        )
    })
}

/// An address without its secrets: those of the user's part, and of every option.
pub(super) fn masked(url: &url::Url) -> String {
    let (scheme, host) = (url.scheme(), url.host_str().unwrap_or_default());
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{scheme}://{host}{port}{}", url.path())
}

/// An error of the database by what to do about it.
pub(super) fn trouble(place: &str, error: sqlx::Error) -> Error {
    let code = error.as_database_error().and_then(|e| e.code()).map(|code| code.into_owned());
    if place.starts_with("postgres") {
        return of_postgres(place, code.as_deref(), error);
    }
    // The low byte is the kind, the rest of it the detail.
    match code.and_then(|code| code.parse::<i32>().ok()).map(|code| code & 0xff) {
        Some(5 | 6) => {
            Error::Retry(format!("`{place}` is in use by another process for {} s: {error}", BUSY.as_secs()))
        }
        Some(8 | 14 | 23) => Error::Invalid(format!(
            "`{place}` can't be opened for writing: {error}; give this user write access to the file and its folder, \
             or name another with --state-dir"
        )),
        Some(11 | 26) => Error::Invalid(format!(
            "`{place}` is damaged or no SQLite file: {error}; move it away, and the registry begins anew"
        )),
        Some(10 | 13) => Error::Retry(format!("`{place}` can't be written: {error}")),
        _ if matches!(error, sqlx::Error::PoolTimedOut) => Error::Retry(format!("`{place}` is too busy: {error}")),
        _ => Error::Fatal(format!("`{place}`: {error}")),
    }
}

/// By SQLSTATE, <https://www.postgresql.org/docs/current/errcodes-appendix.html>.
fn of_postgres(place: &str, code: Option<&str>, error: sqlx::Error) -> Error {
    match code {
        Some("28P01" | "28000") => Error::Invalid(format!(
            "the registry `{place}` does not let this user in: {error}; check the user and password of --registry"
        )),
        Some("3D000") => Error::Invalid(format!("the registry `{place}`: {error}; make it with `createdb`")),
        Some("42501" | "25006") => Error::Invalid(format!(
            "the registry `{place}` can't be written: {error}; the user needs to create and change tables there"
        )),
        Some("53100") => Error::Away(format!("the registry `{place}` is full: {error}")),
        // Deadlocks, too many connections, shutting down, starting up, and a transaction that was silent too long.
        Some(code) if code == "25P03" || ["40", "53", "57", "58", "08"].iter().any(|class| code.starts_with(class)) => {
            Error::Away(format!("the registry `{place}` does not answer: {error}"))
        }
        Some(_) => Error::Fatal(format!("the registry `{place}`: {error}")),
        None => match error {
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                Error::Away(format!("the registry `{place}` can't be reached: {error}"))
            }
            sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) => {
                Error::Invalid(format!("the registry `{place}` can't be connected to: {error}"))
            }
            other => Error::Fatal(format!("the registry `{place}`: {other}")),
        },
    }
}

/// Runs a text of several statements.
pub(super) async fn run(connection: &mut AnyConnection, sql: &str) -> sqlx::Result<()> {
    // The trait's own method gives a boxed future, which the hook of a pool can hold.
    connection.execute(sql).await.map(drop)
}

/// One number.
pub(super) async fn number(connection: &mut AnyConnection, sql: &str) -> sqlx::Result<i64> {
    connection.fetch_one(sql).await?.try_get(0)
}

/// The integers of databases have a sign. Versions and times are far from the end of either.
pub(super) fn int(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

pub(super) fn uint(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}
