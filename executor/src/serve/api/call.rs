//! What a request about a table says besides its body, and how bodies are taken in.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use futures::StreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Api, Refused, code, read};
use crate::error::Error;
use crate::pod::Turn;
use crate::table::Table;

/// Bytes of a request that is held in memory as a whole.
const BODY_MAX: usize = 16 << 20;
/// What a client may ask in an address.
const PARAMS_MAX: usize = 256;

/// A request about one table, or about all of them.
pub(super) struct Call {
    pub(super) api: Api,
    /// The table; empty where the route names none.
    pub(super) id: String,
    /// The index; empty where the route names none.
    pub(super) index: String,
    pub(super) headers: HeaderMap,
    params: Vec<(String, String)>,
}

impl FromRequestParts<Api> for Call {
    type Rejection = Refused;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Refused> {
        let path = RawPathParams::from_request_parts(parts, api).await;
        let path = path.map_err(|e| Refused::invalid(format!("`{}` can't be read: {e}", parts.uri.path())))?;
        let named = |name: &str| path.iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_string());
        let query = parts.uri.query().unwrap_or_default();
        let params: Vec<(String, String)> =
            url::form_urlencoded::parse(query.as_bytes()).into_owned().take(PARAMS_MAX + 1).collect();
        if params.len() > PARAMS_MAX {
            return Err(Refused::invalid(format!("name at most {PARAMS_MAX} parameters")));
        }
        let (id, index) = (named("id").unwrap_or_default(), named("index").unwrap_or_default());
        Ok(Self { api: api.clone(), id, index, headers: parts.headers.clone(), params })
    }
}

impl Call {
    /// The table at its newest version.
    pub(super) async fn table(&self) -> Result<Table, Refused> {
        self.api.table(&self.id).await
    }

    /// The right to write to the table's base, and the table as it is then: what took long to arrive must not bring
    /// a table back that was dropped meanwhile.
    pub(super) async fn turn(&self) -> Result<(Turn, Table), Refused> {
        let turn = self.api.pod.turn(&self.api.table_ref(&self.id)?.uri).await?;
        Ok((turn, self.table().await?))
    }

    /// The table at a version, or at its newest one.
    pub(super) async fn table_at(&self, version: Option<u64>) -> Result<Table, Refused> {
        let table = self.table().await?;
        let Some(version) = version.filter(|version| *version != table.version()) else { return Ok(table) };
        table.at(version).await.map_err(|error| match error {
            Error::Invalid(_) => {
                let why = format!("table `{}` has no version {version}", self.id);
                Refused::new(StatusCode::NOT_FOUND, code::VERSION_NOT_FOUND, why)
            }
            error => error.into(),
        })
    }

    /// A parameter of the address; one without a value is as none.
    pub(super) fn param(&self, name: &str) -> Option<&str> {
        self.params_of(name).next()
    }

    /// One that may be there more than once.
    pub(super) fn params_of(&self, name: &str) -> impl Iterator<Item = &str> {
        self.params.iter().filter(move |(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// One that is true or false.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, Refused> {
        match self.param(name) {
            None => Ok(None),
            Some("true" | "True" | "1") => Ok(Some(true)),
            Some("false" | "False" | "0") => Ok(Some(false)),
            Some(odd) => Err(Refused::invalid(format!("`{name}` is `true` or `false`, not `{odd}`"))),
        }
    }

    /// One that is a number.
    pub(super) fn number(&self, name: &str) -> Result<Option<usize>, Refused> {
        let number =
            |text: &str| text.parse().map_err(|_| Refused::invalid(format!("`{name}` is no number: `{text}`")));
        self.param(name).map(number).transpose()
    }
}

/// A body that names a version; `None`: the newest.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct At {
    pub(super) version: Option<u64>,
}

/// A body of JSON; an empty one is an empty object.
pub(super) async fn json<T: DeserializeOwned>(body: Body) -> Result<T, Refused> {
    Ok(read(&whole(body).await?)?)
}

/// A body as a whole.
pub(super) async fn whole(body: Body) -> Result<Bytes, Refused> {
    let (mut stream, mut taken) = (body.into_data_stream(), Vec::new());
    while let Some(piece) = stream.next().await {
        let piece = piece.map_err(|e| Refused::invalid(format!("the body ended early: {e}")))?;
        if taken.len() + piece.len() > BODY_MAX {
            return Err(too_large(BODY_MAX as u64));
        }
        taken.extend_from_slice(&piece);
    }
    Ok(taken.into())
}

/// A body of more than its route takes.
pub(super) fn too_large(max: u64) -> Refused {
    let why = format!("the body is larger than {} MiB; send it in parts", max >> 20);
    Refused::new(StatusCode::PAYLOAD_TOO_LARGE, code::INVALID, why)
}
