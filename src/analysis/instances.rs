//! The collective operations of captures, those of MPI and those of NCCL, one by one.
//!
//! In: all messages of captures, and their profile. Out: the operations of both, by job and start. A
//! sampled capture has only some of the messages of an operation, so its operations are unknown.

use super::collective_instances::{CollectiveCollector, CollectiveInstance, clock_bound_ns};
use super::nccl_collectives::NcclCollector;
use crate::crosscheck::WireOperation;
use crate::model::{ConnectionClass, MessageRow, Profile};

/// Collects the messages of captures.
#[derive(Clone, Debug, Default)]
pub struct InstanceCollector {
    mpi: CollectiveCollector,
    nccl: NcclCollector,
}

/// The operations, and the messages that belong to none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstanceList {
    /// The operations by job and start; none if they are unknown.
    pub instances: Vec<CollectiveInstance>,
    /// Reason why the operations are unknown, as the end of "unknown, because ...".
    pub unknown_because: Option<&'static str>,
    /// Collective messages of MPI without job or ranks.
    pub without_ranks: u64,
    /// Collective messages of MPI beyond the bound.
    pub beyond_bound: u64,
    /// Messages of NCCL without ranks, without times, or whose receive was not captured.
    pub nccl_left_out: u64,
    /// Messages of NCCL beyond the bound.
    pub nccl_beyond_bound: u64,
}

impl InstanceList {
    /// The operations of MPI for a comparison with a trace; `None` if they are unknown, or if some
    /// messages are missing.
    #[must_use]
    pub fn wire_operations(&self) -> Option<Vec<WireOperation>> {
        if self.unknown_because.is_some() || self.beyond_bound > 0 {
            return None;
        }
        let of_mpi = self.instances.iter().filter(|own| !own.is_nccl);
        Some(of_mpi.map(wire_operation).collect())
    }
}

fn wire_operation(own: &CollectiveInstance) -> WireOperation {
    WireOperation {
        job: own.job,
        context: own.context(),
        communicator: own.communicator.clone(),
        number: own.number,
        operation: own.operation,
        start_ns: own.start_ns,
        end_ns: own.end_ns,
        activity: own.activity.clone(),
    }
}

impl InstanceCollector {
    /// Keeps at most `max_messages` of each library.
    #[must_use]
    pub const fn with_limit(max_messages: usize) -> Self {
        Self { mpi: CollectiveCollector::with_limit(max_messages), nccl: NcclCollector::with_limit(max_messages) }
    }

    /// Adds a message. `profile` is that of the same captures.
    pub fn add(&mut self, profile: &Profile, row: &MessageRow) {
        if row.identity().is_none() {
            return;
        }
        let connection = profile.connections.get(row.connection as usize);
        if connection.is_some_and(|connection| connection.class == ConnectionClass::Nccl) {
            self.nccl.add(row);
        } else {
            self.mpi.add(row);
        }
    }

    /// Divides the messages into operations.
    #[must_use]
    pub fn finish(self, profile: &Profile) -> InstanceList {
        if profile.sampling.is_some() {
            let unknown_because = Some("the mirror sampled the packets, so messages of each operation are missing");
            return InstanceList { unknown_because, ..InstanceList::default() };
        }
        let found = self.mpi.finish(profile);
        let bound_ns = clock_bound_ns(profile);
        let of_nccl = self.nccl.finish(bound_ns);
        let mut instances = found.instances;
        instances.extend(of_nccl.instances.iter().map(|own| own.instance(bound_ns)));
        instances.sort_by_key(|own| (own.job, own.start_ns));
        InstanceList {
            instances,
            unknown_because: None,
            without_ranks: found.without_ranks,
            beyond_bound: found.beyond_bound,
            nccl_left_out: of_nccl.left_out,
            nccl_beyond_bound: of_nccl.beyond_bound,
        }
    }
}
