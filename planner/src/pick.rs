//! What one job takes. A strategy is a file here.

pub(crate) mod prefix;
pub(crate) mod rewrite;
