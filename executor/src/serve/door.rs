//! Where HTTP and Flight SQL are answered, to whom, and whether it is encrypted.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{MatchedPath, Request, State as Shared};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use axum::serve::Listener;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::api;
use super::keys::{Keys, NAMELESS, Scope, UNKNOWN, may_only_look};
use super::metrics::Metrics;
use crate::error::{Error, Result};

/// How long one request may take, and one that moves or searches the rows of a table: so long the client
/// waits.
pub(super) const REQUEST: Duration = Duration::from_secs(60);
const LONG_REQUEST: Duration = Duration::from_secs(300);
/// Requests about a table that change nothing, by the end of their path.
const READS: [&str; 9] = [
    "analyze_plan",
    "count_rows",
    "describe",
    "explain_plan",
    "query",
    "stats",
    "tags/list",
    "tags/version",
    "version/list",
];
/// Requests that may take long, by the last part of their path.
const LONG: [&str; 9] = [
    "add_columns",
    "alter_columns",
    "analyze_plan",
    "create",
    "create_index",
    "delete",
    "insert",
    "merge_insert",
    "query",
];
/// Requests that write rows.
const ROWS: [&str; 4] = ["delete", "insert", "merge_insert", "update"];
/// By which a request is found again in the log.
const REQUEST_ID: &str = "x-request-id";
const REQUEST_ID_MAX: usize = 128;
/// How long a client may take to agree on keys, and how many may be at it.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HANDSHAKES_MAX: usize = 256;
/// Free ports that are looked at until the one above is free as well.
const PAIRS_MAX: u32 = 32;

/// Where and how HTTP is answered, and Flight SQL one port above.
#[derive(Clone)]
pub struct Door {
    /// The address of HTTP.
    pub address: SocketAddr,
    /// Who is let in.
    pub keys: Keys,
    /// The certificate, where it is encrypted.
    pub tls: Option<Arc<ServerConfig>>,
}

impl Door {
    /// Without keys, for this machine only.
    pub fn local(address: SocketAddr) -> Self {
        Self { address, keys: Keys::default(), tls: None }
    }

    /// Listens.
    ///
    /// # Errors
    /// `Invalid` where the address can be reached from outside and nobody is asked for a key, and where it
    /// can't be listened at.
    pub(super) async fn bind(&self) -> Result<Listeners> {
        let address = self.address;
        if !address.ip().is_loopback() {
            if !self.keys.asks() {
                return Err(Error::Invalid(format!(
                    "`{address}` can be reached from outside, and nobody would be asked for a key; make one with \
                     `caretaker new-key NAME` and name their file with --api-keys, or listen at 127.0.0.1"
                )));
            }
            if self.tls.is_none() {
                tracing::warn!(%address, "keys travel unencrypted; name a certificate with --tls-cert and --tls-key");
            }
        }
        let mut more = if address.port() == 0 { PAIRS_MAX } else { 1 };
        loop {
            more -= 1;
            let bound = TcpListener::bind(address).await;
            let http = bound
                .map_err(|e| Error::Invalid(format!("can't listen at `{address}`: {e}; name another with --listen")))?;
            match above(&http).await {
                Ok(sql) => return Ok(Listeners { http, sql }),
                Err(_) if more > 0 => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Answers until `until` is cancelled, and lets requests that are under way end.
    pub(super) async fn answer(&self, listener: TcpListener, routes: Router, until: CancellationToken) {
        let until = until.cancelled_owned();
        let served = match self.tls.clone() {
            None => axum::serve(listener, routes).with_graceful_shutdown(until).await,
            Some(config) => match Encrypted::new(listener, config) {
                Ok(listener) => axum::serve(listener, routes).with_graceful_shutdown(until).await,
                Err(error) => Err(error),
            },
        };
        if let Err(error) = served {
            tracing::error!(%error, "requests are not answered any more");
        }
    }
}

/// The two ports of a door.
pub(super) struct Listeners {
    pub(super) http: TcpListener,
    pub(super) sql: TcpListener,
}

impl Listeners {
    /// The address of HTTP.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.http.local_addr()
    }
}

/// Listens one port above, where LanceDB's client looks for Flight SQL.
async fn above(http: &TcpListener) -> Result<TcpListener> {
    let failed = |at: &str, why: &dyn std::fmt::Display| {
        Error::Invalid(format!(
            "can't listen at `{at}`: {why}; Flight SQL is answered one port above HTTP: name an address with \
             --listen whose next port is free too"
        ))
    };
    let mut address = http.local_addr().map_err(|e| Error::Fatal(format!("no address to listen at: {e}")))?;
    let shown = address.to_string();
    let port = address.port().checked_add(1).ok_or_else(|| failed(&shown, &"it is the last port"))?;
    address.set_port(port);
    TcpListener::bind(address).await.map_err(|e| failed(&address.to_string(), &e))
}

/// A certificate and its key, in PEM files.
///
/// # Errors
/// `Invalid` names the file that is not as it must be.
pub fn tls(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        Error::Invalid(format!("`{}` is no certificate or key that can be used: {why}", path.display()))
    };
    let chain = CertificateDer::pem_file_iter(certificate).map_err(|e| failed(certificate, &e))?;
    let chain: Vec<_> = chain.collect::<std::result::Result<_, _>>().map_err(|e| failed(certificate, &e))?;
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| failed(key, &e))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|e| failed(certificate, &e))?
        .with_no_client_auth()
        .with_single_cert(chain, private);
    let mut config = config.map_err(|e| failed(certificate, &e))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// What a request needs; `None`: nothing. What is not known changes something, until somebody says otherwise.
fn needs(method: &Method, path: &str) -> Option<Scope> {
    match path {
        "/healthz" | "/readyz" => None,
        "/v1/jobs/list" | "/v1/jobs/describe" | "/v1/jobs/query_events" => Some(Scope::Read),
        _ if method == Method::GET => Some(Scope::Read),
        _ if looks(path) => Some(Scope::Read),
        _ => Some(Scope::Admin),
    }
}

/// Whether a request only looks at a table or a namespace.
fn looks(path: &str) -> bool {
    let rest = path.strip_prefix("/v1/table/").or_else(|| path.strip_prefix("/v1/namespace/"));
    // The name of a table is no end: it may be called `query`.
    let ending = rest.and_then(|rest| rest.trim_end_matches('/').split_once('/')).map(|(_, ending)| ending);
    ending.is_some_and(|ending| match ending.strip_prefix("index/") {
        Some(index) => index == "list" || index.split_once('/').is_some_and(|(_, what)| what == "stats"),
        None => READS.contains(&ending),
    })
}

/// How long a request may take.
fn time(path: &str) -> Duration {
    let last = path.trim_end_matches('/').rsplit('/').next();
    if last.is_some_and(|last| LONG.contains(&last)) { LONG_REQUEST } else { REQUEST }
}

/// Lets a request in, within its time; tells how it went, and writes down who changed something.
pub(super) async fn guard(
    Shared((keys, metrics)): Shared<(Keys, Arc<Metrics>)>,
    request: Request,
    next: Next,
) -> Response {
    let began = Instant::now();
    let (method, path, id) = (request.method().clone(), request.uri().path().to_string(), id_of(&request));
    // Not the path: names of tables are many, and anybody may think of more.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_string();
    let needed = needs(&method, &path);
    let (name, mut response) = match let_in(&keys, needed, &request) {
        Err(refused) => (String::new(), refused),
        Ok(name) => {
            let time = time(&path);
            let answered = tokio::time::timeout(time, next.run(request)).await;
            let answered = answered.unwrap_or_else(|_| {
                let why = format!("it took longer than {} s", time.as_secs());
                api::refuse(StatusCode::SERVICE_UNAVAILABLE, api::code::UNAVAILABLE, &why)
            });
            (name, answered)
        }
    };
    metrics.answered(&route, response.status().as_u16(), began.elapsed());
    if needed == Some(Scope::Admin) && !writes_rows(&path) {
        write_down(&name, method.as_str(), &path, &id, response.status());
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Whose key it is that comes with a request; none where nobody is asked for one.
fn let_in(keys: &Keys, needed: Option<Scope>, request: &Request) -> Result<String, Response> {
    let Some(needed) = needed.filter(|_| keys.asks()) else { return Ok(String::new()) };
    let unknown = |why: &str| api::refuse(StatusCode::UNAUTHORIZED, api::code::UNAUTHENTICATED, why);
    match header(request, "x-api-key").map(|key| keys.who(&key)) {
        None => Err(unknown(NAMELESS)),
        Some(None) => Err(unknown(UNKNOWN)),
        Some(Some((who, scope))) if scope < needed => {
            Err(api::refuse(StatusCode::FORBIDDEN, api::code::FORBIDDEN, &may_only_look(who)))
        }
        Some(Some((who, _))) => Ok(who.to_string()),
    }
}

/// What the client calls its request, or what it is called here.
fn id_of(request: &Request) -> String {
    let named = header(request, REQUEST_ID).filter(|id| !id.is_empty() && id.len() <= REQUEST_ID_MAX);
    named.unwrap_or_else(|| Uuid::new_v4().to_string())
}

/// Rows are what clients write all the time: who did is no operator's matter.
fn writes_rows(path: &str) -> bool {
    let last = path.trim_end_matches('/').rsplit('/').next();
    path.starts_with("/v1/table/") && last.is_some_and(|last| ROWS.contains(&last))
}

/// Writes down who asked for a change, and what became of it.
pub(super) fn write_down(key: &str, method: &str, path: &str, request: &str, status: StatusCode) {
    let status = status.as_u16();
    tracing::info!(target: "executor::audit", key, method, path, request, status, "asked for");
}

fn header(request: &Request, name: &str) -> Option<String> {
    request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_string)
}

/// Connections that have agreed on their keys. One that takes its time keeps no other waiting.
pub(super) struct Encrypted {
    address: SocketAddr,
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
}

impl Encrypted {
    pub(super) fn new(mut listener: TcpListener, config: Arc<ServerConfig>) -> io::Result<Self> {
        let address = TcpListener::local_addr(&listener)?;
        let (sender, ready) = mpsc::channel(HANDSHAKES_MAX);
        let (acceptor, places) = (TlsAcceptor::from(config), Arc::new(Semaphore::new(HANDSHAKES_MAX)));
        tokio::spawn(async move {
            while let Ok(place) = places.clone().acquire_owned().await {
                let (tcp, from) = tokio::select! {
                    accepted = Listener::accept(&mut listener) => accepted,
                    () = sender.closed() => return,
                };
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                tokio::spawn(async move {
                    match tokio::time::timeout(HANDSHAKE, acceptor.accept(tcp)).await {
                        Ok(Ok(stream)) => drop(sender.send((stream, from)).await),
                        Ok(Err(error)) => tracing::debug!(%from, %error, "no keys were agreed on"),
                        Err(_) => tracing::debug!(%from, "no keys were agreed on in time"),
                    }
                    drop(place);
                });
            }
        });
        Ok(Self { address, ready })
    }
}

impl Listener for Encrypted {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_that_others_could_reach_needs_keys() {
        let door = Door::local("0.0.0.0:0".parse().expect("an address"));
        assert!(matches!(door.bind().await, Err(Error::Invalid(why)) if why.contains("new-key")));
    }

    #[tokio::test]
    async fn flight_sql_is_one_port_above_and_one_that_is_taken_is_named() {
        let free = Door::local("127.0.0.1:0".parse().expect("an address"));
        let taken = free.bind().await.expect("two free ports");
        let (http, sql) = (taken.http.local_addr().expect("bound"), taken.sql.local_addr().expect("bound"));
        assert_eq!(http.port() + 1, sql.port());
        drop(taken.http);
        let refused = Door::local(http).bind().await.map(|_| ()).expect_err("the port above is taken");
        assert!(refused.to_string().contains(&format!("`{sql}`")), "{refused}");
        let last = Door::local("127.0.0.1:65535".parse().expect("an address"));
        assert!(last.bind().await.map(|_| ()).expect_err("no port above").to_string().contains("65535"));
    }

    #[test]
    fn what_is_not_known_to_only_look_needs_more() {
        let of = |method: Method, path: &str| needs(&method, path);
        assert_eq!(of(Method::GET, "/healthz"), None);
        assert_eq!(of(Method::GET, "/metrics"), Some(Scope::Read));
        assert_eq!(of(Method::POST, "/v1/jobs/list"), Some(Scope::Read));
        for path in
            ["/v1/table/t/query/", "/v1/table/t/tags/version", "/v1/table/t/index/a/stats/", "/v1/table/t/index/list/"]
        {
            assert_eq!(of(Method::POST, path), Some(Scope::Read), "{path}");
        }
        for path in [
            "/v1/jobs/cancel",
            "/v1/table/t/evaluate",
            "/v1/anything",
            "/v1/table/query",
            "/v1/table/query/insert/",
            "/v1/table/t/index/stats/drop/",
            "/v1/table/t/tags/create/",
        ] {
            assert_eq!(of(Method::POST, path), Some(Scope::Admin), "{path}");
        }
    }

    #[test]
    fn what_moves_rows_may_take_longer() {
        assert_eq!(time("/v1/table/t/insert/"), LONG_REQUEST);
        assert_eq!(time("/v1/table/t/describe/"), REQUEST);
    }
}
