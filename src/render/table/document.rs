//! The common members of all JSON documents: `schema` and `version`.

use serde_json::Value;
use std::io::{self, Write};

/// Writes `members` as one JSON object, with `schema` and `version` added.
///
/// Raise `version` with every change to the name, type or meaning of a member.
pub(crate) fn write_document(out: &mut dyn Write, schema: &str, version: u32, mut members: Value) -> io::Result<()> {
    members["schema"] = schema.into();
    members["version"] = version.into();
    writeln!(out, "{members:#}")
}
