//! Where HTTP and Flight SQL are answered, to whom, and whether it is encrypted.

mod connections;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State as Shared};
use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::{StreamExt, stream};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::connections::Connections;
use super::api::{self, Refused};
use super::keys::{Keys, NAMELESS, Scope, UNKNOWN, key_of, may_only_look};
use super::metrics::Metrics;
use super::page::is_page;
use crate::error::{Error, Result};

/// How long one request may take, and one that moves or searches the rows of a table: so long the client
/// waits.
pub(super) const REQUEST: Duration = Duration::from_secs(60);
const LONG_REQUEST: Duration = Duration::from_secs(300);
/// Requests about a table that change nothing, by the end of their path.
const READS: [&str; 13] = [
    "analyze_plan",
    "count_rows",
    "describe",
    "explain_plan",
    "get_lsm_stats",
    "get_lsm_write_spec",
    "get_rte_spec",
    "get_rte_stats",
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
/// Bytes of what a library says.
const WHY_MAX: usize = 2_000;
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
        Connections::new(routes, self.tls.clone().map(TlsAcceptor::from)).answer(listener, until).await;
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
        _ if matches!(*method, Method::GET | Method::HEAD) && is_page(path) => None,
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
    let admitted = from_here(&keys, &request).and_then(|()| let_in(&keys, needed, request.headers()));
    let (name, response) = match admitted {
        Err((name, refused)) => (name, refused.into_response()),
        Ok(name) => {
            let time = time(&path);
            let request = request.map(|body| within(body, began + time));
            let answered = tokio::time::timeout(time, next.run(request)).await;
            let answered = answered.unwrap_or_else(|_| {
                let why = format!("it took longer than {} s", time.as_secs());
                api::refuse(StatusCode::SERVICE_UNAVAILABLE, api::code::UNAVAILABLE, &why)
            });
            (name, answered)
        }
    };
    let mut response = worded(response).await;
    metrics.answered(&route, response.status().as_u16(), began.elapsed());
    // Who is not known here is no operator, and could fill the log.
    let known = response.status() != StatusCode::UNAUTHORIZED;
    if known && needed == Some(Scope::Admin) && !writes_rows(&path) {
        write_down(&name, method.as_str(), &path, &id, response.status());
    }
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Where nobody is asked for a key, a page of somebody else's must not act through its reader's browser.
///
/// # Errors
/// For what a page of another origin asks to be changed.
fn from_here(keys: &Keys, request: &Request) -> std::result::Result<(), (String, Refused)> {
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    let Some(origin) = request.headers().get(ORIGIN).filter(|_| changes && !keys.asks()) else { return Ok(()) };
    let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str().as_bytes()));
    let from = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    if from.is_some_and(|(_, from)| Some(from.as_bytes()) == host) {
        return Ok(());
    }
    let why = "a page of another origin may change nothing here";
    Err((String::new(), Refused::new(StatusCode::FORBIDDEN, api::code::FORBIDDEN, why)))
}

/// Whose key it is that comes with a request; none where nobody is asked for one.
///
/// # Errors
/// With the name of a key that may not do this.
fn let_in(keys: &Keys, needed: Option<Scope>, headers: &HeaderMap) -> std::result::Result<String, (String, Refused)> {
    let Some(needed) = needed.filter(|_| keys.asks()) else { return Ok(String::new()) };
    let unknown = |why: &str| (String::new(), Refused::new(StatusCode::UNAUTHORIZED, api::code::UNAUTHENTICATED, why));
    match key_of(headers).map(|key| keys.who(key)) {
        None => Err(unknown(NAMELESS)),
        Some(None) => Err(unknown(UNKNOWN)),
        Some(Some((who, scope))) if scope < needed => {
            let why = may_only_look(&who);
            Err((who, Refused::new(StatusCode::FORBIDDEN, api::code::FORBIDDEN, why)))
        }
        Some(Some((who, _))) => Ok(who),
    }
}

/// A body that is not waited for for ever: whoever reads it on after its request has ended stops as well.
fn within(body: Body, end: Instant) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let pieces = stream::unfold(Some(body.into_data_stream()), move |pieces| async move {
        let mut pieces = pieces?;
        match tokio::time::timeout_at(end.into(), pieces.next()).await {
            Ok(piece) => piece.map(|piece| (piece, Some(pieces))),
            Err(late) => Some((Err(axum::Error::new(late)), None)),
        }
    });
    Body::from_stream(pieces.fuse())
}

/// What the libraries refuse by themselves, as everything else here is refused.
async fn worded(response: Response) -> Response {
    let status = response.status();
    let plain = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/plain"));
    if !plain || !(status.is_client_error() || status.is_server_error()) {
        return response;
    }
    let code = if status.is_client_error() { api::code::INVALID } else { api::code::INTERNAL };
    let why = axum::body::to_bytes(response.into_body(), WHY_MAX).await.unwrap_or_default();
    api::refuse(status, code, &String::from_utf8_lossy(&why))
}

/// What the client calls its request, or what it is called here.
fn id_of(request: &Request) -> String {
    let named = request.headers().get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let named = named.filter(|id| !id.is_empty() && id.len() <= REQUEST_ID_MAX);
    named.map_or_else(|| Uuid::new_v4().to_string(), str::to_string)
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
            "/v1/table/t/index/a%2Fstats/drop",
            "/v1/table/t/set_lsm_write_spec/",
            "/v1/table/t/tags/create/",
        ] {
            assert_eq!(of(Method::POST, path), Some(Scope::Admin), "{path}");
        }
    }

    #[tokio::test]
    async fn a_body_that_takes_too_long_is_no_body() {
        let never = stream::iter([Ok::<_, axum::Error>("begun")]).chain(stream::pending());
        let body = within(Body::from_stream(never), Instant::now() + Duration::from_millis(20));
        let mut pieces = body.into_data_stream();
        assert!(pieces.next().await.is_some_and(|piece| piece.is_ok_and(|piece| piece == "begun")));
        assert!(pieces.next().await.is_some_and(|piece| piece.is_err()) && pieces.next().await.is_none());
        let body = within(Body::from_stream(stream::iter([Ok::<_, axum::Error>("all")])), Instant::now() + REQUEST);
        assert_eq!(axum::body::to_bytes(body, 10).await.expect("a body"), "all");
    }

    #[test]
    fn what_moves_rows_may_take_longer() {
        assert_eq!(time("/v1/table/t/insert/"), LONG_REQUEST);
        assert_eq!(time("/v1/table/t/describe/"), REQUEST);
    }
}
