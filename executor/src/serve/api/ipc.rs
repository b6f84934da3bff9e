//! Rows in requests and answers, as Arrow writes them: a stream in, a file out, batch by batch.

use std::sync::{Arc, Mutex};

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, SchemaRef};
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
/// The type of an answer of rows.
const FILE: &str = "application/vnd.apache.arrow.file";

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
        let batches = stream::iter(first.map(Ok)).chain(rest).boxed();
        Ok(Self { schema, batches, fault })
    }

    /// The rows as Lance takes them.
    pub(super) fn stream(self) -> SendableRecordBatchStream {
        Box::pin(RecordBatchStreamAdapter::new(self.schema, self.batches))
    }
}

struct Decoding {
    body: BodyDataStream,
    decoder: StreamDecoder,
    left: Buffer,
    taken: u64,
}

impl Decoding {
    fn new(body: Body) -> Self {
        let (body, left) = (body.into_data_stream(), Buffer::from(Bytes::new()));
        Self { body, decoder: StreamDecoder::new(), left, taken: 0 }
    }

    async fn next(&mut self) -> Result<Option<RecordBatch>, Refused> {
        let odd = |e: ArrowError| Refused::invalid(format!("the body is no Arrow IPC stream: {e}"));
        loop {
            while !self.left.is_empty() {
                if let Some(batch) = self.decoder.decode(&mut self.left).map_err(odd)? {
                    return Ok(Some(batch));
                }
            }
            let Some(piece) = self.body.next().await else {
                self.decoder.finish().map_err(odd)?;
                return Ok(None);
            };
            let piece = piece.map_err(|e| Refused::invalid(format!("the body ended early: {e}")))?;
            self.taken += piece.len() as u64;
            if self.taken > ROWS_MAX {
                return Err(too_large(ROWS_MAX));
            }
            self.left = Buffer::from(piece);
        }
    }
}

/// An answer of rows. The first batch is waited for, since an error that comes later can only break the
/// answer off.
pub(super) async fn file<S>(schema: &SchemaRef, mut batches: S) -> Result<Response, Refused>
where
    S: Stream<Item = lance_core::Result<RecordBatch>> + Send + Unpin + 'static,
{
    let first = batches.try_next().await?;
    let writer = FileWriter::try_new(Vec::new(), schema)?;
    let batches = stream::iter(first.map(Ok)).chain(batches);
    let written = stream::try_unfold((Some(writer), batches), |(writer, mut batches)| async move {
        let Some(mut writer) = writer else { return Ok::<_, lance_core::Error>(None) };
        let more = batches.try_next().await?;
        match &more {
            Some(batch) => writer.write(batch)?,
            None => writer.finish()?,
        }
        let piece = Bytes::from(std::mem::take(writer.get_mut()));
        Ok(Some((piece, (more.is_some().then_some(writer), batches))))
    });
    Ok(([(header::CONTENT_TYPE, FILE)], Body::from_stream(written)).into_response())
}
