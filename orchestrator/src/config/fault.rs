//! A fault in the configuration, and the key that it concerns.

/// Fault at a key.
pub(super) struct ConfigFault {
    /// Path of the key, for example `["mirror", "backend"]`. If the file does not have all of it,
    /// the longest prefix that it has gives the line.
    pub(super) key: &'static [&'static str],
    /// Description of the fault, and the remedy.
    pub(super) what: String,
}
