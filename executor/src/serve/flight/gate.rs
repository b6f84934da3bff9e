//! Who may ask for what over Flight SQL: the keys and scopes of HTTP.

use axum::extract::{Request, State as Shared};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use tonic::Status;

use crate::serve::door::REQUEST;
use crate::serve::keys::{Keys, NAMELESS, Scope, UNKNOWN, key_of, may_only_look};
use crate::sql::Statement;

/// Who asks.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// The name of the key; empty where nobody is asked for one.
    pub(super) name: String,
    /// The request's own id, where the client gave it one.
    pub(super) request: String,
    scope: Scope,
}

impl Caller {
    /// # Errors
    /// `PermissionDenied` where it changes something and the key may only look.
    pub(super) fn may(&self, statement: &Statement) -> Result<(), Status> {
        if statement.changes() && self.scope < Scope::Admin {
            return Err(Status::permission_denied(may_only_look(&self.name)));
        }
        Ok(())
    }
}

/// Lets a request in, within its time.
pub(super) async fn admit(Shared(keys): Shared<Keys>, mut request: Request, next: Next) -> Response {
    match who(&keys, request.headers()) {
        Ok(caller) => request.extensions_mut().insert(caller),
        Err(why) => return why.into_http(),
    };
    let answered = tokio::time::timeout(REQUEST, next.run(request)).await;
    answered.unwrap_or_else(|_| late().into_http())
}

/// What took too long.
pub(super) fn late() -> Status {
    Status::deadline_exceeded(format!("it took longer than {} s", REQUEST.as_secs()))
}

fn who(keys: &Keys, headers: &HeaderMap) -> Result<Caller, Status> {
    let request = headers.get("x-request-id").and_then(|value| value.to_str().ok()).unwrap_or_default().to_string();
    if !keys.asks() {
        return Ok(Caller { name: String::new(), request, scope: Scope::Admin });
    }
    match key_of(headers).map(|key| keys.who(key)) {
        None => Err(Status::unauthenticated(NAMELESS)),
        Some(None) => Err(Status::unauthenticated(UNKNOWN)),
        Some(Some((name, scope))) => Ok(Caller { name, request, scope }),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use tonic::Code;

    use super::*;
    use crate::serve::keys::new_key;

    #[test]
    fn a_key_is_named_in_either_header_and_may_what_its_scope_says() {
        let (key, entry) = new_key("eyes", Scope::Read).expect("made");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), entry).expect("written");
        let keys = Keys::read(file.path()).expect("keys");
        let of = |name: &'static str, value: &str| {
            who(
                &keys,
                &HeaderMap::from_iter([(name.parse().expect("a name"), HeaderValue::from_str(value).expect("text"))]),
            )
        };
        for (name, value) in [("x-api-key", key.clone()), ("authorization", format!("bearer {key}"))] {
            let caller = of(name, &value).expect("known");
            assert!(caller.may(&Statement::Describe("a".into())).is_ok());
            let refused = caller.may(&Statement::Cancel("a".into())).expect_err("may only look");
            assert_eq!(refused.code(), Code::PermissionDenied);
        }
        for (name, value) in [("x-api-key", "guess"), ("authorization", "Basic eA=="), ("other", "x")] {
            assert_eq!(of(name, value).expect_err("unknown").code(), Code::Unauthenticated);
        }
        let anybody = who(&Keys::default(), &HeaderMap::new()).expect("nobody is asked");
        assert!(anybody.may(&Statement::Cancel("a".into())).is_ok());
    }
}
