//! Durable upserts through the pod's own route, with and without folds beside them, and through Lance's shard writer
//! called directly: the floor. One process, one machine, all three in turns.
//!
//! `cargo bench -p caretaker-benches --bench pod [-- SECONDS]`: so long each. Requests are Arrow streams of 100 rows of
//! about 130 bytes, over connections that are kept; a write is done when its answer has come.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow_array::{Int64Array, RecordBatch, RecordBatchIterator, StringArray};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use executor::catalog::Root;
use executor::pod::{Bounds, Pod, Pressure};
use executor::registry::{Member, Role};
use executor::serve::{Door, Service};
use executor::table::session;
use executor::tend::Tender;
use executor::worker::Limits;
use futures::future::join_all;
use lance::Dataset;
use lance::dataset::mem_wal::{DatasetMemWalExt, ShardWriterConfig};
use planner::policy::{AgentPolicy, Policy};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

#[cfg(not(target_env = "msvc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const SECONDS: u64 = 8;
const ROWS: usize = 100;
const KEYS: u64 = 1_000_000;
/// Small, so that there is something to fold all the time.
const MEMTABLE_ROWS: usize = 2_000;
const CLIENTS: [usize; 3] = [1, 4, 16];
const SHARDS: [u32; 2] = [1, 8];

fn main() {
    let seconds = std::env::args().skip(1).find_map(|text| text.parse().ok()).unwrap_or(SECONDS);
    let runtime = tokio::runtime::Runtime::new().expect("threads can be started");
    runtime.block_on(bench(Duration::from_secs(seconds)));
}

async fn bench(time: Duration) {
    println!("durable upserts of {ROWS} rows, {} s each; a read is the newest 10 of a range of keys", time.as_secs());
    println!(
        "{:>6} {:>7} {:18} {:>9} {:>8} {:>8} {:>7}  {:>7} {:>9} {:>9}",
        "shards", "clients", "way", "rows/s", "p50 ms", "p99 ms", "ratio", "folds", "read p50", "read p99"
    );
    for shards in SHARDS {
        for clients in CLIENTS {
            let floor = floor(shards, clients, time).await;
            shown(shards, clients, "shard writer", &floor, &floor);
            let off = route(shards, clients, time, false).await;
            shown(shards, clients, "route", &off, &floor);
            let on = route(shards, clients, time, true).await;
            shown(shards, clients, "route, with folds", &on, &floor);
            println!("{:>41} {:.2} of the throughput without", "folds leave", on.rows as f64 / off.rows.max(1) as f64);
        }
    }
}

/// What a way did.
#[derive(Default)]
struct Done {
    rows: u64,
    time: Duration,
    writes: Vec<Duration>,
    reads: Vec<Duration>,
    folds: u64,
}

fn shown(shards: u32, clients: usize, way: &str, done: &Done, floor: &Done) {
    let rate = |done: &Done| done.rows as f64 / done.time.as_secs_f64();
    let at = |times: &[Duration], part: f64| {
        let mut times = times.to_vec();
        times.sort_unstable();
        let index = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
        times.get(index).map_or_else(String::new, |time| format!("{:.1}", time.as_secs_f64() * 1e3))
    };
    println!(
        "{shards:>6} {clients:>7} {way:18} {:>9.0} {:>8} {:>8} {:>6.2}x  {:>7} {:>9} {:>9}",
        rate(done),
        at(&done.writes, 0.5),
        at(&done.writes, 0.99),
        rate(done) / rate(floor),
        done.folds,
        at(&done.reads, 0.5),
        at(&done.reads, 0.99)
    );
}

fn schema() -> SchemaRef {
    let key = "lance-schema:unenforced-primary-key";
    let metadata = [(key.to_string(), "true".to_string()), (format!("{key}:position"), "1".into())];
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false).with_metadata(metadata.into()),
        Field::new("text", DataType::Utf8, true),
    ]))
}

/// Different keys each time, the same in each way.
fn rows(turn: u64) -> RecordBatch {
    let key = |n: u64| ((turn * ROWS as u64 + n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % KEYS;
    let ids: Vec<i64> = (0..ROWS as u64).map(|n| key(n) as i64).collect();
    let text: Vec<String> = ids.iter().map(|id| format!("{id:0>120}")).collect();
    RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from(ids)), Arc::new(StringArray::from(text))])
        .expect("of the schema")
}

async fn table(uri: &str, shards: u32) -> Dataset {
    let first = RecordBatchIterator::new([Ok(rows(0))], schema());
    let mut dataset = Dataset::write(first, uri, None).await.expect("it is written");
    let spec = dataset.initialize_mem_wal();
    let spec = if shards == 1 { spec.unsharded() } else { spec.bucket_sharding("id", shards) };
    spec.add_writer_config_default("max_memtable_rows", MEMTABLE_ROWS.to_string()).execute().await.expect("it is set");
    dataset
}

/// The shard writer alone: nothing is routed, nothing is sent.
async fn floor(shards: u32, clients: usize, time: Duration) -> Done {
    let dir = tempfile::tempdir().expect("a folder");
    let dataset = table(dir.path().join("t.lance").to_str().expect("text"), shards).await;
    let config = || ShardWriterConfig { max_memtable_rows: MEMTABLE_ROWS, ..ShardWriterConfig::default() };
    let open = (0..shards).map(|_| dataset.mem_wal_writer(Uuid::new_v4(), config()));
    let writers = join_all(open).await.into_iter().collect::<Result<Vec<_>, _>>().expect("they are claimed");
    let (began, turns) = (Instant::now(), AtomicU64::new(1));
    let work = (0..clients).map(|_| async {
        let mut took = Vec::new();
        while began.elapsed() < time {
            let batch = rows(turns.fetch_add(1, Ordering::Relaxed));
            let one = Instant::now();
            // As many parts as the route makes of a request.
            let part = ROWS / writers.len();
            let puts = writers.iter().enumerate().map(|(n, writer)| writer.put(vec![batch.slice(n * part, part)]));
            join_all(puts).await.into_iter().collect::<Result<Vec<_>, _>>().expect("they are written");
            took.push(one.elapsed());
        }
        took
    });
    let writes: Vec<Duration> = join_all(work).await.into_iter().flatten().collect();
    let done = Done { rows: (writes.len() * ROWS) as u64, time: began.elapsed(), writes, ..Done::default() };
    for writer in writers {
        writer.close().await.expect("it is closed");
    }
    done
}

/// The whole way: HTTP, Arrow, keys, routing, log; and somebody who reads.
async fn route(shards: u32, clients: usize, time: Duration, folds: bool) -> Done {
    let dir = tempfile::tempdir().expect("a folder");
    table(dir.path().join("t.lance").to_str().expect("text"), shards).await;
    let (address, stop, served) = serving(dir.path(), folds).await;
    let (began, turns, over) = (Instant::now(), AtomicU64::new(1), AtomicBool::new(false));
    let writes = async {
        let work = (0..clients).map(|_| async {
            let (mut line, mut took) = (Line::to(address).await, Vec::new());
            while began.elapsed() < time {
                let body = stream(&rows(turns.fetch_add(1, Ordering::Relaxed)));
                let one = Instant::now();
                line.post(
                    "/v1/table/t/merge_insert/?on=id&when_matched_update_all=true&when_not_matched_insert_all=true",
                    ARROW,
                    &body,
                )
                .await;
                took.push(one.elapsed());
            }
            took
        });
        let writes: Vec<Duration> = join_all(work).await.into_iter().flatten().collect();
        over.store(true, Ordering::Relaxed);
        (writes, began.elapsed())
    };
    let reads = async {
        let (mut line, mut took) = (Line::to(address).await, Vec::new());
        let mut turn = 0;
        while !over.load(Ordering::Relaxed) {
            turn += 1;
            let from = turn * 7_919 % KEYS;
            let body = format!(r#"{{"vector": [], "k": 10, "filter": "id >= {from} AND id < {}"}}"#, from + 1_000);
            let one = Instant::now();
            line.post("/v1/table/t/query/", "application/json", body.as_bytes()).await;
            took.push(one.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        took
    };
    let ((writes, time), reads) = tokio::join!(writes, reads);
    let mut line = Line::to(address).await;
    let metrics = String::from_utf8(line.get("/metrics").await).expect("text");
    let folded = r#"caretaker_jobs_total{outcome="done",type="memwal_compaction"} "#;
    let folds = metrics.lines().find_map(|line| line.strip_prefix(folded)?.parse::<f64>().ok()).unwrap_or(0.0) as u64;
    stop.cancel();
    served.await.expect("it ends").expect("it ends well");
    Done { rows: (writes.len() * ROWS) as u64, time, writes, reads, folds }
}

const ARROW: &str = "application/vnd.apache.arrow.stream";

fn stream(batch: &RecordBatch) -> Vec<u8> {
    let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema()).expect("a stream");
    writer.write(batch).expect("it is written");
    writer.into_inner().expect("it ends")
}

type Served = tokio::task::JoinHandle<executor::error::Result<()>>;

async fn serving(root: &Path, folds: bool) -> (SocketAddr, CancellationToken, Served) {
    let (stop, drained, session) = (CancellationToken::new(), CancellationToken::new(), session());
    let agent = AgentPolicy { tick_ms: 1_000, ..AgentPolicy::default() };
    let trigger_count = if folds { Policy::default().trigger_count } else { u64::MAX };
    let policy = Policy { trigger_count, agent, ..Policy::default() };
    let tender = Tender::new(policy, session.clone(), drained.clone());
    // Nobody is refused here: what is measured is what it costs to write, not to wait for a fold.
    let bounds = Bounds { slow_sstables: 1 << 30, stop_sstables: 1 << 31, ..Bounds::default() };
    let service = Service {
        root: Root::parse(root.to_str().expect("text")).expect("a folder"),
        session,
        tender: Arc::new(tender),
        member: Member::here(Role::Agent, root.to_str().expect("text")),
        limits: Limits { jobs: 2, folds: 2, memory_bytes: 1 << 32, own: 2 },
        pod: Arc::new(Pod::new(Pressure::new(bounds))),
        drained,
        listen: Some(Door::local("127.0.0.1:0".parse().expect("an address"))),
    };
    let (bound, address) = tokio::sync::oneshot::channel();
    let until = stop.clone();
    let served = tokio::spawn(async move { service.run_at(until, |at| bound.send(at).expect("it waits")).await });
    (address.await.expect("it listens"), stop, served)
}

/// One connection that is kept.
struct Line {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl Line {
    async fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("it is answered");
        stream.set_nodelay(true).expect("a socket");
        let (read, write) = stream.into_split();
        Self { read: BufReader::new(read), write }
    }

    async fn post(&mut self, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: bench\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.write.write_all(&[head.as_bytes(), body].concat()).await.expect("it is sent");
        self.answer(path).await
    }

    async fn get(&mut self, path: &str) -> Vec<u8> {
        let head = format!("GET {path} HTTP/1.1\r\nhost: bench\r\n\r\n");
        self.write.write_all(head.as_bytes()).await.expect("it is sent");
        self.answer(path).await
    }

    async fn answer(&mut self, path: &str) -> Vec<u8> {
        let (mut head, mut length, mut chunked) = (String::new(), 0, false);
        loop {
            let mut line = String::new();
            self.read.read_line(&mut line).await.expect("an answer");
            let lower = line.to_ascii_lowercase();
            length = lower.strip_prefix("content-length:").map_or(length, |n| n.trim().parse().expect("a number"));
            chunked |= lower.starts_with("transfer-encoding: chunked");
            if line.trim().is_empty() {
                break;
            }
            head.push_str(&line);
        }
        let body = if chunked { self.chunks().await } else { self.exactly(length).await };
        assert!(head.starts_with("HTTP/1.1 2"), "{path}: {head}{}", String::from_utf8_lossy(&body));
        body
    }

    async fn exactly(&mut self, length: usize) -> Vec<u8> {
        let mut body = vec![0; length];
        self.read.read_exact(&mut body).await.expect("the whole answer");
        body
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.read.read_line(&mut line).await.expect("an answer");
            let size = usize::from_str_radix(line.trim(), 16).expect("a size");
            body.extend(self.exactly(size).await);
            self.exactly(2).await;
            if size == 0 {
                return body;
            }
        }
    }
}
