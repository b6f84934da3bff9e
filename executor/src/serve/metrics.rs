//! What Prometheus scrapes.

mod by_table;
mod pod;
mod policy;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lance_io::object_store::ObjectStore;
use planner::agent::Coverage;
use planner::facts::TableFacts;
use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use self::by_table::ByTable;
use self::pod::OfPod;
use self::policy::OfPolicy;
use crate::decide::Decider;
use crate::error::{Error, Result};
use crate::pod::Pod;
use crate::report::{JobEnd, JobReport};

/// What each of the five numbers of coverage is (R5.1), in the order of [`Coverage::metrics`].
const COVERAGE: [&str; 5] = [
    "Owned tables without a successful evaluation yet.",
    "Age of the last successful evaluation of the table that waits longest, seconds.",
    "Tables of the current coverage cycle that are still owned.",
    "Tables of the current coverage cycle that have not been evaluated in it.",
    "Coverage cycles in which every table was evaluated.",
];
/// Upper bounds of the histograms, seconds: an evaluation of a small local table to a day's compaction.
const EVALUATION_SECONDS: &[f64] = &[0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
const JOB_SECONDS: &[f64] = &[0.05, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0];
const HTTP_SECONDS: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Every metric of the process.
pub(super) struct Metrics {
    registry: Registry,
    coverage: Vec<IntGauge>,
    cycles: IntCounter,
    jobs: IntCounterVec,
    job_seconds: HistogramVec,
    job_rows: IntCounterVec,
    job_bytes: IntCounterVec,
    compared: IntCounterVec,
    open_jobs: IntGaugeVec,
    agents: IntGauge,
    evaluations: IntCounterVec,
    evaluation_seconds: Histogram,
    requests: IntCounterVec,
    walks: IntCounter,
    tables: IntGauge,
    failing: IntGauge,
    ticked: IntGauge,
    listed: IntGauge,
    listing_failures: IntGauge,
    by_table: ByTable,
    of_pod: OfPod,
    of_policy: OfPolicy,
    http: IntCounterVec,
    http_seconds: HistogramVec,
    store: Option<Arc<ObjectStore>>,
}

impl Metrics {
    /// Metrics of a server on `store`; of a worker, which has no store of its own.
    pub(super) fn new(store: Option<Arc<ObjectStore>>) -> Result<Self> {
        Self::registered(store).map_err(|e| Error::Fatal(format!("the metrics contradict each other: {e}")))
    }

    fn registered(store: Option<Arc<ObjectStore>>) -> prometheus::Result<Self> {
        let r = &Registry::new();
        // A worker decides nothing: what it would say about that is not told.
        let untold = &Registry::new();
        let a = if store.is_some() { r } else { untold };
        let (mut coverage, mut cycles) = (Vec::new(), None);
        for ((name, _), help) in Coverage::default().metrics().into_iter().zip(COVERAGE) {
            if name.ends_with("_total") {
                cycles = Some(kept(a, IntCounter::new(name, help)?)?);
            } else {
                coverage.push(kept(a, IntGauge::new(name, help)?)?);
            }
        }
        let gauge = |name: &str, help: &str| kept(a, IntGauge::new(name, help)?);
        let counter =
            |to: &Registry, name, help, labels: &[&str]| kept(to, IntCounterVec::new(Opts::new(name, help), labels)?);
        let seconds = |name, help, buckets: &[f64]| HistogramOpts::new(name, help).buckets(buckets.to_vec());
        let job_seconds = seconds("caretaker_job_seconds", "Wall time of jobs.", JOB_SECONDS);
        let evaluation = seconds("caretaker_evaluation_seconds", "Wall time of evaluations.", EVALUATION_SECONDS);
        let http = seconds("caretaker_http_request_seconds", "Until the answer began.", HTTP_SECONDS);
        let open_jobs = Opts::new("caretaker_registry_jobs", "Jobs of the registry that wait, or run: of all tables.");
        Ok(Self {
            coverage,
            cycles: cycles.ok_or_else(|| prometheus::Error::Msg("no counter of cycles".into()))?,
            jobs: counter(r, "caretaker_jobs_total", "Jobs that ended.", &["type", "outcome"])?,
            job_seconds: kept(r, HistogramVec::new(job_seconds, &["type"])?)?,
            job_rows: counter(r, "caretaker_job_rows_total", "Rows that jobs wrote, changed or deleted.", &["type"])?,
            job_bytes: counter(r, "caretaker_job_bytes_total", "Bytes that jobs wrote or deleted.", &["type"])?,
            compared: counter(
                r,
                "caretaker_job_answers_total",
                "Jobs around which answers were compared: same, partly (something could not be), or changed.",
                &["type", "outcome"],
            )?,
            open_jobs: kept(a, IntGaugeVec::new(open_jobs, &["state"])?)?,
            agents: gauge("caretaker_agents", "Agents of this root that live, this one among them.")?,
            evaluations: counter(a, "caretaker_evaluations_total", "Evaluations that ended.", &["outcome"])?,
            evaluation_seconds: kept(a, Histogram::with_opts(evaluation)?)?,
            requests: counter(a, "caretaker_object_store_requests_total", "Requests to the root's storage.", &["op"])?,
            walks: kept(a, IntCounter::new("caretaker_walks_total", "Walks over all tables that ended (R2.1).")?)?,
            tables: gauge("caretaker_tables", "Tables in the catalogue.")?,
            failing: gauge("caretaker_tables_failing", "Tables whose last evaluation failed.")?,
            ticked: gauge("caretaker_agent_tick_timestamp_seconds", "When the agent last ticked.")?,
            listed: gauge("caretaker_catalog_listed_timestamp_seconds", "When the catalogue was last listed.")?,
            listing_failures: gauge("caretaker_catalog_failures", "Failed listings of the catalogue in a row.")?,
            by_table: ByTable::new(a)?,
            of_pod: OfPod::new(a)?,
            of_policy: OfPolicy::new(a)?,
            http: counter(r, "caretaker_http_requests_total", "Requests that were answered.", &["route", "status"])?,
            http_seconds: kept(r, HistogramVec::new(http, &["route"])?)?,
            registry: r.clone(),
            store,
        })
    }

    /// The agent has ticked.
    pub(super) fn ticked(&self, coverage: &Coverage, failing: usize, now_ms: u64) {
        let (mut gauges, mut cycles) = (self.coverage.iter(), 0);
        for (name, value) in coverage.metrics() {
            if name.ends_with("_total") {
                cycles = value;
            } else if let Some(gauge) = gauges.next() {
                gauge.set(signed(value));
            }
        }
        self.cycles.inc_by(cycles.saturating_sub(self.cycles.get()));
        self.failing.set(signed(failing as u64));
        self.ticked.set(signed(now_ms / 1000));
    }

    /// Jobs that wait and jobs that run, and how many agents live.
    pub(super) fn jobs(&self, open: (u64, u64), agents: usize) {
        for (state, count) in [("pending", open.0), ("running", open.1)] {
            self.open_jobs.with_label_values(&[state]).set(signed(count));
        }
        self.agents.set(signed(agents as u64));
    }

    /// A walk has ended.
    pub(super) fn walked(&self) {
        self.walks.inc();
    }

    /// The catalogue was listed, or could not be.
    pub(super) fn listed(&self, failures: u64, now_ms: u64) {
        self.listing_failures.set(signed(failures));
        if failures == 0 {
            self.listed.set(signed(now_ms / 1000));
        }
    }

    /// These are the tables now; what was known of others goes.
    pub(super) fn owned(&self, tables: &BTreeSet<String>) {
        self.tables.set(signed(tables.len() as u64));
        self.by_table.retain(tables);
    }

    /// A table was evaluated with success.
    pub(super) fn table(&self, table: &str, facts: &TableFacts, now_ms: u64) {
        self.by_table.evaluated(table, facts, now_ms);
    }

    /// A table failed, so often in a row.
    pub(super) fn failing(&self, table: &str, times: u64) {
        self.by_table.failing(table, times);
    }

    /// An evaluation ended: `done`, `failed`, `timeout` or `cancelled`.
    pub(super) fn evaluated(&self, outcome: &str, took: Option<Duration>) {
        self.evaluations.with_label_values(&[outcome]).inc();
        if let Some(took) = took {
            self.evaluation_seconds.observe(took.as_secs_f64());
        }
    }

    /// A job ended.
    pub(super) fn job(&self, report: &JobReport) {
        let job = &[report.job.as_str()];
        self.jobs.with_label_values(&[report.job.as_str(), report.end.outcome()]).inc();
        self.job_seconds.with_label_values(job).observe(Duration::from_millis(report.millis).as_secs_f64());
        let compared = match &report.answers {
            _ if report.end.is_mismatch() => Some("changed"),
            Some(answers) if answers.skipped.is_empty() => Some("same"),
            Some(_) => Some("partly"),
            None => None,
        };
        if let Some(outcome) = compared {
            self.compared.with_label_values(&[report.job.as_str(), outcome]).inc();
        }
        let (rows, bytes) = match &report.end {
            JobEnd::Folded(fold) => (fold.rows_inserted + fold.rows_updated + fold.rows_deleted, fold.bytes_written),
            JobEnd::Compacted(compact) => (compact.rows, compact.bytes_written),
            JobEnd::Collected { bytes, .. } => (0, *bytes),
            JobEnd::Cleaned(cleanup) => (0, cleanup.bytes),
            _ => (0, 0),
        };
        self.job_rows.with_label_values(job).inc_by(rows);
        self.job_bytes.with_label_values(job).inc_by(bytes);
    }

    /// A request was answered.
    pub(super) fn answered(&self, route: &str, status: u16, took: Duration) {
        self.http.with_label_values(&[route, &status.to_string()]).inc();
        self.http_seconds.with_label_values(&[route]).observe(took.as_secs_f64());
    }

    /// Who decides.
    pub(super) fn policy(&self, decider: &Decider) {
        self.of_policy.fill(decider);
    }

    /// How the shard writers are.
    pub(super) fn pod(&self, pod: &Pod) {
        self.of_pod.fill(pod);
    }

    /// Everything, as Prometheus reads it.
    pub(super) fn text(&self, now_ms: u64) -> Result<String> {
        let stats = self.store.iter().map(|store| store.io_stats_snapshot());
        for (op, count) in stats.flat_map(|stats| [("read", stats.read_iops), ("write", stats.write_iops)]) {
            let counter = self.requests.with_label_values(&[op]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
        let _still = self.by_table.fill(now_ms);
        let text = TextEncoder::new().encode_to_string(&self.registry.gather());
        text.map_err(|e| Error::Fatal(format!("the metrics can't be written: {e}")))
    }
}

/// A metric, once the registry has it.
fn kept<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> prometheus::Result<M> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
