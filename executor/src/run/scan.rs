//! How much a scan may hold at once.

use lance::dataset::scanner::Scanner;

/// How much a scan may hold at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScanLimits {
    pub(crate) batch_bytes: u64,
    pub(crate) io_bytes: u64,
}

impl ScanLimits {
    /// Bounds `scanner`, in rows too: a byte target alone is checked after decoding.
    pub(crate) fn apply<'a>(&self, scanner: &'a mut Scanner, row_bytes: u64) -> &'a mut Scanner {
        let rows = (self.batch_bytes / row_bytes.max(1)).clamp(1, 8192);
        scanner
            .batch_size(rows as usize)
            .batch_size_bytes(self.batch_bytes)
            .io_buffer_size(self.io_bytes)
            .materialization_readahead_bytes(self.batch_bytes)
            .batch_readahead(2)
            .fragment_readahead(1)
            .scan_in_order(true)
    }
}
