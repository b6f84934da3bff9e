//! A body that is taken in also where nobody wants the rest of it.
//!
//! A connection whose request was not read to its end is closed, and a client that still sends sees that
//! instead of why it was refused.

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use futures::{StreamExt, stream};
use tokio::sync::mpsc;

/// Pieces of a body that wait for whoever reads it.
const AHEAD: usize = 4;
/// Bytes that are taken in though nobody wants them.
const UNWANTED_MAX: u64 = 256 << 20;

/// Reads a request's body on, whatever becomes of the request.
pub(in crate::serve) async fn read_on(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        let (mut body, mut unwanted) = (body.into_data_stream(), 0);
        while let Some(piece) = body.next().await {
            let more = piece.as_ref().map_or(u64::MAX, |piece| piece.len() as u64);
            if sender.send(piece).await.is_err() {
                unwanted += more.min(UNWANTED_MAX);
            }
            if unwanted >= UNWANTED_MAX {
                return;
            }
        }
    });
    let pieces = stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) });
    next.run(Request::from_parts(parts, Body::from_stream(pieces.fuse()))).await
}
