//! Progress on standard error, where that is a terminal: one bar for the tables, one for each pass.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use tracing_subscriber::fmt::MakeWriter;

use crate::run::Progress;

/// Lance calls it an error, each time that it loads the index of a MemWAL, which has none by its nature.
const NO_FIELDS: &[u8] = b"Index __lance_mem_wal has no fields";
/// How often a bar looks at the counters it shows.
const REDRAW: Duration = Duration::from_millis(100);
const TABLES: &str = "{prefix:24!} {bar:30} {human_pos}/{human_len} tables  {elapsed}";
const PASS: &str = "{prefix:24!} {bar:30} {human_pos}/{human_len} rows";
/// Of a stage that counts no rows.
const STAGE: &str = "{prefix:24!}";

/// The bars of a run. Off a terminal they draw nothing.
#[derive(Clone, Default)]
pub(super) struct Bars {
    multi: MultiProgress,
    passes: Arc<Mutex<BTreeMap<String, Pass>>>,
}

struct Pass {
    progress: Arc<Progress>,
    bar: Option<ProgressBar>,
}

impl Bars {
    /// Begins a bar over `tables` tables, and redraws the passes until the guard is dropped.
    pub(super) fn start(&self, tables: u64) -> Run {
        let all = self.multi.add(ProgressBar::new(tables));
        all.set_style(style(TABLES));
        all.set_prefix("caretaker");
        let (bars, total) = (self.clone(), all.clone());
        let drawn = tokio::spawn(async move {
            let mut redraw = tokio::time::interval(REDRAW);
            loop {
                redraw.tick().await;
                total.tick();
                bars.draw();
            }
        });
        Run { bars: self.clone(), all, drawn }
    }

    fn draw(&self) {
        for (name, pass) in self.passes.lock().unwrap_or_else(|e| e.into_inner()).iter_mut() {
            let (stage, done, total) = pass.progress.read();
            if stage.is_empty() {
                continue;
            }
            let bar = pass.bar.get_or_insert_with(|| self.multi.add(ProgressBar::new(total)));
            bar.set_style(style(if total == 0 { STAGE } else { PASS }));
            bar.set_prefix(format!("{name}: {stage}"));
            bar.set_length(total);
            bar.set_position(done);
        }
    }
}

/// Bars that are up.
pub(super) struct Run {
    bars: Bars,
    all: ProgressBar,
    drawn: tokio::task::JoinHandle<()>,
}

impl Run {
    /// A table begins; the counters it shall write to.
    pub(super) fn begin(&self, table: &str) -> Arc<Progress> {
        let progress = Arc::<Progress>::default();
        let pass = Pass { progress: progress.clone(), bar: None };
        self.bars.passes.lock().unwrap_or_else(|e| e.into_inner()).insert(table.to_string(), pass);
        progress
    }

    /// A table is done.
    pub(super) fn end(&self, table: &str) {
        let pass = self.bars.passes.lock().unwrap_or_else(|e| e.into_inner()).remove(table);
        if let Some(bar) = pass.and_then(|pass| pass.bar) {
            bar.finish_and_clear();
            self.bars.multi.remove(&bar);
        }
        self.all.inc(1);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.drawn.abort();
        self.all.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants: a wrong one shows at the first run, as plain default bars.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("━╸─")
}

/// Log lines go above the bars, not through them.
impl<'a> MakeWriter<'a> for Bars {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(&self.multi)
    }
}

/// One log line.
pub(super) struct Line<'a>(&'a MultiProgress);

impl Write for Line<'_> {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        if line.windows(NO_FIELDS.len()).any(|part| part == NO_FIELDS) {
            return Ok(line.len());
        }
        self.0.suspend(|| std::io::stderr().write(line))
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}
