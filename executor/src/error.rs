//! Errors by what the caller does next.

use lance_core::Error as LanceError;

/// What went wrong, sorted by what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Storage or network trouble: the same work may succeed when tried again.
    #[error("{0}")]
    Retry(String),
    /// The registry does not answer: wait for it. It says nothing of the table, and the same work may
    /// succeed when tried again.
    #[error("{0}")]
    Away(String),
    /// Somebody else changed the table meanwhile: read fresh facts and plan again.
    #[error("{0}")]
    Conflict(String),
    /// Another pass has already done this work, or more of it (R2.12). Not a fault of the table.
    #[error("superseded: {0}")]
    Superseded(String),
    /// A pass runs on the shard; a forced one is refused, never queued (R2.12).
    #[error("{0}")]
    Busy(String),
    /// Another writer has claimed a shard that this one wrote to (R2.12). What was acknowledged is in its log.
    #[error("{0}")]
    Fenced(String),
    /// The process is stopping, or the table is: it takes no more writes (R2.16).
    #[error("{0}")]
    Draining(String),
    /// The table or the request is not as it must be. Trying again changes nothing.
    #[error("{0}")]
    Invalid(String),
    /// A job changed what the table answers. Its work is committed, and what was before is still there.
    #[error("{0}")]
    Mismatch(String),
    /// Anything else. Nothing of the table was changed.
    #[error("{0}")]
    Fatal(String),
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The kind in one word, for logs and `--json`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Retry(_) | Self::Away(_) => "retry",
            Self::Conflict(_) => "conflict",
            Self::Superseded(_) => "superseded",
            Self::Busy(_) => "busy",
            Self::Fenced(_) => "fenced",
            Self::Draining(_) => "draining",
            Self::Invalid(_) => "invalid",
            Self::Mismatch(_) => "mismatch",
            Self::Fatal(_) => "fatal",
        }
    }

    /// The same kind of error, with what was being done in front.
    pub fn context(self, doing: impl std::fmt::Display) -> Self {
        let say = |m: String| format!("{doing}: {m}");
        match self {
            Self::Retry(m) => Self::Retry(say(m)),
            Self::Away(m) => Self::Away(say(m)),
            Self::Conflict(m) => Self::Conflict(say(m)),
            Self::Superseded(m) => Self::Superseded(say(m)),
            Self::Busy(m) => Self::Busy(say(m)),
            Self::Fenced(m) => Self::Fenced(say(m)),
            Self::Draining(m) => Self::Draining(say(m)),
            Self::Invalid(m) => Self::Invalid(say(m)),
            Self::Mismatch(m) => Self::Mismatch(say(m)),
            Self::Fatal(m) => Self::Fatal(say(m)),
        }
    }
}

impl From<LanceError> for Error {
    fn from(error: LanceError) -> Self {
        let text = error.to_string();
        let text = plain(&text);
        match error {
            LanceError::RetryableCommitConflict { .. }
            | LanceError::CommitConflict { .. }
            | LanceError::IncompatibleTransaction { .. }
            | LanceError::TooMuchWriteContention { .. } => Self::Conflict(text),
            LanceError::IO { .. } | LanceError::Timeout { .. } => Self::Retry(text),
            LanceError::InvalidInput { .. }
            | LanceError::SchemaMismatch { .. }
            | LanceError::Schema { .. }
            | LanceError::DatasetNotFound { .. }
            | LanceError::NotFound { .. }
            | LanceError::NotSupported { .. }
            | LanceError::CorruptFile { .. }
            | LanceError::InvalidTableLocation { .. } => Self::Invalid(text),
            _ => Self::Fatal(text),
        }
    }
}

/// Lance's message without the marks of its code: `LanceError(IO): ` in front of each cause, the
/// source line behind.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("LanceError(") {
        out.push_str(before);
        rest = after.split_once("): ").map_or(after, |(_, said)| said);
    }
    out.push_str(rest);
    // A line of ours has no root in front of it.
    let is_place = |rest: &str| {
        let place = rest.strip_prefix("location: ").unwrap_or(rest);
        let line = place.split_whitespace().next().and_then(|word| word.split_once(".rs:"));
        line.is_some_and(|(_, line)| line.starts_with(|c: char| c.is_ascii_digit()))
    };
    let mut ends = out.match_indices(", ").map(|(at, comma)| (at, &out[at + comma.len()..]));
    match ends.find(|(_, rest)| is_place(rest)) {
        Some((at, _)) => out[..at].to_string(),
        None => out,
    }
}

impl From<arrow_schema::ArrowError> for Error {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Self::from(LanceError::from(error))
    }
}

/// A [`LanceError`]-returning call with what it was doing put in front of its message.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|e| e.into().context(what()))
    }
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn where_in_the_code_an_error_arose_is_not_told() {
        for (text, said) in [
            ("LanceError(IO): no file, a, b, /lance/src/io.rs:1:2", "no file, a, b"),
            ("missing=[x], unexpected=[], location: /lance/src/schema.rs:213:17", "missing=[x], unexpected=[]"),
            ("Int64 + Int32, executor/src/serve/api/query/union.rs:362:5", "Int64 + Int32"),
            ("no file, a.rs: of b", "no file, a.rs: of b"),
        ] {
            assert_eq!(plain(text), said);
        }
    }
}
