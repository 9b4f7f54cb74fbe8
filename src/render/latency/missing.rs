//! Messages that explain why times are missing.

use crate::analysis::latency::{SET_UP, TEAR_DOWN};
use crate::model::{Interval, Profile, TrafficKind};
use crate::render::units::group;
use ibscope_parsers::ib::{Opcode, Service};

/// The message for a profile without times.
pub const NOT_MEASURED: &str = "times were not measured: the profile was written with `analyze --no-times` or `--no-mpi`; analyze the captures again \
                                without it, or give them to `latency`";

/// A note on the connections whose service has no acknowledgements, and so no response times.
#[must_use]
pub fn notes(profile: &Profile) -> Vec<String> {
    let unreliable = |service: Service| {
        let own = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
        let count = own.filter(|connection| Opcode(connection.service << 5).service() == service).count();
        (count > 0).then(|| format!("{} of {}", group(count as u64), service.name()))
    };
    let found: Vec<String> = [Service::Uc, Service::Ud].into_iter().filter_map(unreliable).collect();
    if found.is_empty() {
        return Vec::new();
    }
    vec![format!("connections without acknowledgements ({}) have no response times", found.join(", "))]
}

/// Reasons why an interval may have no times, and requirements on a capture that has some. `None`
/// means all intervals.
#[must_use]
pub fn requirements(interval: Option<&str>) -> &'static str {
    let known = Interval::ALL.into_iter().find(|known| Some(known.name()) == interval);
    match (known, interval) {
        (Some(Interval::Message), _) => {
            "no message of several packets is in the capture from its first to its last packet"
        }
        (Some(Interval::Interval), _) => "no connection carries two messages in the capture",
        (Some(Interval::Transit), _) => {
            "packets must be observed at both ports: by a sink that both ports are mirrored to, or in captures of both ports that are analyzed together without --no-align"
        }
        (Some(Interval::RendezvousRequest | Interval::RendezvousData | Interval::RendezvousCompletion), _) => {
            "an MPI library must be detected, and the capture must contain both directions of messages that are long enough for a rendezvous"
        }
        (Some(Interval::MpiMessage), _) => {
            "an MPI library must be detected, and its messages must be observed at both ports: by a sink that both ports are mirrored to, or in captures \
             of both ports that are analyzed together"
        }
        (Some(Interval::StorageCommand), _) => {
            "the capture must contain commands of NVMe over Fabrics, NFS over RDMA, iSER or SRP, and their completions"
        }
        (None, Some(SET_UP)) => "no connection was set up by connection management messages while the capture ran",
        (None, Some(TEAR_DOWN)) => {
            "no connection was torn down by connection management messages while the capture ran"
        }
        (Some(Interval::Acknowledged | Interval::FirstResponse | Interval::LastResponse) | None, _) => {
            "only reliable services have acknowledgements and responses, and the capture must contain both directions"
        }
    }
}

/// The message instead of an empty table, for one interval or for all.
#[must_use]
pub fn empty_message(profile: &Profile, interval: Option<&str>) -> String {
    match interval {
        _ if !profile.times_read => format!("{NOT_MEASURED}\n"),
        None => format!("no time could be measured: {}\n", requirements(None)),
        Some(name) => format!("no time of the interval `{name}` could be measured: {}\n", requirements(interval)),
    }
}
