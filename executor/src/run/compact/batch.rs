//! How many rows a compaction may hold at once. Lance counts a batch in rows, so it is the widest
//! stretch of rows that decides, not the mean: a few long texts among many short ones stand together.

use std::sync::Arc;

use lance_encoding::decoder::{ColumnInfo, PageInfo};
use lance_file::reader::FileReader;
use lance_io::scheduler::{ScanScheduler, SchedulerConfig};
use lance_table::format::Fragment;

use crate::error::{Doing, Result};
use crate::table::Table;

/// Bytes of a batch on its way from the old fragments into the new ones.
const BATCH_BYTES: u64 = 8 << 20;
/// Most bytes of the widest batch. A single row may be wider.
const WIDEST_BYTES: u64 = 64 << 20;
/// Most rows of a batch.
const ROWS_MAX: u64 = 8192;
/// Bytes of footers read at once.
const IO_BYTES: u64 = 8 << 20;

/// Rows and bytes of a page, in the order of a column.
type Page = (u64, u64);

/// Rows of a batch for the rewrite of `fragments`.
pub(super) async fn rows(table: &Table, fragments: impl Iterator<Item = &Fragment> + Clone) -> usize {
    let bytes: u64 = fragments.clone().map(crate::run::files::data_bytes).sum();
    let rows: u64 = fragments.clone().map(|f| f.physical_rows.unwrap_or_default() as u64).sum();
    let mut batch = (BATCH_BYTES / bytes.checked_div(rows).unwrap_or(1).max(1)).clamp(1, ROWS_MAX);
    for fragment in fragments {
        // A footer that can't be read is the rewrite's own to complain of.
        let Ok(columns) = columns(table, fragment).await else { continue };
        while batch > 1 && widest(&columns, batch) > WIDEST_BYTES {
            batch /= 2;
        }
    }
    batch as usize
}

/// The pages of each column of a fragment, from the footers of its files.
async fn columns(table: &Table, fragment: &Fragment) -> Result<Vec<Vec<Page>>> {
    let scheduler = ScanScheduler::new(table.store(), SchedulerConfig::new(IO_BYTES));
    let mut columns = Vec::new();
    for file in fragment.files.iter().filter(|file| file.base_id.is_none()) {
        let path = table.base().join("data").join(file.path.as_str());
        let reading = || format!("reading the footer of `{path}`");
        let opened = scheduler.open_file(&path, &file.file_size_bytes).await.doing(reading)?;
        let metadata = FileReader::read_all_metadata(&opened).await.doing(reading)?;
        let pages = |column: &Arc<ColumnInfo>| {
            let size = |page: &PageInfo| page.buffer_offsets_and_sizes.iter().map(|(_, size)| size).sum();
            column.page_infos.iter().map(|page| (page.num_rows, size(page))).collect()
        };
        columns.extend(metadata.column_infos.iter().map(pages));
    }
    Ok(columns)
}

/// Bytes of the widest `rows` neighbouring rows, as far as pages tell.
fn widest(columns: &[Vec<Page>], rows: u64) -> u64 {
    columns.iter().map(|pages| (0..pages.len()).map(|first| stretch(&pages[first..], rows)).max().unwrap_or(0)).sum()
}

/// Bytes of `rows` rows from the start of a page on; inside of a page all rows count as equal.
fn stretch(pages: &[Page], rows: u64) -> u64 {
    let (mut left, mut bytes) = (rows, 0u64);
    for (in_page, size) in pages {
        if *in_page >= left {
            let share = u128::from(*size) * u128::from(left) / u128::from((*in_page).max(1));
            return bytes.saturating_add(u64::try_from(share).unwrap_or(u64::MAX));
        }
        left -= in_page;
        bytes = bytes.saturating_add(*size);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_widest_stretch_counts_and_not_the_mean() {
        let one = |pages: &[Page], rows| widest(&[pages.to_vec()], rows);
        let narrow = vec![(1_000, 8_000), (1_000, 8_000)];
        let skewed = vec![(600_000, 600_000), (1, 100 << 20), (1, 100 << 20), (1, 100 << 20)];
        assert_eq!(one(&narrow, 500), 4_000);
        assert_eq!(one(&narrow, 1_500), 12_000);
        assert_eq!(one(&skewed, 2), 200 << 20);
        assert_eq!(widest(&[narrow, skewed], 1), 8 + (100 << 20));
        assert_eq!(widest(&[Vec::new()], 8), 0);
    }
}
