//! GUIDs in JSON: hexadecimal texts, because many JSON readers keep only 53 bits of a number.

use serde::de::{self, Deserializer, Visitor};
use serde::ser::Serializer;
use std::fmt;

/// Formats a GUID: `0x1070fd0300000011`.
pub fn text(guid: u64) -> String {
    format!("{guid:#018x}")
}

/// Serializes a GUID; for `#[serde(with = "guid")]`.
pub fn serialize<S: Serializer>(guid: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*guid))
}

/// Deserializes a GUID from a text as [`serialize`] writes it, or from a number.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(GuidVisitor)
}

struct GuidVisitor;

impl Visitor<'_> for GuidVisitor {
    type Value = u64;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a GUID, for example \"0x1070fd0300000011\"")
    }

    fn visit_u64<E: de::Error>(self, guid: u64) -> Result<u64, E> {
        Ok(guid)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<u64, E> {
        let digits = text.strip_prefix("0x").filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

/// Lists of GUIDs; for `#[serde(with = "guid::list")]`.
pub mod list {
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::Serializer;

    #[derive(serde::Deserialize)]
    struct GuidText(#[serde(with = "super")] u64);

    /// Serializes a list of GUIDs.
    pub fn serialize<S: Serializer>(guids: &[u64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(guids.iter().map(|guid| super::text(*guid)))
    }

    /// Deserializes a list of GUIDs.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        Ok(Vec::<GuidText>::deserialize(deserializer)?.into_iter().map(|GuidText(guid)| guid).collect())
    }
}
