//! A large job in parts: several workers, one commit, and nothing left behind whatever happens to them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arrow_schema::{DataType, Field, Schema};
use caretaker_tests::{column, rows, sorted};
use executor::catalog::TableRef;
use executor::fault::hook;
use executor::registry::{Answer, Claim, Filter, Job, NewJob, Place, Queued, Registry, State, Want};
use executor::report::{JobEnd, JobReport};
use executor::run::Progress;
use executor::table::session;
use executor::tend::Tender;
use futures::TryStreamExt;
use lance::Dataset;
use lance::dataset::{WriteMode, WriteParams};
use lance::index::DatasetIndexExt;
use lance_index::IndexType;
use lance_index::scalar::{BuiltinIndexType, FullTextSearchQuery, InvertedIndexParams, ScalarIndexParams};
use planner::job::{IndexOp, JobSpec, Predicted};
use planner::policy::Policy;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::Barrier;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// No wait of a test is longer.
const DEADLINE: Duration = Duration::from_secs(60);
const FRAGMENTS: u64 = 8;
const ROWS: u64 = 50;

async fn write(uri: &str, first: u64, params: WriteParams) {
    let vector = DataType::FixedSizeList(Arc::new(Field::new("item", DataType::Float32, true)), 2);
    let text = |name| column(name, DataType::Utf8);
    let fields = vec![column("id", DataType::Int64), text("cat"), text("text"), column("vec", vector)];
    let schema = Arc::new(Schema::new(fields));
    let row =
        |id| json!({"id": id, "cat": format!("c{}", id % 3), "text": format!("word{} all", id % 40), "vec": [id, 1]});
    let batch = rows(&schema, &Value::Array((first..first + FRAGMENTS * ROWS).map(row).collect()));
    let reader = arrow_array::RecordBatchIterator::new([Ok(batch)], schema);
    let params = WriteParams { max_rows_per_file: ROWS as usize, ..params };
    Dataset::write(reader, uri, Some(params)).await.unwrap();
}

/// A table of small fragments with deletions and indexes, and the registry of those who work on it.
pub(crate) struct Set {
    dir: TempDir,
    pub(crate) uri: String,
    registry: Registry,
}

impl Set {
    pub(crate) async fn new() -> Self {
        Self::of(false).await
    }

    pub(crate) async fn of(stable_row_ids: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let uri = dir.path().join("t.lance").to_str().unwrap().to_string();
        write(&uri, 0, WriteParams { enable_stable_row_ids: stable_row_ids, ..WriteParams::default() }).await;
        let mut dataset = Dataset::open(&uri).await.unwrap();
        let scalar = ScalarIndexParams::default();
        dataset.create_index(&["id"], IndexType::BTree, Some("id_idx".into()), &scalar, true).await.unwrap();
        let bitmap = ScalarIndexParams::for_builtin(BuiltinIndexType::Bitmap);
        dataset.create_index(&["cat"], IndexType::Bitmap, Some("cat_idx".into()), &bitmap, true).await.unwrap();
        let fts = InvertedIndexParams::default();
        dataset.create_index(&["text"], IndexType::Inverted, Some("text_idx".into()), &fts, true).await.unwrap();
        let flat = lance::index::vector::VectorIndexParams::ivf_flat(2, lance_linalg::distance::MetricType::L2);
        dataset.create_index(&["vec"], IndexType::Vector, Some("vec_idx".into()), &flat, true).await.unwrap();
        dataset.delete("id % 7 = 0").await.unwrap();
        let registry = Registry::open(&Place::Folder(dir.path().join("state"))).await.unwrap();
        Self { dir, uri, registry }
    }

    /// As many fragments again, that no index covers.
    pub(crate) async fn append(&self) {
        let first = self.dataset().await.manifest().fragments.len() as u64 * ROWS;
        write(&self.uri, first, WriteParams { mode: WriteMode::Append, ..WriteParams::default() }).await;
        self.dataset().await.delete(&format!("id = {}", first + 1)).await.unwrap();
    }

    pub(crate) async fn dataset(&self) -> Dataset {
        Dataset::open(&self.uri).await.unwrap()
    }

    /// Every row, and what each index says.
    pub(crate) async fn answers(&self) -> (Vec<Value>, Vec<usize>, [Vec<Value>; 2]) {
        let dataset = self.dataset().await;
        let all = dataset.scan().try_into_stream().await.unwrap().try_collect().await.unwrap();
        let mut counts = Vec::new();
        for filter in ["id = 9", "id > 100 AND id < 300", "cat = 'c1'", "cat = 'c2' AND id < 77", "id = 7", "id = 501"]
        {
            counts.push(dataset.count_rows(Some(filter.into())).await.unwrap());
        }
        let mut scan = dataset.scan();
        let near = arrow_array::Float32Array::from(vec![401.0, 1.0]);
        scan.nearest("vec", &near, 9).unwrap().nprobes(2).project(&["id"]).unwrap();
        let near: Vec<_> = scan.try_into_stream().await.unwrap().try_collect().await.unwrap();
        let mut scan = dataset.scan();
        scan.full_text_search(FullTextSearchQuery::new("word9".into())).unwrap().project(&["id"]).unwrap();
        let found: Vec<_> = scan.try_into_stream().await.unwrap().try_collect().await.unwrap();
        // How well a row fits depends on how the index is cut.
        let ids = |found: Vec<_>| sorted(found).into_iter().map(|row| row["id"].clone()).collect();
        let mut found: Vec<Value> = ids(found);
        found.sort_by_key(Value::as_i64);
        (sorted(all), counts, [ids(near), found])
    }

    fn tender(&self, name: &str) -> Tender {
        let policy = Policy { answers_percent: 100, ..Policy::default() };
        let mut tender = Tender::new(policy, session(), CancellationToken::new());
        (tender.registry, tender.name, tender.split_bytes) = (self.registry.clone(), name.into(), 1);
        tender
    }

    /// Hands in a compaction of four pairs of fragments, and returns its id.
    async fn compaction(&self, deferred: bool) -> String {
        let dataset = self.dataset().await;
        let spec = JobSpec::Compact {
            tasks: (0..FRAGMENTS / 2).map(|n| vec![2 * n, 2 * n + 1]).collect(),
            deferred,
            read_version: dataset.manifest().version,
            target_rows: 2 * ROWS,
            predicted: Predicted { fragments: FRAGMENTS / 2, rows: None, bytes: None },
        };
        self.put(spec).await
    }

    /// Hands in work on one index.
    pub(crate) async fn indexing(&self, kind: &str, name: &str, op: IndexOp) -> String {
        self.put(JobSpec::Index { kind: kind.into(), indexes: vec![name.into()], op }).await
    }

    async fn put(&self, spec: JobSpec) -> String {
        let at = TableRef { name: "t".into(), uri: self.uri.clone() };
        let job = NewJob::planned(&at, &spec, &Policy::default()).unwrap();
        match self.registry.enqueue(vec![job], 0).await.unwrap().remove(0) {
            Queued::Yes(id) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn claim(&self, worker: &str, parent: Option<&str>) -> Option<Claim> {
        let want = Want {
            worker: worker.into(),
            free_bytes: u64::MAX,
            folds: true,
            any: true,
            root: String::new(),
            parent: parent.map(Into::into),
        };
        self.registry.claim(&want, 0).await.unwrap()
    }

    /// A worker that takes one job and runs it.
    pub(crate) async fn work(&self, name: &str, parent: Option<&str>) -> JoinHandle<Vec<JobReport>> {
        let claim = self.claim(name, parent).await.expect("it waits");
        let tender = self.tender(name);
        tokio::spawn(async move { tender.attempt(claim, None, &Arc::new(Progress::default())).await })
    }

    pub(crate) async fn parts(&self, id: &str) -> Vec<Job> {
        self.registry.jobs(&Filter { parent: Some(id.into()), ..Filter::default() }).await.unwrap()
    }

    async fn job(&self, id: &str) -> Job {
        self.registry.job(id).await.unwrap().unwrap()
    }

    /// Waits until the parts of a job are so.
    pub(crate) async fn until(&self, id: &str, so: impl Fn(&[Job]) -> bool) {
        let began = Instant::now();
        loop {
            let parts = self.parts(id).await;
            if so(&parts) {
                return;
            }
            assert!(began.elapsed() < DEADLINE, "{parts:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// What a worker leaves that dies: its lock is nobody's.
    pub(crate) async fn dies(&self, worker: &str) {
        let processes = self.dir.path().join("state/processes");
        std::fs::create_dir_all(&processes).unwrap();
        std::fs::write(processes.join(worker), "").unwrap();
        assert!(self.registry.reap().await.unwrap() > 0);
    }

    /// How many segments an index has, and how many fragments none of them covers.
    pub(crate) async fn segments(&self, name: &str) -> (usize, usize) {
        let dataset = self.dataset().await;
        let segments = dataset.load_indices_by_name(name).await.unwrap();
        let covered = |id: u64| segments.iter().any(|s| s.fragment_bitmap.as_ref().unwrap().contains(id as u32));
        (segments.len(), dataset.manifest().fragments.iter().filter(|f| !covered(f.id)).count())
    }

    /// Data files and indexes on storage that no version has.
    pub(crate) async fn litter(&self) -> BTreeSet<String> {
        let dataset = self.dataset().await;
        let mut known = BTreeSet::new();
        for version in dataset.versions().await.unwrap() {
            let at = dataset.checkout_version(version.version).await.unwrap();
            known.extend(at.load_indices().await.unwrap().iter().map(|index| index.uuid.to_string()));
            known.extend(at.manifest().fragments.iter().flat_map(|f| f.files.iter().map(|file| file.path.clone())));
        }
        let there = ["data", "_indices"].into_iter().flat_map(|folder| {
            let there = std::fs::read_dir(Path::new(&self.uri).join(folder)).unwrap();
            there.map(|entry| entry.unwrap().file_name().into_string().unwrap())
        });
        there.filter(|name| !known.contains(name)).collect()
    }

    async fn fragments(&self) -> usize {
        self.dataset().await.manifest().fragments.len()
    }
}

/// A place where parts are held.
pub(crate) struct Gate {
    came: Arc<AtomicUsize>,
    open: CancellationToken,
}

impl Gate {
    /// Waits until so many have come to it.
    pub(crate) async fn came(&self, parts: usize) {
        let began = Instant::now();
        while self.came.load(Ordering::SeqCst) < parts {
            assert!(began.elapsed() < DEADLINE);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Lets everybody by.
    pub(crate) fn open(&self) {
        self.open.cancel();
    }
}

/// Lets the first `free` parts by that come to `place`, and holds the others until it is opened.
pub(crate) fn hold(set: &Set, place: &'static str, free: usize) -> Gate {
    let gate = Gate { came: Arc::default(), open: CancellationToken::new() };
    let (came, open) = (gate.came.clone(), gate.open.clone());
    let held = move || -> futures::future::BoxFuture<'static, ()> {
        let (nth, open) = (came.fetch_add(1, Ordering::SeqCst), open.clone());
        Box::pin(async move {
            if nth >= free {
                open.cancelled().await;
            }
        })
    };
    hook(&set.uri, place, Some(Arc::new(held)));
    gate
}

/// The part that comes to `place` as the second fails.
pub(crate) fn fail_second(set: &Set, place: &'static str) {
    let seen = Arc::new(AtomicUsize::new(0));
    let fail = move || -> futures::future::BoxFuture<'static, ()> {
        let nth = seen.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { assert!(nth != 1, "on purpose") })
    };
    hook(&set.uri, place, Some(Arc::new(fail)));
}

pub(crate) fn ended(parts: &[Job], state: State) -> usize {
    parts.iter().filter(|part| part.state == state).count()
}

pub(crate) async fn within<T>(task: JoinHandle<T>) -> T {
    tokio::time::timeout(DEADLINE, task).await.expect("it ends").unwrap()
}

async fn two_workers(deferred: bool, stable_row_ids: bool) {
    let set = Set::of(stable_row_ids).await;
    let before = set.answers().await;
    let id = set.compaction(deferred).await;
    // The first two parts wait for each other, and so are two workers'.
    let (seen, both) = (Arc::new(AtomicUsize::new(0)), Arc::new(Barrier::new(2)));
    let meet = move || -> futures::future::BoxFuture<'static, ()> {
        let (nth, both) = (seen.fetch_add(1, Ordering::SeqCst), both.clone());
        Box::pin(async move {
            if nth < 2 {
                both.wait().await;
            }
        })
    };
    hook(&set.uri, "part.before", Some(Arc::new(meet)));
    let first = set.work("first", None).await;
    set.until(&id, |parts| parts.len() == 4 && ended(parts, State::Running) == 1).await;
    let second = set.work("second", Some(&id)).await;
    assert!(matches!(within(second).await[0].end, JobEnd::Part { .. }));
    let report = within(first).await.remove(0);
    let JobEnd::Compacted(done) = &report.end else { panic!("{report:?}") };
    assert_eq!((done.fragments_removed, done.fragments_added), (8, 4));
    assert!(report.answers.is_some_and(|answers| answers.indexes.len() == 4 && answers.skipped.is_empty()));
    let parts = set.parts(&id).await;
    let workers: BTreeSet<&str> = parts.iter().filter_map(|part| part.worker.as_deref()).collect();
    assert_eq!((workers, ended(&parts, State::Succeeded)), (BTreeSet::from(["first", "second"]), 4));
    let (mut before, mut after) = (before, set.answers().await);
    if stable_row_ids {
        // In parts or not: once a deletion file is gone, Lance's vector index counts the deleted rows among
        // the nearest, and gives fewer.
        (before.2[0], after.2[0]) = (Vec::new(), Vec::new());
    }
    assert_eq!((set.fragments().await, after), (4, before));
    assert_eq!(set.litter().await, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_compaction_is_cut_for_two_workers_and_answers_as_before() {
    two_workers(false, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_stable_row_ids_a_large_compaction_is_cut_for_two_workers_and_answers_as_before() {
    two_workers(false, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_deferred_compaction_is_cut_for_two_workers_and_answers_as_before() {
    two_workers(true, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_compaction_stays_in_one_piece() {
    let set = Set::new().await;
    let id = set.compaction(false).await;
    let claim = set.claim("w", None).await.unwrap();
    let mut tender = set.tender("w");
    tender.split_bytes = 1 << 30;
    let report = tender.attempt(claim, None, &Arc::new(Progress::default())).await.remove(0);
    assert!(matches!(report.end, JobEnd::Compacted(_)), "{report:?}");
    assert_eq!((set.parts(&id).await.len(), set.fragments().await), (0, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_is_left_out_of_a_deferred_compaction() {
    let set = Set::new().await;
    let before = set.answers().await;
    let id = set.compaction(true).await;
    fail_second(&set, "part.before");
    let report = within(set.work("w", None).await).await.remove(0);
    let JobEnd::Compacted(done) = &report.end else { panic!("{report:?}") };
    assert_eq!((done.fragments_removed, done.fragments_added), (6, 3));
    assert_eq!((set.fragments().await, set.answers().await), (5, before));
    assert_eq!((ended(&set.parts(&id).await, State::Failed), set.litter().await), (1, BTreeSet::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_fails_fails_an_inline_compaction_which_leaves_no_file() {
    let set = Set::new().await;
    let before = (set.answers().await, set.dataset().await.manifest().version);
    let id = set.compaction(false).await;
    fail_second(&set, "part.before");
    let report = within(set.work("w", None).await).await.remove(0);
    assert!(matches!(&report.end, JobEnd::Failed { why, .. } if why.contains("on purpose")), "{report:?}");
    assert_eq!((set.answers().await, set.dataset().await.manifest().version), before);
    assert_eq!((ended(&set.parts(&id).await, State::Succeeded), set.litter().await), (3, BTreeSet::new()));
    assert_eq!(set.job(&id).await.state, State::Failed);
}

/// A worker that dies when it has done two parts of four, and is at the third.
async fn dead_worker(set: &Set, deferred: bool) -> String {
    let id = set.compaction(deferred).await;
    let gate = hold(set, "part.before", 2);
    let first = set.work("first", None).await;
    gate.came(3).await;
    first.abort();
    set.dies("first").await;
    hook(&set.uri, "part.before", None);
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_worker_had_done_is_used_by_the_next_attempt() {
    for deferred in [false, true] {
        let set = Set::new().await;
        let id = dead_worker(&set, deferred).await;
        // A version more, with the same fragments and others.
        set.append().await;
        let before = set.answers().await;
        let report = within(set.work("next", None).await).await.remove(0);
        assert!(matches!(report.end, JobEnd::Compacted(_)), "{report:?}");
        let parts = set.parts(&id).await;
        let by = |name: &str| parts.iter().filter(|part| part.worker.as_deref() == Some(name)).count();
        assert_eq!((parts.len(), by("first"), by("next"), set.job(&id).await.attempt), (4, 2, 2, 2));
        assert_eq!((set.fragments().await, set.answers().await), (4 + FRAGMENTS as usize, before));
        assert_eq!(set.litter().await, BTreeSet::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_dead_worker_had_made_of_fragments_that_have_changed_is_made_anew_and_deleted() {
    let set = Set::new().await;
    let id = dead_worker(&set, false).await;
    // The oldest part is of the first fragments or, by its key, of others: a row of each goes.
    set.dataset().await.delete("id % 50 = 3").await.unwrap();
    let before = set.answers().await;
    let report = within(set.work("next", None).await).await.remove(0);
    assert!(matches!(report.end, JobEnd::Compacted(_)), "{report:?}");
    // Two were done and two were open.
    let parts = set.parts(&id).await;
    assert_eq!((ended(&parts, State::Succeeded), ended(&parts, State::Cancelled)), (6, 2), "{parts:#?}");
    assert_eq!((set.fragments().await, set.answers().await), (4, before));
    assert_eq!(set.litter().await, BTreeSet::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compaction_that_is_cancelled_stops_its_parts_and_leaves_no_file() {
    let set = Set::new().await;
    let before = set.answers().await;
    let id = set.compaction(false).await;
    // The parts after the second have written what they were to, and have not said so.
    let gate = hold(&set, "part.after", 2);
    let first = set.work("first", None).await;
    gate.came(3).await;
    let second = set.work("second", Some(&id)).await;
    gate.came(4).await;
    assert_eq!(set.registry.cancel(&id).await.unwrap(), Answer::Asked);
    set.until(&id, |parts| parts.iter().filter(|part| part.ask.is_some()).count() == 2).await;
    gate.open();
    let (_, _) = (within(first).await, within(second).await);
    assert_eq!(set.job(&id).await.state, State::Cancelled);
    let parts = set.parts(&id).await;
    assert_eq!((ended(&parts, State::Succeeded), ended(&parts, State::Cancelled)), (2, 2), "{parts:#?}");
    assert_eq!((set.litter().await, set.fragments().await), (BTreeSet::new(), 8));
    assert_eq!(set.answers().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_ends_after_it_was_given_to_another_deletes_what_it_wrote() {
    let set = Set::new().await;
    let before = set.answers().await;
    let id = set.compaction(false).await;
    // The job's own worker waits until the other has written its part.
    let gate = hold(&set, "part.before", 0);
    let first = set.work("first", None).await;
    gate.came(1).await;
    hook(&set.uri, "part.before", None);
    let late = hold(&set, "part.after", 0);
    let second = set.work("second", Some(&id)).await;
    late.came(1).await;
    set.dies("second").await;
    hook(&set.uri, "part.after", None);
    gate.open();
    assert!(matches!(within(first).await[0].end, JobEnd::Compacted(_)));
    assert_ne!(set.litter().await, BTreeSet::new(), "the late one has its own");
    late.open();
    within(second).await;
    assert_eq!((set.fragments().await, set.answers().await), (4, before));
    assert_eq!(set.litter().await, BTreeSet::new());
}
