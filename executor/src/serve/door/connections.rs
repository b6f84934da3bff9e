//! Connections: how many there are, how long each may take to say what it wants, and which one goes when there is no
//! place for another.
//!
//! One that has asked for something keeps its place until that is answered. One that has not, or not yet to the end,
//! is closed after a while, and at once where somebody else needs its place: the longest quiet first.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections of one port, however many files a process may open.
const CONNECTIONS_MAX: usize = 4_096;
/// Of the files a process may open, one port's connections take so much at most: tables are files too.
const FILES_PART: usize = 4;
/// How many files that is where the system does not tell.
const FILES: usize = 1_024;
/// How long a client may take for the head of a request, and wait before its next one.
const HEAD: Duration = Duration::from_secs(75);
/// How long it may take to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes of a request's head.
const HEAD_MAX: usize = 64 << 10;
/// Requests that one connection may have under way.
const STREAMS_MAX: u32 = 256;
/// Between two tries to take a connection in, where the system refuses.
const AGAIN: Duration = Duration::from_millis(50);

/// What answers the connections of one port.
pub(super) struct Connections {
    places: Arc<Places>,
    tls: Option<TlsAcceptor>,
    routes: Router,
    head: Duration,
}

impl Connections {
    pub(super) fn new(routes: Router, tls: Option<TlsAcceptor>) -> Self {
        let max = (files() / FILES_PART).clamp(1, CONNECTIONS_MAX);
        Self { places: Places::new(max), tls, routes, head: HEAD }
    }

    /// Answers until `until` is cancelled, and lets requests that are under way end.
    pub(super) async fn answer(self, listener: TcpListener, until: CancellationToken) {
        let shared = Arc::new(self);
        let mut open = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = open.join_next() => continue,
                () = until.cancelled() => break,
            };
            match accepted {
                Ok((tcp, peer)) => match shared.places.take() {
                    Some(place) => drop(open.spawn(shared.clone().connection(tcp, peer, place, until.clone()))),
                    None => tracing::debug!("a connection was refused: every place is in use"),
                },
                Err(error) => {
                    tracing::debug!(%error, "a connection could not be taken in");
                    shared.places.free();
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        drop(listener);
        while open.join_next().await.is_some() {}
    }

    async fn connection(self: Arc<Self>, tcp: TcpStream, peer: SocketAddr, place: Place, until: CancellationToken) {
        // Small answers go out at once.
        let _ = tcp.set_nodelay(true);
        let served = async {
            match &self.tls {
                None => self.serve(tcp, &place, until).await,
                Some(tls) => match tokio::time::timeout(HANDSHAKE, tls.accept(tcp)).await {
                    Ok(Ok(stream)) => self.serve(stream, &place, until).await,
                    Ok(Err(error)) => tracing::info!(%error, peer = %peer, "a client could not agree on encryption"),
                    Err(_) => tracing::debug!("no keys were agreed on in time"),
                },
            }
        };
        tokio::select! {
            () = served => {}
            () = place.gone.cancelled() => tracing::debug!("a quiet connection was closed: its place is needed"),
        }
    }

    async fn serve<S>(&self, stream: S, place: &Place, until: CancellationToken)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.head).max_buf_size(HEAD_MAX);
        let mut two = builder.http2();
        two.timer(TokioTimer::new()).keep_alive_interval(self.head).max_concurrent_streams(STREAMS_MAX);
        let routes = TowerToHyperService::new(self.routes.clone());
        let service = service_fn(move |request| {
            let (answering, request_kept) = (routes.call(request), place.asked());
            async move { Ok::<_, Infallible>(answering.await?.map(|body| Body::new(Kept { body, _asked: request_kept }))) }
        });
        let mut answering = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let (mut silent, mut waited) = (pin!(tokio::time::sleep(self.head)), false);
        let mut stopping = false;
        loop {
            tokio::select! {
                ended = answering.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(error, "a connection ended badly");
                    }
                    return;
                }
                // Which version of HTTP it is tells its first request, which has no time of its own.
                () = silent.as_mut(), if !waited => {
                    waited = true;
                    if !place.has_asked() {
                        return;
                    }
                }
                () = until.cancelled(), if !stopping => {
                    stopping = true;
                    answering.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Files that this process may have open.
fn files() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(FILES)
}

/// The places of one port.
struct Places {
    max: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    next: u64,
    all: HashMap<u64, Taken>,
    /// Connections with nothing to be answered, the longest quiet first.
    quiet: BTreeMap<u64, u64>,
}

#[derive(Default)]
struct Taken {
    asked: bool,
    requests: u32,
    /// Its key among the quiet ones.
    quiet: Option<u64>,
    gone: CancellationToken,
}

impl Places {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A place for another connection; `None` where all are waiting for their answers.
    fn take(self: &Arc<Self>) -> Option<Place> {
        if self.known().all.len() >= self.max && !self.free() {
            return None;
        }
        let mut known = self.known();
        let (id, gone) = (known.next(), CancellationToken::new());
        known.all.insert(id, Taken { gone: gone.clone(), ..Taken::default() });
        known.quiet(id);
        Some(Place { places: self.clone(), id, gone })
    }

    /// Closes the connection that has been quiet for longest. `false`: none is quiet.
    fn free(&self) -> bool {
        let mut known = self.known();
        let Some((_, id)) = known.quiet.pop_first() else { return false };
        if let Some(taken) = known.all.remove(&id) {
            taken.gone.cancel();
        }
        true
    }
}

impl Known {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn quiet(&mut self, id: u64) {
        let now = self.next();
        if let Some(taken) = self.all.get_mut(&id) {
            taken.quiet = Some(now);
            self.quiet.insert(now, id);
        }
    }
}

/// The place of one connection, until it is dropped.
struct Place {
    places: Arc<Places>,
    id: u64,
    /// Cancelled where somebody else gets it.
    gone: CancellationToken,
}

impl Place {
    fn has_asked(&self) -> bool {
        self.places.known().all.get(&self.id).is_some_and(|taken| taken.asked)
    }

    /// Keeps the place until what is returned is dropped.
    fn asked(&self) -> Asked {
        let mut known = self.places.known();
        if let Some(taken) = known.all.get_mut(&self.id) {
            taken.asked = true;
            taken.requests += 1;
            if let Some(quiet) = taken.quiet.take() {
                known.quiet.remove(&quiet);
            }
        }
        Asked { places: self.places.clone(), id: self.id }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut known = self.places.known();
        if let Some(quiet) = known.all.remove(&self.id).and_then(|taken| taken.quiet) {
            known.quiet.remove(&quiet);
        }
    }
}

/// A request whose answer is not sent yet.
struct Asked {
    places: Arc<Places>,
    id: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut known = self.places.known();
        let Some(taken) = known.all.get_mut(&self.id) else { return };
        taken.requests -= 1;
        if taken.requests == 0 {
            known.quiet(self.id);
        }
    }
}

/// The body of an answer, with the place of its connection.
struct Kept {
    body: Body,
    _asked: Asked,
}

impl http_body::Body for Kept {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::Notify;

    use super::*;

    const SOON: Duration = Duration::from_millis(50);

    async fn answering(max: usize, head: Duration, routes: Router) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let connections = Connections { head, places: Places::new(max), ..Connections::new(routes, None) };
        tokio::spawn(connections.answer(listener, CancellationToken::new()));
        address
    }

    async fn said(stream: &mut TcpStream) -> String {
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said).await;
        String::from_utf8(said).expect("text")
    }

    async fn begun(at: std::net::SocketAddr, head: &str) -> TcpStream {
        let mut stream = TcpStream::connect(at).await.expect("connected");
        stream.write_all(head.as_bytes()).await.expect("written");
        stream
    }

    #[tokio::test]
    async fn a_head_that_does_not_come_is_waited_for_a_while() {
        let at = answering(10, SOON, Router::new().route("/", get(|| async { "here" }))).await;
        for head in ["", "PRI * HTTP", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nhost: a\r\n\r\nGET"] {
            let said = said(&mut begun(at, head).await).await;
            assert_eq!(said.contains("here"), head.ends_with("GET"), "{head}: {said}");
        }
    }

    #[tokio::test]
    async fn one_that_has_asked_stays_however_long_it_takes_and_lasts() {
        let long = get(|| async {
            tokio::time::sleep(4 * SOON).await;
            "here"
        });
        let at = answering(10, SOON, Router::new().route("/", long)).await;
        let mut stream = begun(at, "").await;
        let mut said = Vec::new();
        for _ in 0..3 {
            stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("written");
            while !said.ends_with(b"here") {
                assert!(stream.read_buf(&mut said).await.expect("read") > 0, "it was cut");
            }
            said.clear();
        }
    }

    #[tokio::test]
    async fn the_longest_quiet_goes_where_there_is_no_place_and_one_that_waits_for_its_answer_stays() {
        let go = Arc::new(Notify::new());
        let (waiting, waits) = (go.clone(), Arc::new(Notify::new()));
        let begins = waits.clone();
        let slow = get(move || async move {
            begins.notify_one();
            waiting.notified().await;
            "slow"
        });
        let routes = Router::new().route("/", get(|| async { "here" })).route("/slow", slow);
        let at = answering(2, HEAD, routes).await;
        let ask = |path: &str| format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        let mut slow = begun(at, &ask("/slow")).await;
        waits.notified().await;
        for _ in 0..10 {
            let mut quiet = begun(at, "GET / HT").await;
            let mut asks = begun(at, &ask("/")).await;
            assert!(said(&mut asks).await.contains("here"));
            assert_eq!(said(&mut quiet).await, "");
        }
        go.notify_one();
        assert!(said(&mut slow).await.contains("slow"));
    }
}
