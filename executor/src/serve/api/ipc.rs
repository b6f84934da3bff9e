//! Rows in requests and answers, as Arrow writes them: a stream in, a file out, batch by batch.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{FileWriter, StreamWriter};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};
use axum::body::{Body, BodyDataStream, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use datafusion::arrow::buffer::Buffer;
use datafusion::error::DataFusionError;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};

use super::Refused;
use super::call::too_large;

/// Bytes of rows in one request.
const ROWS_MAX: u64 = 1 << 30;
/// Rows of one batch: a column without values takes no bytes until it is cast.
const BATCH_ROWS_MAX: usize = 1 << 27;
/// What stands before the head of a message: that one follows, and the head's length.
const MARK: usize = 8;
const CONTINUES: [u8; 4] = [0xff; 4];
/// Bytes of a message's head.
const ABOUT_MAX: usize = 16 << 20;
/// The types of an answer of rows.
const FILE: &str = "application/vnd.apache.arrow.file";
const STREAM: &str = "application/vnd.apache.arrow.stream";

/// The rows of a request, as they come in.
pub(super) struct Incoming {
    pub(super) schema: SchemaRef,
    pub(super) batches: BoxStream<'static, Result<RecordBatch, DataFusionError>>,
    pub(super) fault: Fault,
}

/// What is wrong with the rows of a request. It is found while Lance draws them, and would come out of
/// Lance as an error of its own.
#[derive(Clone, Default)]
pub(super) struct Fault(Arc<Mutex<Option<Refused>>>);

impl Fault {
    /// Notes what is wrong, for Lance to stop at.
    pub(super) fn note(&self, refused: Refused) -> DataFusionError {
        let error = DataFusionError::Execution(refused.why.clone());
        *self.0.lock().unwrap_or_else(|e| e.into_inner()) = Some(refused);
        error
    }

    /// What is wrong with the rows, or else what Lance says.
    pub(super) fn or(&self, error: impl Into<Refused>) -> Refused {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).take().unwrap_or_else(|| error.into())
    }
}

impl Incoming {
    /// Reads a body up to its first batch.
    ///
    /// # Errors
    /// It holds no rows and not even the schema of some, or is no Arrow at all.
    pub(super) async fn open(body: Body) -> Result<Self, Refused> {
        let mut decoding = Decoding::new(body);
        let first = decoding.next().await?;
        let schema = decoding.decoder.schema();
        let schema = schema.ok_or_else(|| Refused::invalid("the body is empty; send an Arrow IPC stream"))?;
        let fault = Fault::default();
        let rest = stream::unfold(Some((decoding, fault.clone())), |state| async {
            let (mut decoding, fault) = state?;
            match decoding.next().await {
                Ok(batch) => Some((Ok(batch?), Some((decoding, fault)))),
                Err(refused) => Some((Err(fault.note(refused)), None)),
            }
        });
        let batches = stream::iter(first.map(Ok)).chain(rest.fuse()).boxed();
        Ok(Self { schema, batches, fault })
    }

    /// The rows as Lance takes them.
    pub(super) fn stream(self) -> SendableRecordBatchStream {
        Box::pin(RecordBatchStreamAdapter::new(self.schema, self.batches))
    }
}

/// Batches out of the pieces of a body.
struct Decoding {
    body: BodyDataStream,
    decoder: StreamDecoder,
    held: Vec<u8>,
    /// What the decoder has not looked at yet.
    message: Buffer,
    taken: u64,
    ended: bool,
}

impl Decoding {
    fn new(body: Body) -> Self {
        let (body, decoder) = (body.into_data_stream(), StreamDecoder::new());
        Self { body, decoder, held: Vec::new(), message: Buffer::from_vec(Vec::<u8>::new()), taken: 0, ended: false }
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, Refused> {
        loop {
            // A message without a body, say a schema or no rows, is done with only when the next one comes.
            while !self.message.is_empty() {
                if let Some(batch) = self.decode()? {
                    return Ok(Some(batch));
                }
            }
            if let Some(message) = self.message()? {
                self.message = Buffer::from_vec(message);
            } else if !self.more().await? {
                if !self.held.is_empty() {
                    return Err(odd("it ends within a message"));
                }
                if self.ended {
                    return Ok(None);
                }
                self.end();
            }
        }
    }

    /// The stream is over, with its mark or without.
    fn end(&mut self) {
        self.ended = true;
        self.held.clear();
        self.message = Buffer::from_vec([CONTINUES, [0; 4]].concat());
    }

    /// Takes the next piece of the body in. `false`: that was all.
    async fn more(&mut self) -> Result<bool, Refused> {
        let Some(piece) = self.body.next().await else { return Ok(false) };
        let piece = piece.map_err(|e| Refused::invalid(format!("the body ended early: {e}")))?;
        self.taken += piece.len() as u64;
        if self.taken > ROWS_MAX {
            return Err(too_large(ROWS_MAX));
        }
        // What comes after the end mark is nothing.
        if !self.ended {
            self.held.extend_from_slice(&piece);
        }
        Ok(true)
    }

    /// The next message, once it is here as a whole.
    fn message(&mut self) -> Result<Option<Vec<u8>>, Refused> {
        let Some(length) = message_length(&self.held)? else { return Ok(None) };
        if length == MARK {
            self.end();
            return Ok(Some(std::mem::take(&mut self.message).to_vec()));
        }
        if self.held.len() < length {
            return Ok(None);
        }
        let rest = self.held.split_off(length);
        Ok(Some(std::mem::replace(&mut self.held, rest)))
    }

    /// The decoder trusts what it is given more than a server can: that it panics is a fault of the body.
    fn decode(&mut self) -> Result<Option<RecordBatch>, Refused> {
        let (decoder, message) = (&mut self.decoder, &mut self.message);
        let decoded = catch_unwind(AssertUnwindSafe(|| decoder.decode(message)));
        let batch = decoded.map_err(|_| odd("a message contradicts itself"))?.map_err(odd)?;
        match batch {
            Some(batch) if batch.num_rows() > BATCH_ROWS_MAX => {
                Err(Refused::invalid(format!("a batch has {} rows; send at most {BATCH_ROWS_MAX}", batch.num_rows())))
            }
            batch => Ok(batch),
        }
    }
}

fn odd(why: impl Display) -> Refused {
    Refused::invalid(format!("the body is no Arrow IPC stream: {why}"))
}

/// Bytes of the message at the front, once they can be told; only the mark's where the stream ends.
///
/// # Errors
/// It is none, or claims to unpack to more than a request may hold: the decoder would set that much aside.
fn message_length(held: &[u8]) -> Result<Option<usize>, Refused> {
    let Some((mark, _)) = held.split_first_chunk::<MARK>() else { return Ok(None) };
    let [a, b, c, d, e, f, g, h] = *mark;
    if [a, b, c, d] != CONTINUES {
        return Err(odd("a message does not begin as one"));
    }
    let about = u32::from_le_bytes([e, f, g, h]) as usize;
    if about == 0 {
        return Ok(Some(MARK));
    }
    if about > ABOUT_MAX {
        return Err(odd("the head of a message is too long"));
    }
    let Some(head) = held.get(MARK..MARK + about) else { return Ok(None) };
    let message = arrow_ipc::root_as_message(head).map_err(odd)?;
    let length = u64::try_from(message.bodyLength()).ok().filter(|length| *length <= ROWS_MAX);
    let length = length.and_then(|length| usize::try_from(length).ok()).ok_or_else(|| odd("a message is too long"))?;
    if let Some(body) = held.get(MARK + about..MARK + about + length) {
        let batch = message.header_as_record_batch();
        let batch = batch.or_else(|| message.header_as_dictionary_batch().and_then(|words| words.data()));
        if unpacked(body, batch).is_none_or(|bytes| bytes > ROWS_MAX) {
            return Err(odd("a batch is not as its head says, or too large"));
        }
    }
    Ok(Some(MARK + about + length))
}

/// Bytes that a batch says it unpacks to; `None`: it lies.
fn unpacked(body: &[u8], batch: Option<arrow_ipc::RecordBatch<'_>>) -> Option<u64> {
    let Some(batch) = batch.filter(|batch| batch.compression().is_some()) else { return Some(0) };
    let mut bytes = 0u64;
    for buffer in batch.buffers().into_iter().flatten().filter(|buffer| buffer.length() > 0) {
        let (from, length) = (usize::try_from(buffer.offset()).ok()?, usize::try_from(buffer.length()).ok()?);
        let packed = body.get(from..from.checked_add(length)?)?;
        match i64::from_le_bytes(*packed.first_chunk()?) {
            // As it is.
            -1 => {}
            size => bytes = bytes.checked_add(u64::try_from(size).ok()?)?,
        }
    }
    Some(bytes)
}

/// An answer of rows. The first batch is waited for, since an error that comes later can only break the
/// answer off.
pub(super) async fn file<S>(schema: &SchemaRef, mut batches: S) -> Result<Response, Refused>
where
    S: Stream<Item = lance_core::Result<RecordBatch>> + Send + Unpin + 'static,
{
    let first = batches.try_next().await?;
    let batches = stream::iter(first.map(Ok)).chain(batches);
    // A file has one dictionary for a column, and every part of a table has its own.
    if has_dictionary(schema) {
        return Ok(answer(STREAM, StreamWriter::try_new(Vec::new(), schema)?, batches));
    }
    Ok(answer(FILE, FileWriter::try_new(Vec::new(), schema)?, batches))
}

fn has_dictionary(schema: &SchemaRef) -> bool {
    let dictionary = |field: &&Field| matches!(field.data_type(), DataType::Dictionary(..));
    schema.flattened_fields().iter().any(dictionary)
}

fn answer<W, S>(kind: &'static str, writer: W, batches: S) -> Response
where
    W: Writes + Send + 'static,
    S: Stream<Item = lance_core::Result<RecordBatch>> + Send + Unpin + 'static,
{
    let written = stream::try_unfold((Some(writer), batches), |(writer, mut batches)| async move {
        let Some(mut writer) = writer else { return Ok::<_, lance_core::Error>(None) };
        let more = batches.try_next().await?;
        match &more {
            Some(batch) => writer.write(batch)?,
            None => writer.finish()?,
        }
        let piece = Bytes::from(std::mem::take(writer.written()));
        Ok(Some((piece, (more.is_some().then_some(writer), batches))))
    });
    ([(header::CONTENT_TYPE, kind)], Body::from_stream(written)).into_response()
}

/// Both forms in which Arrow writes rows.
trait Writes {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError>;
    fn finish(&mut self) -> Result<(), ArrowError>;
    fn written(&mut self) -> &mut Vec<u8>;
}

macro_rules! writes {
    ($writer:ty) => {
        impl Writes for $writer {
            fn write(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
                self.write(batch)
            }

            fn finish(&mut self) -> Result<(), ArrowError> {
                self.finish()
            }

            fn written(&mut self) -> &mut Vec<u8> {
                self.get_mut()
            }
        }
    };
}
writes!(FileWriter<Vec<u8>>);
writes!(StreamWriter<Vec<u8>>);

#[cfg(test)]
mod tests {
    use arrow_array::Int64Array;
    use arrow_ipc::CompressionType;
    use arrow_ipc::writer::IpcWriteOptions;
    use arrow_schema::Schema;

    use super::*;

    fn batch() -> RecordBatch {
        let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
        RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(0..100))]).expect("a batch")
    }

    fn written() -> Vec<u8> {
        let packed = IpcWriteOptions::default().try_with_compression(Some(CompressionType::LZ4_FRAME));
        let schema = batch().schema();
        let mut writer =
            StreamWriter::try_new_with_options(Vec::new(), &schema, packed.expect("options")).expect("one");
        writer.write(&batch()).expect("written");
        writer.write(&batch()).expect("written");
        writer.into_inner().expect("bytes")
    }

    async fn rows(pieces: Vec<Vec<u8>>) -> Result<usize, Refused> {
        let body = Body::from_stream(stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>)));
        let incoming = Incoming::open(body).await?;
        let fault = incoming.fault.clone();
        let batches: Vec<RecordBatch> =
            incoming.batches.try_collect().await.map_err(|e| fault.or(lance_core::Error::from(e)))?;
        Ok(batches.iter().map(RecordBatch::num_rows).sum())
    }

    #[tokio::test]
    async fn rows_come_in_pieces_of_any_size() {
        for size in [1, 7, 64, 10_000] {
            let pieces = written().chunks(size).map(<[u8]>::to_vec).collect();
            assert_eq!(rows(pieces).await.expect("rows"), 200);
        }
    }

    #[tokio::test]
    async fn messages_without_a_body_are_read_too_and_cost_no_row_of_the_next() {
        let schema = batch().schema();
        let mut writer = StreamWriter::try_new(Vec::new(), &schema).expect("one");
        for rows in [0, 0, 100, 0, 50] {
            writer.write(&batch().slice(0, rows)).expect("written");
        }
        let whole = writer.into_inner().expect("bytes");
        assert_eq!(rows(vec![whole.clone()]).await.expect("rows"), 150);
        // Also where the mark of the end is missing.
        assert_eq!(rows(vec![whole[..whole.len() - MARK].to_vec()]).await.expect("rows"), 150);
        let nothing = StreamWriter::try_new(Vec::new(), &schema).and_then(|writer| writer.into_inner()).expect("bytes");
        assert_eq!(rows(vec![nothing]).await.expect("a schema"), 0);
    }

    #[tokio::test]
    async fn what_ends_early_or_is_no_arrow_is_refused() {
        let whole = written();
        for end in 0..whole.len() - MARK {
            let got = rows(vec![whole[..end].to_vec()]).await;
            // Between two messages a stream may end.
            assert!(
                got.as_ref().map_or_else(|refused| refused.status == 400, |rows| rows % 100 == 0),
                "{end}: {got:?}"
            );
        }
        for body in [b"".to_vec(), b"{}".to_vec(), vec![0; 100], vec![0xff; 100]] {
            assert!(rows(vec![body]).await.is_err_and(|refused| refused.status == 400));
        }
    }

    #[tokio::test]
    async fn a_batch_that_claims_to_unpack_to_more_than_there_is_room_for_is_refused() {
        let whole = written();
        // Eight hundred bytes of numbers, as their buffer begins.
        let at = whole.windows(8).position(|bytes| bytes == 800i64.to_le_bytes()).expect("a packed buffer");
        let mut lying = whole.clone();
        lying[at..at + 8].copy_from_slice(&(1i64 << 50).to_le_bytes());
        assert!(rows(vec![lying]).await.is_err_and(|refused| refused.why.contains("too large")));
    }

    #[tokio::test]
    async fn an_answer_is_a_file_of_all_batches() {
        let batches = stream::iter([Ok(batch()), Ok(batch())]);
        let answer = file(&batch().schema(), batches).await.expect("an answer");
        let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("bytes");
        let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(bytes), None).expect("a file");
        assert_eq!(reader.map(|batch| batch.expect("a batch").num_rows()).sum::<usize>(), 200);
    }
}
