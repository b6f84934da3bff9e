//! Which SSTables one pass takes. A strategy is a file here.

pub(crate) mod prefix;
