//! Thirty days of each preset: what comes of it, and how long the simulation takes.
//!
//! ```text
//! cargo run --release -p caretaker-planner --example simulate
//! ```

use std::time::Instant;

use planner::simulate::{PRESETS, Simulation, Workload, run};

fn main() {
    hostile();
    for preset in PRESETS {
        let workload = Workload::preset(preset.name).expect("a preset");
        let simulation = Simulation { workload, duration_ms: 30 * 86_400_000, ..Simulation::default() };
        let mut times = Vec::new();
        for _ in 0..9 {
            let began = Instant::now();
            let timeline = run(&simulation);
            times.push(began.elapsed().as_secs_f64() * 1000.0);
            std::hint::black_box(&timeline).as_ref().expect("it ends");
        }
        times.sort_by(f64::total_cmp);
        let timeline = run(&simulation).expect("it ends");
        let totals = &timeline.totals;
        println!(
            "{:16} {:7.1} ms  {} steps, {} evaluations, {} flushes, {} passes, write x{}.{:03}, staleness max {} s",
            preset.name,
            times[times.len() / 2],
            totals.steps,
            totals.evaluations,
            totals.flushes,
            totals.passes,
            totals.write_amplification_permille / 1000,
            totals.write_amplification_permille % 1000,
            totals.staleness.over_time.max / 1000
        );
    }
}

/// How long it takes until what has too many events is refused.
fn hostile() {
    let tiny = || Workload { rows_per_write: 1, flush_rows: 1, ..Workload::default() };
    let busy = Workload { rows_per_sec: 10_000_000, shards: 64, ..tiny() };
    let commits = Workload { rows_per_sec: 10_000_000, lsm: 0, ..tiny() };
    let single = Workload { rows_per_sec: 10, table_rows: 1 << 40, update_permille: 500, ..tiny() };
    let loads = [("64 shards", busy), ("commits", commits), ("large base", single)];
    for (name, workload) in loads {
        let began = Instant::now();
        let simulation = Simulation { workload, duration_ms: 400 * 86_400_000, ..Simulation::default() };
        let answer = run(&simulation).map(|timeline| timeline.totals.steps);
        println!("{name:16} {:7.1} ms  {answer:?}", began.elapsed().as_secs_f64() * 1000.0);
    }
}
