//! Lists the MPI libraries that the processes of a job use at each endpoint.

use crate::model::{Profile, RankIndex, TrafficKind};
use ibscope_parsers::Endpoint;
use std::collections::{BTreeMap, BTreeSet};

/// Names of the MPI libraries by endpoint and job.
pub(crate) type Libraries<'a> = BTreeMap<(Endpoint, u32), BTreeSet<&'a str>>;

/// Collects the libraries of the senders of a profile.
pub(crate) fn libraries(profile: &Profile) -> Libraries<'_> {
    let index = RankIndex::of(profile);
    let mut libraries = Libraries::new();
    for row in profile.connections.iter().filter(|row| row.kind == TrafficKind::Data) {
        if let (Some(stack), Some(job)) = (row.stack.as_deref(), index.connection(row).job) {
            libraries.entry((row.src, job)).or_default().insert(stack);
        }
    }
    libraries
}
