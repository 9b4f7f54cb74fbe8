//! Options applied to a profile that was read from disk: names, ranks, a time window.
//!
//! A stored profile has fewer details than the captures, so a window keeps whole bins only and
//! drops every table without times.

use super::{AnalysisOptions, PipelineError};
use crate::model::profile::{RetransmissionSums, Traffic};
use crate::model::{Profile, RdmaSums, duration};
use crate::ranks::rankmap;

/// Start of the note on a window, which is a note on the command and not on the analysis.
pub const WINDOW_NOTE: &str = "the window was extended to whole bins";

/// Applies `--hosts`, `--rankmap`, `--from` and `--to` to a profile.
///
/// A window keeps every timeline bin that overlaps it; a note reports the widening. The latency
/// time series has bins of its own width. Retransmission totals, health, sizes and streams have no
/// times, so a window drops them.
pub fn adapt(profile: &mut Profile, options: &AnalysisOptions) -> Result<(), PipelineError> {
    profile.names.extend(options.endpoints.names.iter().map(|(endpoint, name)| (*endpoint, name.clone())));
    if let Some(rows) = &options.rankmap {
        rankmap::apply(profile, rows);
    }
    if !options.window.is_limited() {
        return Ok(());
    }
    if profile.bin_ns <= 0 {
        return Err(PipelineError::NoTimeline);
    }
    let start_ns = profile.coverage.first_time_ns.unwrap_or(0);
    let (from_ns, to_ns) = options.window.bounds_ns(start_ns);
    let bin_ns = profile.bin_ns;
    let overlaps = |time_ns: i64, bin_ns: i64| time_ns < to_ns && time_ns.saturating_add(bin_ns) > from_ns;
    profile.timeline.retain(|row| overlaps(row.time_ns, bin_ns));
    // The window has whole bins of the timeline, so that totals and pairs have the same sums.
    let is_shown = |time_ns: i64| overlaps(time_ns.div_euclid(bin_ns).saturating_mul(bin_ns), bin_ns);
    profile.senders.retain(|row| is_shown(row.time_ns));
    // The bins of the latency time series may be wider than those of the timeline.
    let latency_bin_ns = profile.latency_bin_ns;
    profile.latency_timeline.retain(|row| overlaps(row.time_ns, latency_bin_ns));
    profile.health.clear();
    profile.sizes.clear();
    profile.streams = None;
    for connection in &mut profile.connections {
        connection.traffic = Traffic::default();
        connection.retransmissions = RetransmissionSums::default();
        // The timeline has no squares, and so no intervals.
        connection.sampled = None;
    }
    for row in &profile.timeline {
        if let Some(connection) = profile.connections.get_mut(row.connection as usize) {
            connection.traffic += row.traffic;
        }
    }
    for connection in &mut profile.connections {
        let Traffic { messages, payload_bytes, .. } = connection.traffic;
        // The timeline does not separate RDMA, so all messages of a one-sided connection count.
        connection.one_sided = connection.one_sided.map(|_| RdmaSums { messages, payload_bytes });
    }
    let cuts = |bin_ns: i64| {
        let cuts = |moment_ns: i64| ![i64::MIN, i64::MAX].contains(&moment_ns) && moment_ns.rem_euclid(bin_ns) != 0;
        bin_ns > 0 && (cuts(from_ns) || cuts(to_ns))
    };
    if cuts(bin_ns) || cuts(latency_bin_ns) {
        let latencies = match latency_bin_ns {
            width_ns if width_ns == bin_ns || width_ns == 0 => String::new(),
            width_ns => format!(" for traffic, {} for latencies", duration(width_ns)),
        };
        profile.notes.push(format!(
            "{WINDOW_NOTE}: {}{latencies}; for an exact window, pass the captures, or analyze them with a smaller --bin",
            duration(bin_ns)
        ));
    }
    Ok(())
}
