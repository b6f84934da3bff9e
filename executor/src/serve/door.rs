//! Where HTTP is answered, to whom, and whether it is encrypted.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State as Shared};
use axum::http::{Method, StatusCode};
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

use super::api;
use super::keys::{Keys, Scope};
use crate::error::{Error, Result};

/// How long one request may take, and one that moves or searches the rows of a table: so long the client
/// waits.
const REQUEST: Duration = Duration::from_secs(60);
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
/// How long a client may take to agree on keys, and how many may be at it.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HANDSHAKES_MAX: usize = 256;

/// Where and how HTTP is answered.
#[derive(Clone)]
pub struct Door {
    /// The address.
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
    pub(super) async fn bind(&self) -> Result<TcpListener> {
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
        let bound = TcpListener::bind(address).await;
        bound.map_err(|e| Error::Invalid(format!("can't listen at `{address}`: {e}; name another with --listen")))
    }
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

/// Lets a request in, within its time, and writes down who changed something.
pub(super) async fn guard(Shared(keys): Shared<Keys>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_string());
    let (id, key) = (header(&request, "x-request-id").unwrap_or_default(), header(&request, "x-api-key"));
    let mut name = String::new();
    if let Some(needed) = needs(&method, &path).filter(|_| keys.asks()) {
        let unknown = |why: &str| api::refuse(StatusCode::UNAUTHORIZED, api::code::UNAUTHENTICATED, why);
        match key.as_deref().map(|key| keys.who(key)) {
            None => return unknown("name a key in `x-api-key`"),
            Some(None) => return unknown("this key is not known here"),
            Some(Some((who, scope))) if scope < needed => {
                let why = format!("the key of `{who}` may look and not change anything");
                return api::refuse(StatusCode::FORBIDDEN, api::code::FORBIDDEN, &why);
            }
            Some(Some((who, _))) => name = who.to_string(),
        }
    }
    let changes = needs(&method, &path) == Some(Scope::Admin);
    let time = time(&path);
    let answered = tokio::time::timeout(time, next.run(request)).await;
    let response = answered.unwrap_or_else(|_| {
        let why = format!("it took longer than {} s", time.as_secs());
        api::refuse(StatusCode::SERVICE_UNAVAILABLE, api::code::UNAVAILABLE, &why)
    });
    if changes {
        tracing::info!(target: "executor::audit", key = name, %method, path, request = id, status = response.status().as_u16(), "asked for");
    }
    response
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
