//! Jobs that do nothing through the registry, beside the engine's own minimum: the same jobs through a
//! bare table, with one statement each to put, take and end one.
//!
//! `cargo bench -p caretaker-benches --bench registry [-- JOBS]`. Both engines, both ways in turns in one
//! run. The time is the database's: an unoptimized build shows about the same. PostgreSQL runs without
//! fsync, SQLite with `synchronous = NORMAL`.

#[path = "../../executor/src/registry/server.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use executor::catalog::TableRef;
use executor::registry::{Ended, Filter, NewJob, Place, Queued, Registry, Ring, State, Want};
use executor::report::{JobEnd, JobReport};
use planner::job::JobSpec;
use planner::policy::Policy;
use sqlx::AnyPool;

const JOBS: usize = 1_000;
const WORKERS: usize = 4;
const LATENCIES: usize = 200;
const FINISHED: usize = 100_000;
const PAGES: usize = 50;

fn main() {
    let wanted = std::env::args().skip(1).find_map(|text| text.parse().ok());
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    runtime.block_on(bench(wanted.unwrap_or(JOBS)));
}

async fn bench(jobs: usize) {
    println!("{jobs} jobs that do nothing, {WORKERS} workers; jobs a second, beside a bare table of the same engine");
    println!("{:12} {:>10} {:>10} {:>7}  {:>10} {:>10} {:>7}", "", "enqueue", "bare", "ratio", "work", "bare", "ratio");
    for engine in ["SQLite", "PostgreSQL"] {
        let dir = tempfile::tempdir().expect("a folder");
        let (place, address) = match engine {
            "SQLite" => {
                let file = dir.path().join("caretaker.sqlite");
                (Place::Folder(dir.path().into()), format!("sqlite://{}?mode=rwc", file.display()))
            }
            _ => {
                let address = server::database().await;
                (Place::Postgres(address.clone()), address)
            }
        };
        let registry = Registry::open(&place).await.expect("it opens");
        sqlx::any::install_default_drivers();
        let connections = if engine == "SQLite" { 1 } else { 8 };
        let pool = sqlx::any::AnyPoolOptions::new().max_connections(connections).connect(&address).await;
        let pool = pool.expect("it connects");
        let (put, work) = through_registry(&registry, jobs).await;
        let (bare_put, bare_work) = bare(&pool, engine, jobs).await;
        let rate = |time: Duration| jobs as f64 / time.as_secs_f64();
        println!(
            "{engine:12} {:>10.0} {:>10.0} {:>6.1}x  {:>10.0} {:>10.0} {:>6.1}x",
            rate(put),
            rate(bare_put),
            put.as_secs_f64() / bare_put.as_secs_f64(),
            rate(work),
            rate(bare_work),
            work.as_secs_f64() / bare_work.as_secs_f64(),
        );
        let waits = latencies(&registry).await;
        println!("{:12} from enqueued to claimed by a worker that waits: {}", "", shown(&waits));
        fill(&pool, engine).await;
        println!("{:12} a page of 50 of {FINISHED} finished jobs:", "");
        for (name, filter) in filters(&registry).await {
            println!("{:12}   {name:28} {}", "", shown(&pages(&registry, &filter).await));
        }
    }
}

fn job(n: usize) -> NewJob {
    let table = TableRef { name: format!("t{n}"), uri: format!("/db/t{n}.lance") };
    NewJob::planned(&table, &JobSpec::Remap { indexes: Vec::new() }, &Policy::default()).expect("it can be written")
}

fn want(worker: usize) -> Want {
    let (worker, root) = (format!("w{worker}"), String::new());
    Want { worker, free_bytes: 1 << 40, folds: true, any: true, root, parent: None }
}

async fn end(registry: &Registry, want: &Want) -> bool {
    let Some(claim) = registry.claim(want, 1 << 30).await.expect("it answers") else { return false };
    for job in &claim.jobs {
        let report = JobReport::new(&job.kind, Vec::new(), 1, JobEnd::Remapped);
        registry.finish(job, &Ended::Report(Box::new(report))).await.expect("it answers");
    }
    true
}

/// Times to put the jobs in one by one, and to work them off.
async fn through_registry(registry: &Registry, jobs: usize) -> (Duration, Duration) {
    let began = Instant::now();
    for n in 0..jobs {
        let queued = registry.enqueue(vec![job(n)], 0).await.expect("it answers");
        assert!(matches!(queued[..], [Queued::Yes(_)]));
    }
    let (put, began) = (began.elapsed(), Instant::now());
    let done = Arc::new(AtomicUsize::new(0));
    let workers = (0..WORKERS).map(|n| {
        let (registry, done) = (registry.clone(), done.clone());
        tokio::spawn(async move {
            while end(&registry, &want(n)).await {
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("no panic");
    }
    assert_eq!(done.load(Ordering::Relaxed), jobs);
    (put, began.elapsed())
}

/// The same with three statements and nothing else: no event, no key, no lane, no lease.
async fn bare(pool: &AnyPool, engine: &str, jobs: usize) -> (Duration, Duration) {
    let run = async |sql: String| sqlx::query(&sql).execute(pool).await.expect("it answers").rows_affected();
    run("CREATE TABLE bare (id BIGINT PRIMARY KEY, state TEXT NOT NULL, spec TEXT NOT NULL)".into()).await;
    run("CREATE INDEX bare_waiting ON bare (id) WHERE state = 'pending'".into()).await;
    let began = Instant::now();
    for n in 0..jobs {
        run(format!("INSERT INTO bare (id, state, spec) VALUES ({n}, 'pending', '{{}}')")).await;
    }
    let (put, began) = (began.elapsed(), Instant::now());
    let skip = if engine == "SQLite" { "" } else { "FOR UPDATE SKIP LOCKED" };
    let claim = format!(
        "UPDATE bare SET state = 'running' WHERE id = \
         (SELECT id FROM bare WHERE state = 'pending' ORDER BY id LIMIT 1 {skip}) RETURNING id"
    );
    let workers = (0..WORKERS).map(|_| {
        let (pool, claim) = (pool.clone(), claim.clone());
        tokio::spawn(async move {
            while let Some(id) = sqlx::query_scalar::<_, i64>(&claim).fetch_optional(&pool).await.expect("it answers") {
                let done = "UPDATE bare SET state = 'done' WHERE id = $1";
                sqlx::query(done).bind(id).execute(&pool).await.expect("it answers");
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("no panic");
    }
    (put, began.elapsed())
}

/// How long a job waits for a worker that waits for it.
async fn latencies(registry: &Registry) -> Vec<Duration> {
    let mut bell = registry.listen();
    let worker = registry.clone();
    let (sender, mut claimed) = tokio::sync::mpsc::channel(1);
    let waiting = tokio::spawn(async move {
        let mut bell = worker.listen();
        while let Ok(ring) = bell.recv().await {
            if ring == Ring::Waiting
                && let Some(claim) = worker.claim(&want(0), 1 << 30).await.expect("it answers")
            {
                let at = Instant::now();
                let report = JobReport::new("remap", Vec::new(), 1, JobEnd::Remapped);
                worker.finish(&claim.jobs[0], &Ended::Report(Box::new(report))).await.expect("it answers");
                if sender.send(at).await.is_err() {
                    return;
                }
            }
        }
    });
    let mut waits = Vec::new();
    for n in 0..LATENCIES {
        let began = Instant::now();
        registry.enqueue(vec![job(n)], 0).await.expect("it answers");
        waits.push(claimed.recv().await.expect("it claims").duration_since(began));
        while bell.try_recv().is_ok() {}
    }
    waiting.abort();
    waits
}

/// Finished jobs of a hundred tables.
async fn fill(pool: &AnyPool, engine: &str) {
    let numbers = match engine {
        "SQLite" => format!("WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {FINISHED})"),
        _ => format!("WITH n AS (SELECT generate_series(1, {FINISHED}) AS n)"),
    };
    let id = match engine {
        "SQLite" => "printf('01900000-0000-7000-8000-%012x', n)",
        _ => "'01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0')",
    };
    let sql = format!(
        "INSERT INTO caretaker_job (id, kind, table_name, uri, open_key, state, priority, spec, seen, need_bytes, \
             size_bytes, created_ms, run_at_ms, started_ms, ended_ms, attempt, rows_done, rows_total, outcome, result)
         {numbers} SELECT {id}, CASE n % 3 WHEN 0 THEN 'compact' ELSE 'remap' END, 't' || (n % 100),
             '/db/t' || (n % 100), 'k' || n, CASE n % 50 WHEN 0 THEN 'failed' ELSE 'succeeded' END, 1, '{{}}', '', 0, 0, n,
             n, n, n, 1, 0, 0, 'done', '{{}}' FROM n"
    );
    // In SQLite the common table stands before the insert's select, which it allows.
    sqlx::query(&sql).execute(pool).await.expect("it answers");
    if engine != "SQLite" {
        sqlx::query("ANALYZE caretaker_job").execute(pool).await.expect("it answers");
    }
}

async fn filters(registry: &Registry) -> Vec<(&'static str, Filter)> {
    let page = Filter { limit: 50, ..Filter::default() };
    let middle = "01900000-0000-7000-8000-00000000c350".to_string();
    assert!(registry.job(&middle).await.expect("it answers").is_some());
    vec![
        ("the newest", page.clone()),
        ("from the middle", Filter { before: Some(middle), ..page.clone() }),
        ("of a table", Filter { table: Some("t7".into()), ..page.clone() }),
        ("of a type that failed", Filter { kind: Some("compact".into()), states: vec![State::Failed], ..page.clone() }),
        ("of a table that is not there", Filter { table: Some("none".into()), ..page }),
    ]
}

async fn pages(registry: &Registry, filter: &Filter) -> Vec<Duration> {
    let mut times = Vec::new();
    for _ in 0..PAGES {
        let began = Instant::now();
        registry.jobs(filter).await.expect("it answers");
        times.push(began.elapsed());
    }
    times
}

fn shown(times: &[Duration]) -> String {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let at = |percent: usize| sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)].as_secs_f64() * 1_000.0;
    format!("p50 {:.1} ms, p99 {:.1} ms", at(50), at(99))
}
