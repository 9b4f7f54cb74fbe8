//! What is wrong in the file, and where.

/// What is wrong at a key, given by the way to it.
pub(super) struct Wrong {
    /// For example `["mirror", "backend"]`; the first ones that are there give the line.
    pub(super) key: &'static [&'static str],
    /// What is wrong, and what to do about it.
    pub(super) what: String,
}
