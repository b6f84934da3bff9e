//! Facts and plans as text. The CLI, the browser and the tests show the same picture.
//!
//! ```text
//! shard 3f      12345678
//!   base        ====....
//!   sstables    ....####     16M each, oldest 9m
//!   btree       ====....
//! ```
//!
//! One column a generation: `=` covered, `#` an SSTable, `.` nothing. Long ranges share columns,
//! so that no line reaches [`WIDTH`] columns.

mod base;
mod facts;
mod plan;
mod svg;
mod timeline;
mod unit;

pub use facts::facts;
pub use plan::{decision, hold, job, plan, reason, verdict};
pub use svg::svg;
pub use timeline::timeline;
pub use unit::{bytes, duration, generations};

/// Lines stay shorter than this, names and all.
pub const WIDTH: usize = 100;

/// Cuts a line to [`WIDTH`].
fn fit(line: &str) -> alloc::string::String {
    cut(line.trim_end(), WIDTH - 1)
}

/// At most `max` characters of `text`, with `…` for what is left out. Control characters would
/// break the picture, so they become `?`.
pub(crate) fn cut(text: &str, max: usize) -> alloc::string::String {
    let shown = |c: char| if c.is_control() { '?' } else { c };
    if text.chars().count() <= max {
        return text.chars().map(shown).collect();
    }
    text.chars().take(max.saturating_sub(1)).map(shown).chain(['…']).collect()
}
