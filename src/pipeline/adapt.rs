//! What of the options still applies to a profile that was read from disk: names, ranks, a window of time.

use super::{Error, Options};
use crate::model::RdmaSums;
use crate::model::profile::{Repeats, Traffic};
use crate::model::{Profile, duration};
use crate::ranks::rankmap;

/// Applies `--hosts`, `--rankmap`, `--from` and `--to` to a profile.
///
/// A window is cut out of the timeline in whole bins: every bin that overlaps it counts, and a note says so where that
/// widens it; latencies over time have bins of their own. Repeats, health, sizes, streams and latencies as such are not kept by time; within a window there are none.
pub fn adapt(profile: &mut Profile, options: &Options) -> Result<(), Error> {
    profile.names.extend(options.names.iter().map(|(endpoint, name)| (*endpoint, name.clone())));
    if let Some(rows) = &options.rankmap {
        rankmap::apply(profile, rows);
    }
    if options.from.is_none() && options.to.is_none() {
        return Ok(());
    }
    if profile.bin_ns <= 0 {
        return Err(Error::NoTimeline);
    }
    let start_ns = profile.coverage.first_time_ns.unwrap_or(0);
    let from_ns = options.from.map_or(i64::MIN, |moment| moment.absolute_ns(start_ns));
    let to_ns = options.to.map_or(i64::MAX, |moment| moment.absolute_ns(start_ns));
    let bin_ns = profile.bin_ns;
    let overlaps = |time_ns: i64, bin_ns: i64| time_ns < to_ns && time_ns.saturating_add(bin_ns) > from_ns;
    profile.timeline.retain(|row| overlaps(row.time_ns, bin_ns));
    // Their bins may have been made wider than those of the traffic.
    let latency_bin_ns = profile.latency_bin_ns;
    profile.latency_timeline.retain(|row| overlaps(row.time_ns, latency_bin_ns));
    profile.health.clear();
    profile.sizes.clear();
    profile.streams = None;
    for connection in &mut profile.connections {
        connection.traffic = Traffic::default();
        connection.repeats = Repeats::default();
    }
    for row in &profile.timeline {
        if let Some(connection) = profile.connections.get_mut(row.connection as usize) {
            connection.traffic += row.traffic;
        }
    }
    for connection in &mut profile.connections {
        let Traffic { messages, payload_bytes, .. } = connection.traffic;
        // RDMA by itself is not kept by time: these are all messages of the connection.
        connection.one_sided = connection.one_sided.map(|_| RdmaSums { messages, payload_bytes });
    }
    let cuts = |bin_ns: i64| {
        let cuts = |moment_ns: i64| ![i64::MIN, i64::MAX].contains(&moment_ns) && moment_ns.rem_euclid(bin_ns) != 0;
        bin_ns > 0 && (cuts(from_ns) || cuts(to_ns))
    };
    if cuts(bin_ns) || cuts(latency_bin_ns) {
        let latencies = match latency_bin_ns {
            width_ns if width_ns == bin_ns || width_ns == 0 => String::new(),
            width_ns => format!(" ({} of latencies)", duration(width_ns)),
        };
        profile.notes.push(format!(
            "the window is widened to whole bins of {}{latencies}; for an exact one give the captures, or analyse with a smaller --bin",
            duration(bin_ns)
        ));
    }
    Ok(())
}
