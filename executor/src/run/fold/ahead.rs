//! Reads on another core while this one works on what came before.

use std::pin::Pin;

use futures::stream::{self, BoxStream, Peekable};
use futures::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::error::{Error, Result};

/// Scans open at once: the one being read and the next, so that nobody waits for a file to open.
pub(super) const OPEN_SCANS: usize = 2;
/// Batches that may wait between reader and worker.
const WAITING: usize = 1;

/// The items of `scans`, one scan after the other, read by a task of their own that ends with the
/// stream. At most [`OPEN_SCANS`] scans are open.
pub(super) fn ahead<T: Send + 'static>(
    scans: impl IntoIterator<Item = BoxStream<'static, Result<T>>, IntoIter: Send + 'static>,
) -> BoxStream<'static, Result<T>> {
    let (sender, receiver) = mpsc::channel(WAITING);
    let mut items = stream::iter(scans).map(opened).buffered(OPEN_SCANS).flatten();
    // A set, because it aborts what it holds when it is dropped.
    let mut reader = JoinSet::new();
    reader.spawn(async move {
        while let Some(item) = items.next().await {
            if sender.send(item).await.is_err() {
                return;
            }
        }
    });
    stream::unfold((receiver, reader), async |(mut receiver, mut reader)| {
        let item = match receiver.recv().await {
            Some(item) => item,
            // The end of the rows, unless the reader died: then it must not look like the end.
            None => Err(reader.join_next().await?.err().map(|e| Error::Fatal(format!("a scan died: {e}")))?),
        };
        Some((item, (receiver, reader)))
    })
    .boxed()
}

/// A scan whose first item has been read.
async fn opened<T>(scan: BoxStream<'static, Result<T>>) -> Peekable<impl Stream<Item = Result<T>>> {
    let mut scan = scan.peekable();
    let _ = Pin::new(&mut scan).peek().await;
    scan
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;

    use super::*;

    fn scan(items: impl IntoIterator<Item = u32, IntoIter: Send + 'static>) -> BoxStream<'static, Result<u32>> {
        stream::iter(items).map(Ok).boxed()
    }

    #[tokio::test]
    async fn items_come_scan_by_scan() {
        let all: Vec<u32> = ahead([scan(0..5), scan([]), scan(5..9)]).try_collect().await.unwrap();
        assert_eq!(all, (0..9).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_reader_that_dies_is_an_error_and_never_the_end_of_the_rows() {
        let dying = scan((0..9).map(|i| if i == 3 { panic!("on purpose") } else { i }));
        let read: Vec<Result<u32>> = ahead([dying]).collect().await;
        assert!(matches!(read.last(), Some(Err(Error::Fatal(_)))), "{read:?}");
        assert_eq!(read.len(), 4);
    }

    #[tokio::test]
    async fn an_error_comes_where_it_happened() {
        let failing = stream::iter([Ok(1), Err(Error::Invalid("bad".into()))]).boxed();
        let read: Vec<Result<u32>> = ahead([failing]).collect().await;
        assert!(matches!(read.as_slice(), [Ok(1), Err(Error::Invalid(_))]), "{read:?}");
    }
}
