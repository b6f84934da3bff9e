//! The whole loop on real tables, seen from outside: by what is written and by what HTTP says.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_schema::{DataType, Field, Schema};
use caretaker_tests::{Lsm, Options, column, rows};
use executor::catalog::{Root, TableRef};
use executor::fault::hook;
use executor::pod::{Bounds, Pod, Pressure};
use executor::registry::{Filter, Member, NewJob, Place, Registry, Role, State};
use executor::serve::{Door, Service};
use executor::table::session;
use executor::tend::Tender;
use executor::worker::Limits;
use lance::Dataset;
use lance::dataset::{WriteMode, WriteParams};
use planner::job::JobSpec;
use planner::policy::{AgentPolicy, CleanupPolicy, Policy};
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// No wait of a test is longer, and none is a failure before.
const DEADLINE: Duration = Duration::from_secs(60);
const HOUR_MS: u64 = 3_600_000;

/// Ticks fast, and sweeps never again: whatever is seen after the start was noticed.
fn quick() -> Policy {
    let agent =
        AgentPolicy { tick_ms: 20, sweep_ms: HOUR_MS, timeout_ms: 2_000, backoff_ms: 200, ..AgentPolicy::default() };
    Policy { tick_ms: 50, trigger_count: 1, retire_delay_ms: 0, agent, ..Policy::default() }
}

/// A server in this process, and what it answers.
struct Serving {
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<executor::error::Result<()>>,
}

impl Serving {
    async fn of(root: &Path, policy: Policy, history: Registry) -> Self {
        Self::within(root, policy, history, Limits { jobs: 2, folds: 2, memory_bytes: 1 << 32, own: 0 }).await
    }

    async fn within(root: &Path, policy: Policy, history: Registry, limits: Limits) -> Self {
        let (stop, session) = (CancellationToken::new(), session());
        let drained = CancellationToken::new();
        let mut tender = Tender::new(policy, session.clone(), drained.clone());
        tender.registry = history;
        if limits.own == 0 {
            tender = tender.offloaded();
        }
        let service = Service {
            root: Root::parse(root.to_str().unwrap()).unwrap(),
            session,
            tender: Arc::new(tender),
            member: Member::here(Role::Agent, root.to_str().unwrap()),
            limits,
            pod: Arc::new(Pod::new(Pressure::new(Bounds::default()))),
            drained,
            listen: Some(Door::local("127.0.0.1:0".parse().unwrap())),
        };
        let (bound, address) = tokio::sync::oneshot::channel();
        let until = stop.clone();
        let served = tokio::spawn(async move { service.run_at(until, |at| bound.send(at).expect("it waits")).await });
        Self { address: address.await.expect("it listens"), stop, served }
    }

    /// Status and body of a request.
    async fn ask(&self, request: &str) -> (u16, String) {
        let (address, request) = (self.address, format!("{request} HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n"));
        let answer = tokio::task::spawn_blocking(move || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let answer = answer.await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_string())
    }

    /// The value of a series, written as it stands in the text.
    async fn metric(&self, series: &str) -> Option<f64> {
        let (status, text) = self.ask("GET /metrics").await;
        assert_eq!(status, 200, "{text}");
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    /// Waits until a series has the value, or is gone.
    async fn until(&self, series: &str, wanted: impl Fn(Option<f64>) -> bool) {
        let began = Instant::now();
        loop {
            let value = self.metric(series).await;
            if wanted(value) {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{series} stays at {value:?}: {}", self.ask("GET /metrics").await.1);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(DEADLINE, self.served).await.expect("it stops").unwrap().unwrap();
    }
}

fn table(metric: &str, name: &str) -> String {
    format!("caretaker_table_{metric}{{table=\"{name}\"}}")
}

/// Writes rows into a plain table, which is made where there is none.
async fn write(root: &Path, name: &str, wanted: Value) -> String {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, true)]));
    let uri = root.join(format!("{name}.lance")).to_str().unwrap().to_string();
    let mode = if Path::new(&uri).exists() { WriteMode::Append } else { WriteMode::Create };
    let reader = arrow_array::RecordBatchIterator::new([Ok(rows(&schema, &wanted))], schema.clone());
    let params = WriteParams { mode, ..WriteParams::default() };
    Dataset::write(reader, &uri, Some(params)).await.unwrap();
    uri
}

async fn lsm() -> Lsm {
    let fields = vec![column("id", DataType::Int64), column("v", DataType::Utf8)];
    Lsm::create(fields, &["id"], json!([]), Options::default()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_1_the_walk_notices_an_sstable_and_the_stop_waits_for_the_fold() {
    let (mut t, state) = (lsm().await, tempfile::tempdir().unwrap());
    let history = Registry::open(&Place::Folder(state.path().into())).await.unwrap();
    let serving = Serving::of(t.dir.path(), quick(), history.clone()).await;
    serving.until(&table("version", "t"), |v| v.is_some()).await;
    assert_eq!(serving.ask("GET /healthz").await, (200, "ok\n".into()));
    assert_eq!(serving.ask("GET /readyz").await, (200, "ready\n".into()));
    let (began, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (at, on) = (began.clone(), go.clone());
    let wait = move || -> futures::future::BoxFuture<'static, ()> {
        let (at, on) = (at.clone(), on.clone());
        Box::pin(async move {
            at.notify_one();
            on.notified().await;
        })
    };
    hook(&t.uri, "fold.written", Some(Arc::new(wait)));
    // A shard's manifest is no version of the base: no file event tells of it.
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    tokio::time::timeout(DEADLINE, began.notified()).await.expect("the walk noticed");
    serving.until("caretaker_registry_jobs{state=\"running\"}", |n| n == Some(1.0)).await;
    serving.stop.cancel();
    let begun = Instant::now();
    while serving.ask("GET /readyz").await.0 != 503 {
        assert!(begun.elapsed() < DEADLINE);
    }
    assert!(!serving.served.is_finished(), "it waits for the fold");
    hook(&t.uri, "fold.written", None);
    go.notify_one();
    serving.end().await;
    assert_eq!((t.compacted().await, t.base().await.len()), (1, 1));
    let results = Registry::look(&Place::Folder(state.path().into())).await.unwrap().results(&t.uri, 9).await.unwrap();
    assert_eq!(
        results.iter().map(|r| (r.job.as_str(), r.outcome.as_str())).collect::<Vec<_>>(),
        [("memwal_compaction", "done")]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_nobody_writes_is_looked_at_and_not_evaluated_again() {
    let mut t = lsm().await;
    write(t.dir.path(), "a b", json!([{"id": 1}])).await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    let lazy = Policy { trigger_count: 9, ..quick() };
    let serving = Serving::of(t.dir.path(), lazy, Registry::default()).await;
    let done = "caretaker_evaluations_total{outcome=\"done\"}";
    serving.until(done, |n| n >= Some(2.0)).await;
    let (evaluated, walked) = (serving.metric(done).await, serving.metric("caretaker_walks_total").await.unwrap());
    serving.until("caretaker_walks_total", |n| n >= Some(walked + 3.0)).await;
    assert_eq!(serving.metric(done).await, evaluated);
    serving.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_job_left_to_do_is_found_by_the_evaluation_after_it() {
    let mut t = lsm().await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    t.close_writer().await;
    let serving = Serving::of(t.dir.path(), quick(), Registry::default()).await;
    serving.until("caretaker_jobs_total{outcome=\"done\",type=\"memwal_retire\"}", |n| n == Some(1.0)).await;
    serving.until(&table("unfolded_sstables", "t"), |n| n == Some(0.0)).await;
    assert!(t.listed().await.is_empty());
    // It comes to rest: no further job, though the fold and the retirement have changed the table.
    serving.until("caretaker_registry_jobs{state=\"running\"}", |n| n == Some(0.0)).await;
    assert_eq!(serving.metric("caretaker_jobs_total{outcome=\"done\",type=\"memwal_compaction\"}").await, Some(1.0));
    serving.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r4_2_a_restart_does_not_forget_the_last_cleanup() {
    let (root, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for id in 0..4 {
        write(root.path(), "t", json!([{"id": id}])).await;
    }
    let cleanup = CleanupPolicy { min_age_ms: 1, initial_version: 2, ..CleanupPolicy::default() };
    let policy = Policy { cleanup, ..quick() };
    let series = "caretaker_jobs_total{outcome=\"done\",type=\"cleanup\"}";
    let serve = async |history| {
        let serving = Serving::of(root.path(), policy.clone(), history).await;
        serving.until(&table("version", "t"), |v| v.is_some()).await;
        serving
    };
    let history = async || Registry::open(&Place::Folder(state.path().into())).await.unwrap();
    let first = serve(history().await).await;
    first.until(series, |n| n == Some(1.0)).await;
    first.end().await;
    let again = serve(history().await).await;
    again.until("caretaker_walks_total", |n| n >= Some(3.0)).await;
    assert_eq!(again.metric(series).await, None, "it was cleaned up before");
    again.end().await;
    let forgetful = serve(Registry::default()).await;
    forgetful.until(series, |n| n == Some(1.0)).await;
    forgetful.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_2_an_evaluation_that_hangs_or_panics_fails_alone_and_is_tried_again() {
    let root = tempfile::tempdir().unwrap();
    let uris = [write(root.path(), "hangs", json!([{"id": 1}])).await, write(root.path(), "dies", json!([])).await];
    write(root.path(), "works", json!([{"id": 1}])).await;
    hook(&uris[0], "evaluate.before", Some(Arc::new(|| Box::pin(std::future::pending()))));
    hook(&uris[1], "evaluate.before", Some(Arc::new(|| Box::pin(async { panic!("on purpose") }))));
    let serving = Serving::of(root.path(), quick(), Registry::default()).await;
    for name in ["hangs", "dies"] {
        serving.until(&table("failures", name), |n| n.is_some_and(|n| n >= 2.0)).await;
        assert_eq!(serving.metric(&table("version", name)).await, None);
    }
    serving.until(&table("version", "works"), |v| v == Some(1.0)).await;
    serving.until("lance_agent_coverage_never_evaluated", |n| n == Some(2.0)).await;
    assert!(serving.metric("caretaker_evaluations_total{outcome=\"timeout\"}").await >= Some(2.0));
    // A write to the third is noticed while the two fail.
    write(root.path(), "works", json!([{"id": 2}])).await;
    serving.until(&table("version", "works"), |v| v == Some(2.0)).await;
    uris.iter().for_each(|uri| hook(uri, "evaluate.before", None));
    for name in ["hangs", "dies"] {
        serving.until(&table("version", name), |v| v == Some(1.0)).await;
        assert_eq!(serving.metric(&table("failures", name)).await, Some(0.0));
    }
    serving.until("lance_agent_coverage_never_evaluated", |n| n == Some(0.0)).await;
    serving.until("lance_agent_coverage_cycles_completed_total", |n| n >= Some(1.0)).await;
    serving.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn r5_2_tables_come_and_go_and_so_do_their_series() {
    let root = tempfile::tempdir().unwrap();
    for name in ["stays", "goes"] {
        write(root.path(), name, json!([{"id": 1}])).await;
    }
    let serving = Serving::of(root.path(), quick(), Registry::default()).await;
    serving.until(&table("version", "goes"), |v| v.is_some()).await;
    std::fs::remove_dir_all(root.path().join("goes.lance")).unwrap();
    serving.until(&table("failures", "goes"), |v| v.is_none()).await;
    write(root.path(), "comes", json!([{"id": 1}])).await;
    serving.until(&table("version", "comes"), |v| v == Some(1.0)).await;
    assert_eq!(serving.metric("caretaker_tables").await, Some(2.0));
    serving.until("lance_agent_coverage_never_evaluated", |n| n == Some(0.0)).await;
    serving.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_walk_off_file_events_and_the_hook_still_tell_of_a_write() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "a b", json!([{"id": 1}])).await;
    let serving = Serving::of(root.path(), Policy { tick_ms: 0, ..quick() }, Registry::default()).await;
    serving.until(&table("version", "a b"), |v| v == Some(1.0)).await;
    write(root.path(), "a b", json!([{"id": 2}])).await;
    serving.until(&table("version", "a b"), |v| v == Some(2.0)).await;
    let done = "caretaker_evaluations_total{outcome=\"done\"}";
    let before = serving.metric(done).await.unwrap();
    assert_eq!(serving.ask("POST /v1/table/a%20b/evaluate").await.0, 202);
    serving.until(done, |n| n > Some(before)).await;
    let (status, why) = serving.ask("POST /v1/table/none/evaluate").await;
    assert_eq!((status, why.contains("`none`")), (404, true), "{why}");
    assert!(serving.metric("caretaker_object_store_requests_total{op=\"read\"}").await > Some(0.0));
    serving.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_keeps_failing_waits_longer_each_time_and_the_table_is_still_covered() {
    let mut t = lsm().await;
    t.sstable(json!([{"id": 1, "v": "a"}])).await;
    hook(&t.uri, "fold.written", Some(Arc::new(|| Box::pin(async { panic!("on purpose") }))));
    let mut policy = quick();
    (policy.agent.backoff_ms, policy.agent.sweep_ms) = (1_000, HOUR_MS);
    let serving = Serving::of(t.dir.path(), policy, Registry::default()).await;
    let failed = "caretaker_jobs_total{outcome=\"failed\",type=\"memwal_compaction\"}";
    let began = Instant::now();
    serving.until(failed, |n| n >= Some(2.0)).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "the second try came at once");
    serving.until("lance_agent_coverage_never_evaluated", |n| n == Some(0.0)).await;
    hook(&t.uri, "fold.written", None);
    serving.until("caretaker_jobs_total{outcome=\"done\",type=\"memwal_compaction\"}", |n| n == Some(1.0)).await;
    serving.end().await;
    assert_eq!(t.base().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn r2_6_without_remote_maintenance_two_folds_run_at_once_and_with_it_as_many_as_there_are_places() {
    for (own, most) in [(2, 2), (0, 4)] {
        let root = tempfile::tempdir().unwrap();
        let mut tables = Vec::new();
        for n in 0..4 {
            let (mut t, at) = (lsm().await, root.path().join(format!("t{n}.lance")));
            t.sstable(json!([{"id": 1, "v": "a"}])).await;
            std::os::unix::fs::symlink(&t.uri, &at).unwrap();
            tables.push((t, at.to_str().unwrap().to_string()));
        }
        // Each waits until as many as may are there, and those that come later see that they are few.
        let (here, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        for (_, uri) in &tables {
            let (here, go) = (here.clone(), go.clone());
            let wait = move || -> futures::future::BoxFuture<'static, ()> {
                let (here, go) = (here.clone(), go.clone());
                Box::pin(async move {
                    assert!(here.fetch_add(1, Ordering::SeqCst) < most, "more folds at once than may be");
                    go.acquire().await.expect("open").forget();
                    here.fetch_sub(1, Ordering::SeqCst);
                })
            };
            hook(uri, "fold.written", Some(Arc::new(wait)));
        }
        let limits = Limits { jobs: 8, folds: 8, memory_bytes: 1 << 33, own };
        let serving = Serving::within(root.path(), quick(), Registry::default(), limits).await;
        let began = Instant::now();
        while here.load(Ordering::SeqCst) < most {
            assert!(began.elapsed() < DEADLINE, "{} folds run", here.load(Ordering::SeqCst));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        go.add_permits(4);
        let done = "caretaker_jobs_total{outcome=\"done\",type=\"memwal_compaction\"}";
        serving.until(done, |n| n == Some(4.0)).await;
        serving.end().await;
        for (t, uri) in &tables {
            hook(uri, "fold.written", None);
            assert_eq!(t.base().await.len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_work_is_not_of_its_type_fails_once_and_is_not_taken_again_and_again() {
    let (root, registry) = (tempfile::tempdir().unwrap(), Registry::default());
    let table = TableRef { name: "t".into(), uri: write(root.path(), "t", json!([{"id": 1}])).await };
    let spec = JobSpec::CatchUp { kind: "btree".into(), indexes: Vec::new() };
    let odd = NewJob { kind: "odd".into(), ..NewJob::planned(&table, &spec, &quick()).unwrap() };
    registry.enqueue(vec![odd], 0).await.unwrap();
    let serving = Serving::of(root.path(), quick(), registry.clone()).await;
    let ended = async || registry.jobs(&Filter::default()).await.unwrap().remove(0);
    let began = Instant::now();
    while !ended().await.state.is_end() {
        assert!(began.elapsed() < DEADLINE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let job = ended().await;
    let why = job.failure.expect("it says why").message;
    assert!(job.state == State::Failed && job.attempt == 1 && why.contains("none of type `odd`"), "{why}");
    serving.end().await;
}
