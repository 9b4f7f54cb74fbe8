//! Which MPI libraries the processes of a job speak at each endpoint.

use crate::model::{Kind, Profile, RankIndex};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// The libraries that senders of a job speak, by endpoint.
pub(crate) type Libraries<'a> = BTreeMap<(Endpoint, u32), BTreeSet<&'a str>>;

/// The libraries of a profile.
pub(crate) fn libraries(profile: &Profile) -> Libraries<'_> {
    let index = RankIndex::of(profile);
    let mut libraries = Libraries::new();
    for row in profile.connections.iter().filter(|row| row.kind == Kind::Data) {
        if let (Some(stack), Some(job)) = (row.stack.as_deref(), index.connection(row).job) {
            libraries.entry((row.src, job)).or_default().insert(stack);
        }
    }
    libraries
}
