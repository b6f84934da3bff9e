//! One suite for both engines: what the store must refuse, and what a dead worker leaves.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use planner::job::{JobSpec, SsTableId};
use planner::policy::Policy;

use super::*;
use crate::catalog::TableRef;
use crate::error::Error;
use crate::report::{JobEnd, JobReport};

pub(super) const T: &str = "/db/t.lance";

/// A registry, and what holds it.
pub(super) struct Set {
    pub(super) registry: Registry,
    place: Place,
    _dir: tempfile::TempDir,
}

pub(super) async fn sqlite() -> Set {
    let dir = tempfile::tempdir().expect("a folder");
    let place = Place::Folder(dir.path().into());
    Set { registry: Registry::open(&place).await.expect("new"), place, _dir: dir }
}

pub(super) async fn postgres() -> Set {
    let place = Place::Postgres(server::database().await);
    let dir = tempfile::tempdir().expect("a folder");
    Set { registry: Registry::open(&place).await.expect("new"), place, _dir: dir }
}

/// Each test on each engine.
macro_rules! both {
    ($($(#[doc = $doc:literal])* $test:ident),* $(,)?) => { $(
        mod $test {
            #[tokio::test(flavor = "multi_thread")]
            async fn on_sqlite() {
                super::$test(super::sqlite().await).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn on_postgres() {
                super::$test(super::postgres().await).await;
            }
        }
    )* };
}

both! {
    job_09_of_equal_jobs_at_once_one_is_open,
    jobs_go_out_in_decision_order_and_one_at_a_time_in_a_lane,
    nobody_waits_for_ever_behind_smaller_or_more_urgent_jobs,
    the_folds_of_a_table_go_out_together_as_far_as_a_pass_takes,
    job_04_jobs_of_dead_workers_are_complete_again,
    job_11_a_worker_that_lost_its_lease_has_no_say,
    a_job_that_kills_its_workers_has_failed,
    storage_trouble_is_tried_again_later_and_other_failures_are_not,
    cancel_pause_and_resume,
    a_table_whose_answers_changed_gets_catch_up_only,
    the_same_work_for_the_same_state_is_not_taken_again,
    pages_are_newest_first_and_by_filter,
    finished_jobs_leave_the_list_for_the_archive,
    others_hear_of_it,
    members_come_and_go,
    work_for_one_process_is_nobody_elses_and_goes_with_it,
    a_schema_of_a_newer_version_is_refused,
}

pub(super) fn table(uri: &str) -> TableRef {
    TableRef { name: uri.trim_start_matches("/db/").trim_end_matches(".lance").into(), uri: uri.into() }
}

pub(super) fn new(uri: &str, spec: &JobSpec) -> NewJob {
    NewJob::planned(&table(uri), spec, &Policy::default()).expect("it can be written")
}

fn fold(shard: &str, bytes: u64) -> JobSpec {
    let sstables = vec![SsTableId { generation: 1, path: "p".into() }];
    JobSpec::Fold { shard: shard.into(), sstables, bytes: Some(bytes) }
}

pub(super) fn remap() -> JobSpec {
    JobSpec::Remap { indexes: vec!["i".into()] }
}

fn catch_up() -> JobSpec {
    JobSpec::CatchUp { kind: "btree".into(), indexes: vec!["i".into()] }
}

fn retire(shard: &str) -> JobSpec {
    JobSpec::Retire { shard: shard.into(), sstables: Vec::new() }
}

pub(super) fn want(worker: &str) -> Want {
    let (free_bytes, root) = (1 << 40, String::new());
    Want { worker: worker.into(), free_bytes, folds: true, any: true, root, parent: None }
}

impl Set {
    pub(super) async fn put(&self, jobs: Vec<NewJob>) -> Vec<Queued> {
        self.registry.enqueue(jobs, 60_000).await.expect("it answers")
    }

    pub(super) async fn take(&self, worker: &str) -> Option<Claim> {
        self.registry.claim(&want(worker), 1_000).await.expect("it answers")
    }

    pub(super) async fn end(&self, claim: &Claim, end: JobEnd) -> crate::error::Result<()> {
        for job in &claim.jobs {
            let on = job.shard.iter().cloned().collect();
            let report = JobReport::new(&job.kind, on, 5, end.clone());
            self.registry.finish(job, &Ended::Report(Box::new(report))).await?;
        }
        Ok(())
    }

    /// As if the workers of all running jobs had been silent for an hour.
    pub(super) async fn silence(&self) {
        let sql = "UPDATE caretaker_job SET heartbeat_ms = heartbeat_ms - 3600000 WHERE state = 'running'";
        sqlx::query(sql).execute(&self.registry.store.pool()).await.expect("set");
    }

    async fn states(&self) -> Vec<State> {
        self.registry.jobs(&Filter::default()).await.expect("read").iter().map(|job| job.state).collect()
    }

    async fn job(&self, claim: &Claim) -> Job {
        self.registry.job(&claim.jobs[0].id).await.expect("read").expect("there")
    }
}

async fn job_09_of_equal_jobs_at_once_one_is_open(set: Set) {
    let registry = Arc::new(set.registry.clone());
    let many = (0..50).map(|_| {
        let registry = registry.clone();
        tokio::spawn(async move { registry.enqueue(vec![new(T, &fold("a", 1)), new(T, &remap())], 0).await })
    });
    let mut queued = 0;
    for one in many.collect::<Vec<_>>() {
        let answers = one.await.expect("no panic").expect("it answers");
        queued += answers.iter().filter(|answer| matches!(answer, Queued::Yes(_))).count();
    }
    assert_eq!((queued, set.states().await.len()), (2, 2));
    let claim = set.take("w").await.expect("one waits");
    assert_eq!(set.put(vec![new(T, &fold("a", 1))]).await, [Queued::Open], "also while it runs");
    set.end(&claim, JobEnd::CaughtUp).await.expect("written");
    assert!(matches!(set.put(vec![new(T, &fold("a", 1))]).await[..], [Queued::Yes(_)]), "and not when it has ended");
}

async fn jobs_go_out_in_decision_order_and_one_at_a_time_in_a_lane(set: Set) {
    set.put(vec![new(T, &remap()), new(T, &fold("a", 1)), new(T, &catch_up()), new(T, &retire("a"))]).await;
    set.put(vec![new("/db/u.lance", &remap())]).await;
    let kinds = async || set.take("w").await.map(|claim| (claim.jobs[0].kind.clone(), claim.jobs[0].table.clone()));
    let first = set.take("w").await.expect("one waits");
    assert_eq!(first.jobs[0].kind, "memwal_catchup_btree");
    let others = [kinds().await, kinds().await, kinds().await];
    let named = |kind: &str, table: &str| Some((kind.to_string(), table.to_string()));
    assert_eq!(others, [named("memwal_retire", "t"), named("remap", "u"), None], "the base has one lane a table");
    set.end(&first, JobEnd::CaughtUp).await.expect("written");
    assert_eq!(kinds().await, named("memwal_compaction", "t"));
    let small = Want { free_bytes: 10, ..want("w") };
    set.put(vec![new("/db/v.lance", &remap())]).await;
    assert_eq!(set.registry.claim(&small, 1).await.expect("it answers"), None, "no more than there is memory for");
}

async fn nobody_waits_for_ever_behind_smaller_or_more_urgent_jobs(set: Set) {
    let large = NewJob { need_bytes: 100, ..new(T, &catch_up()) };
    let small = |uri: &str| NewJob { need_bytes: 10, ..new(uri, &remap()) };
    set.put(vec![large, small("/db/u.lance"), small("/db/v.lance")]).await;
    let narrow = Want { free_bytes: 50, ..want("w") };
    let take =
        async || set.registry.claim(&narrow, 1).await.expect("it answers").map(|claim| claim.jobs[0].uri.clone());
    let age = async |ms: i64| {
        let older = format!("UPDATE caretaker_job SET run_at_ms = run_at_ms - {ms} WHERE state = 'pending'");
        sqlx::query(&older).execute(&set.registry.store.pool()).await.expect("set");
    };
    assert_eq!(take().await.as_deref(), Some("/db/u.lance"), "for a while smaller ones pass it");
    age(90_000).await;
    assert_eq!(take().await, None, "now it is its turn, as soon as there is room");
    assert_eq!(set.take("w").await.expect("there is").jobs[0].uri, T);
    assert_eq!(take().await.as_deref(), Some("/db/v.lance"));
    set.put(vec![new("/db/x.lance", &remap())]).await;
    age(900_000).await;
    set.put(vec![new("/db/y.lance", &catch_up())]).await;
    assert_eq!(set.registry.promote().await.expect("it answers"), 1);
    assert_eq!(set.take("w").await.expect("it waits").jobs[0].uri, "/db/x.lance");
}

async fn the_folds_of_a_table_go_out_together_as_far_as_a_pass_takes(set: Set) {
    set.put(["a", "b", "c"].map(|shard| new(T, &fold(shard, 400))).to_vec()).await;
    set.put(vec![new("/db/u.lance", &fold("a", 1))]).await;
    let none = Want { folds: false, ..want("w") };
    assert_eq!(set.registry.claim(&none, 1_000).await.expect("it answers"), None);
    let claim = set.take("w").await.expect("they wait");
    let shards: BTreeSet<_> = claim.jobs.iter().filter_map(|job| job.shard.as_deref()).collect();
    assert_eq!((shards.len(), claim.jobs.iter().all(|job| job.uri == T)), (2, true));
    let other = set.take("w").await.expect("another table's");
    assert_eq!(other.jobs[0].uri, "/db/u.lance");
    assert!(set.take("w").await.is_none(), "the third waits for the lane");
    set.end(&claim, JobEnd::CaughtUp).await.expect("written");
    assert_eq!(set.take("w").await.expect("its turn").jobs.len(), 1);
}

async fn job_04_jobs_of_dead_workers_are_complete_again(set: Set) {
    for n in 0..20 {
        set.put(vec![new(&format!("/db/t{n}.lance"), &remap())]).await;
    }
    let mut claims = Vec::new();
    while let Some(claim) = set.take("dead").await {
        claims.push(claim);
    }
    assert_eq!((claims.len(), set.registry.reap().await.expect("it answers")), (20, 0), "they were heard of");
    set.silence().await;
    let (one, two) = tokio::join!(set.registry.reap(), set.registry.reap());
    assert_eq!(one.expect("it answers") + two.expect("it answers"), 20);
    assert_eq!(set.registry.reap().await.expect("it answers"), 0);
    let mut again = 0;
    while let Some(claim) = set.take("fresh").await {
        assert_eq!((claim.jobs[0].attempt, claim.jobs[0].stage.as_deref()), (2, None));
        set.end(&claim, JobEnd::Remapped).await.expect("written");
        again += 1;
    }
    assert_eq!(again, 20);
}

async fn job_11_a_worker_that_lost_its_lease_has_no_say(set: Set) {
    set.put(vec![new(T, &remap())]).await;
    let late = set.take("late").await.expect("it waits");
    assert_eq!(set.registry.beat(&late.lease, "s", 1, 2).await.expect("it answers"), Beat::On);
    assert!(set.registry.holds(&late.lease).await.expect("it answers"));
    set.silence().await;
    set.registry.reap().await.expect("it answers");
    let next = set.take("next").await.expect("again");
    assert_eq!(set.registry.beat(&late.lease, "s", 1, 2).await.expect("it answers"), Beat::Lost);
    assert!(!set.registry.holds(&late.lease).await.expect("it answers"));
    let refused = set.end(&late, JobEnd::Remapped).await;
    assert!(matches!(refused, Err(Error::Superseded(_))), "{refused:?}");
    assert_eq!(set.job(&next).await.state, State::Running);
    set.end(&next, JobEnd::Remapped).await.expect("its own");
    set.end(&next, JobEnd::Remapped).await.expect("an answer that got lost is asked for again");
    assert_eq!(set.job(&next).await.state, State::Succeeded);
}

async fn a_job_that_kills_its_workers_has_failed(set: Set) {
    set.put(vec![new(T, &remap())]).await;
    let mut claims = 0;
    while let Some(claim) = set.take("w").await {
        claims += 1;
        assert_eq!(claim.jobs[0].attempt, claims);
        set.silence().await;
        set.registry.reap().await.expect("it answers");
    }
    assert_eq!(claims as i64, DEATHS_MAX);
    let job = &set.registry.jobs(&Filter::default()).await.expect("read")[0];
    let why = job.failure.as_ref().expect("it says why");
    assert!(job.state == State::Failed && why.message.contains("worker died") && !why.retryable);
    let mut facts = planner::facts::TableFacts::default();
    set.registry.complete(T, &mut facts, 1).await.expect("read");
    assert_eq!(facts.failed.len(), 1, "the agent backs off");
    assert!(matches!(set.put(vec![new(T, &remap())]).await[..], [Queued::Yes(_)]));
}

async fn storage_trouble_is_tried_again_later_and_other_failures_are_not(set: Set) {
    let failed = |kind| JobEnd::Failed { kind, why: "the store says no".into() };
    set.put(vec![new(T, &remap())]).await;
    let first = set.take("w").await.expect("it waits");
    set.end(&first, failed("retry")).await.expect("written");
    let job = set.job(&first).await;
    assert_eq!((job.state, job.run_at_ms > job.created_ms + 4_000), (State::Pending, true));
    assert!(set.take("w").await.is_none(), "not before its time");
    let now = "UPDATE caretaker_job SET run_at_ms = 0";
    sqlx::query(now).execute(&set.registry.store.pool()).await.expect("set");
    let second = set.take("w").await.expect("its time has come");
    set.end(&second, failed("fatal")).await.expect("written");
    let job = set.job(&second).await;
    let failure = job.failure.expect("it says why");
    assert_eq!((job.state, failure.message.as_str(), failure.retryable), (State::Failed, "the store says no", false));
    let events = set.registry.events(&job.id, 0, 100).await.expect("read");
    let told: Vec<&str> = events.iter().map(|event| event.state.as_str()).collect();
    assert_eq!(told, ["created", "claim", "retry", "claim", "claim_complete", "failed"]);
}

async fn cancel_pause_and_resume(set: Set) {
    assert_eq!(set.registry.cancel("none").await.expect("it answers"), Answer::Unknown);
    let Queued::Yes(id) = set.put(vec![new(T, &remap())]).await.remove(0) else { panic!("it is new") };
    let asked = async |what: &str| match what {
        "pause" => set.registry.pause(&id).await.expect("it answers"),
        "resume" => set.registry.resume(&id).await.expect("it answers"),
        _ => set.registry.cancel(&id).await.expect("it answers"),
    };
    assert_eq!(asked("pause").await, Answer::Done);
    assert_eq!((set.take("w").await, asked("pause").await), (None, Answer::Not(State::Paused)));
    assert_eq!(asked("resume").await, Answer::Done);
    let claim = set.take("w").await.expect("it goes on");
    assert_eq!(asked("pause").await, Answer::Asked);
    assert_eq!(set.registry.beat(&claim.lease, "", 0, 0).await.expect("it answers"), Beat::Stop);
    assert_eq!(asked("resume").await, Answer::Asked);
    assert_eq!(set.registry.beat(&claim.lease, "", 0, 0).await.expect("it answers"), Beat::On);
    asked("pause").await;
    set.registry.finish(&claim.jobs[0], &Ended::Asked).await.expect("written");
    assert_eq!(set.states().await, [State::Paused]);
    asked("resume").await;
    let claim = set.take("w").await.expect("it goes on");
    assert_eq!(asked("cancel").await, Answer::Asked);
    set.registry.finish(&claim.jobs[0], &Ended::Asked).await.expect("written");
    assert_eq!((set.states().await, asked("cancel").await), (vec![State::Cancelled], Answer::Ended(State::Cancelled)));
    let Queued::Yes(id) = set.put(vec![new(T, &remap())]).await.remove(0) else { panic!("the lane is free") };
    assert_eq!(set.registry.cancel(&id).await.expect("it answers"), Answer::Done);
    // What ended before its worker heard of the request has ended.
    set.put(vec![new(T, &remap())]).await;
    let claim = set.take("w").await.expect("it waits");
    set.registry.cancel(&claim.jobs[0].id).await.expect("it answers");
    set.end(&claim, JobEnd::Remapped).await.expect("written");
    assert_eq!(set.job(&claim).await.state, State::Succeeded);
}

async fn a_table_whose_answers_changed_gets_catch_up_only(set: Set) {
    set.put(vec![new(T, &remap()), new("/db/u.lance", &remap())]).await;
    let end = JobEnd::Failed { kind: "mismatch", why: "3 rows differ".into() };
    set.registry.record(T, &JobReport::new("compact", Vec::new(), 1, end), 7).await.expect("written");
    assert_eq!(set.take("w").await.expect("the other table's").jobs[0].uri, "/db/u.lance");
    assert!(set.take("w").await.is_none());
    set.put(vec![new(T, &catch_up())]).await;
    let claim = set.take("w").await.expect("correctness goes on");
    assert_eq!(claim.jobs[0].kind, "memwal_catchup_btree");
    set.end(&claim, JobEnd::CaughtUp).await.expect("written");
    set.registry.accept(T).await.expect("somebody has looked");
    assert_eq!(set.take("w").await.expect("it goes on").jobs[0].kind, "remap");
}

async fn the_same_work_for_the_same_state_is_not_taken_again(set: Set) {
    let planned = |state: &str| new(T, &remap()).seen(state);
    let run = async |state: &str, end: JobEnd| {
        let queued = set.put(vec![planned(state)]).await.remove(0);
        if let Some(claim) = set.take("w").await {
            set.end(&claim, end).await.expect("written");
        }
        matches!(queued, Queued::Yes(_))
    };
    let lost = || JobEnd::Superseded { why: String::new() };
    assert!(run("1", lost()).await && run("1", JobEnd::Remapped).await, "a lost race is tried again");
    assert!(!run("1", JobEnd::Remapped).await && run("2", JobEnd::Remapped).await);
    assert!(matches!(set.registry.enqueue(vec![planned("2")], 0).await.expect("it answers")[0], Queued::Yes(_)));
}

async fn pages_are_newest_first_and_by_filter(set: Set) {
    for n in 0..7 {
        set.put(vec![new(&format!("/db/t{n}.lance"), &remap())]).await;
    }
    let claim = set.take("w").await.expect("they wait");
    set.end(&claim, JobEnd::Remapped).await.expect("written");
    let page = async |filter: Filter| {
        let jobs = set.registry.jobs(&filter).await.expect("read");
        (jobs.iter().map(|job| job.table.clone()).collect::<Vec<_>>(), jobs.last().map(|job| job.id.clone()))
    };
    let (first, last) = page(Filter { limit: 3, ..Filter::default() }).await;
    let (second, _) = page(Filter { limit: 9, before: last, ..Filter::default() }).await;
    assert_eq!(
        (first, second),
        (["t6", "t5", "t4"].map(String::from).into(), ["t3", "t2", "t1", "t0"].map(String::from).into())
    );
    let done = Filter { states: vec![State::Succeeded], kind: Some("remap".into()), ..Filter::default() };
    assert_eq!(page(done).await.0, ["t0"]);
    let of = Filter { table: Some("t5' OR '1'='1".into()), ..Filter::default() };
    assert!(page(of).await.0.is_empty());
    assert_eq!(page(Filter { table: Some("t5".into()), ..Filter::default() }).await.0, ["t5"]);
}

async fn finished_jobs_leave_the_list_for_the_archive(set: Set) {
    set.put(vec![new(T, &remap())]).await;
    let claim = set.take("w").await.expect("it waits");
    set.end(&claim, JobEnd::Remapped).await.expect("written");
    let id = claim.jobs[0].id.clone();
    assert_eq!(set.registry.archive().await.expect("it answers"), 0);
    let old = format!("UPDATE caretaker_job SET ended_ms = ended_ms - {} - 1000", archive::KEPT_MS);
    sqlx::query(&old).execute(&set.registry.store.pool()).await.expect("set");
    set.put(vec![new("/db/u.lance", &remap())]).await;
    assert_eq!(set.registry.archive().await.expect("it answers"), 1);
    assert_eq!((set.states().await.len(), set.registry.job(&id).await.expect("read")), (1, None));
    let kept = set.registry.archived(&id).await.expect("read").expect("there");
    assert_eq!((kept["state"].as_str(), kept["uri"].as_str()), (Some("succeeded"), Some(T)));
    assert!(set.registry.events(&id, 0, 9).await.expect("read").is_empty());
}

async fn others_hear_of_it(set: Set) {
    let other = Registry::open(&set.place).await.expect("the same");
    let mut bell = if set.registry.place().starts_with("postgres") { other.listen() } else { set.registry.listen() };
    if set.registry.place().starts_with("postgres") {
        let first = tokio::time::timeout(Duration::from_secs(30), bell.recv()).await.expect("it rings");
        assert_eq!(first.expect("it follows"), Ring::Anything, "what was before is not known");
    }
    set.put(vec![new(T, &remap())]).await;
    let claim = set.take("w").await.expect("it waits");
    set.registry.cancel(&claim.jobs[0].id).await.expect("it answers");
    set.end(&claim, JobEnd::Remapped).await.expect("written");
    let member = Member::here(Role::Agent, "/db");
    set.registry.join(&member).await.expect("it answers");
    let mut rings = Vec::new();
    while rings.last() != Some(&Ring::Members) {
        let ring = tokio::time::timeout(Duration::from_secs(30), bell.recv()).await.expect("it rings");
        rings.push(ring.expect("it lives"));
    }
    assert_eq!(rings, [Ring::Waiting, Ring::Asked, Ring::Ended(T.into()), Ring::Members]);
}

async fn members_come_and_go(set: Set) {
    let (one, two) = (Member::here(Role::Agent, "/db"), Member::here(Role::Agent, "/db"));
    let worker = Member::here(Role::Worker, "");
    for member in [&one, &two, &worker] {
        set.registry.join(member).await.expect("it answers");
    }
    let names = async || -> BTreeSet<String> {
        set.registry.members(Role::Agent).await.expect("read").into_iter().map(|member| member.name).collect()
    };
    assert_eq!(names().await, BTreeSet::from([one.name.clone(), two.name.clone()]));
    set.registry.leave(&one).await.expect("it answers");
    assert_eq!(names().await, BTreeSet::from([two.name.clone()]));
    let silent = "UPDATE caretaker_member SET seen_ms = seen_ms - 3600000";
    sqlx::query(silent).execute(&set.registry.store.pool()).await.expect("set");
    assert!(names().await.is_empty());
    set.registry.stay(&two).await.expect("it answers");
    assert_eq!(names().await, BTreeSet::from([two.name]));
}

async fn work_for_one_process_is_nobody_elses_and_goes_with_it(set: Set) {
    let (claim, refused) = set.registry.begin(vec![new(T, &remap())], "me").await.expect("it answers");
    assert!(refused.is_empty() && claim.jobs[0].state == State::Running);
    let (none, refused) = set.registry.begin(vec![new(T, &remap())], "you").await.expect("it answers");
    assert!(none.jobs.is_empty() && matches!(&refused[0].1, Error::Busy(why) if why.contains("me")));
    set.silence().await;
    set.registry.reap().await.expect("it answers");
    assert_eq!(set.states().await, [State::Cancelled], "who asked for it is gone");
    let own = NewJob { only_worker: Some("pod".into()), ..new(T, &fold("a", 1)) };
    set.put(vec![own]).await;
    assert!(set.take("w").await.is_none());
    let mine = Want { any: false, ..want("pod") };
    assert!(set.registry.claim(&mine, 1_000).await.expect("it answers").is_some());
}

async fn a_schema_of_a_newer_version_is_refused(set: Set) {
    let newer = match set.place {
        Place::Postgres(_) => "INSERT INTO caretaker_schema (version) VALUES (99)",
        _ => "PRAGMA user_version = 99",
    };
    sqlx::query(newer).execute(&set.registry.store.pool()).await.expect("set");
    for refused in [Registry::open(&set.place).await, Registry::look(&set.place).await] {
        let why = refused.expect_err("newer").to_string();
        assert!(why.contains("newer Caretaker") && why.contains("schema 99"), "{why}");
    }
}

#[tokio::test]
async fn an_address_that_leads_nowhere_is_an_error_without_its_password() {
    for address in ["postgres://me:secret@127.0.0.1:1/db?password=secret", "mysql://me:secret@h/db", "postgres://["] {
        let error = Registry::open(&Place::Postgres(address.into())).await.expect_err("nobody is there");
        let said = format!("{error} {error:?}");
        assert!(!said.contains("secret") && said.contains("registry"), "{said}");
    }
    assert_eq!(shown("postgres://me:secret@h:5432/db?password=secret"), "postgres://h:5432/db");
    let hidden =
        format!("{:?}", store::Store::look(&Place::Postgres("postgres://u:secret@127.0.0.1:1/d".into())).await);
    assert!(!hidden.contains("secret"), "{hidden}");
}

#[tokio::test]
async fn a_process_that_died_here_is_known_to_be_dead_at_once() {
    let set = sqlite().await;
    let dead = Registry::open(&set.place).await.expect("the same file");
    let member = Member::here(Role::Worker, "");
    dead.join(&member).await.expect("it answers");
    set.put(vec![new(T, &remap())]).await;
    let claim = dead.claim(&want(&member.name), 1).await.expect("it answers").expect("it waits");
    assert_eq!(set.registry.reap().await.expect("it answers"), 0, "it lives");
    // The lock goes with the process.
    drop(dead);
    std::fs::write(set._dir.path().join("processes").join(&member.name), "").expect("as a crash leaves it");
    assert_eq!(set.registry.reap().await.expect("it answers"), 1);
    assert_eq!(set.take("next").await.expect("again").jobs[0].id, claim.jobs[0].id);
}
