//! What is said where there are no times.

use crate::analysis::latency::{SET_UP, TEAR_DOWN};
use crate::model::{Interval, Kind, Profile};
use crate::render::units::group;
use ibscope_parsers::ib::{Opcode, Service};

/// What is said of a profile without times.
pub const NOT_MEASURED: &str = "times were not measured: the profile was written with `analyze --no-times` or `--no-mpi`; analyse the captures again \
                                without it, or give them to `latency`";

/// What is to be said of requests that no time is shown of: those of services without acknowledgements.
#[must_use]
pub fn notes(profile: &Profile) -> Vec<String> {
    let unreliable = |service: Service| {
        let own = profile.connections.iter().filter(|connection| connection.kind == Kind::Data);
        let count = own.filter(|connection| Opcode(connection.service << 5).service() == service).count();
        (count > 0).then(|| format!("{} of {}", group(count as u64), service.name()))
    };
    let found: Vec<String> = [Service::Uc, Service::Ud].into_iter().filter_map(unreliable).collect();
    if found.is_empty() {
        return Vec::new();
    }
    vec![format!("connections without acknowledgements ({}) have no times from request to answer", found.join(", "))]
}

/// What a capture must hold for times of an interval, or for any.
#[must_use]
pub fn takes(interval: Option<&str>) -> &'static str {
    let known = Interval::ALL.into_iter().find(|known| Some(known.name()) == interval);
    match (known, interval) {
        (Some(Interval::Message), _) => {
            "no message of several packets is in the capture from its first to its last packet"
        }
        (Some(Interval::Interval), _) => "no connection carries two messages in the capture",
        (Some(Interval::Transit), _) => {
            "packets must be seen at both ports: by a sink that both are mirrored to, or in the captures of both, given together without --no-align"
        }
        (Some(Interval::RendezvousRequest | Interval::RendezvousData | Interval::RendezvousCompletion), _) => {
            "an MPI library must be recognised, and messages that are long enough for a rendezvous must be in the capture with both directions"
        }
        (Some(Interval::MpiMessage), _) => {
            "an MPI library must be recognised, and its messages must be seen at both ports: by a sink that both are mirrored to, or in the captures \
             of both, given together"
        }
        (None, Some(SET_UP)) => "no connection was set up by connection management messages while the capture ran",
        (None, Some(TEAR_DOWN)) => {
            "no connection was torn down by connection management messages while the capture ran"
        }
        (Some(Interval::Acknowledged | Interval::FirstResponse | Interval::LastResponse) | None, _) => {
            "acknowledgements and responses belong to the reliable services, and both directions must be in the capture"
        }
    }
}

/// What stands in the place of a table without rows, where this interval is wanted alone or all are.
#[must_use]
pub fn nothing(profile: &Profile, interval: Option<&str>) -> String {
    match interval {
        _ if !profile.times_read => format!("{NOT_MEASURED}\n"),
        None => format!("no time could be measured: {}\n", takes(None)),
        Some(name) => format!("no time of the interval `{name}` could be measured: {}\n", takes(interval)),
    }
}
