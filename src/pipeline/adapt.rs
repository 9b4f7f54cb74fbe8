//! What of the options still applies to a profile that was read from disk: names, ranks, a window of time.

use super::{Error, Options};
use crate::model::Profile;
use crate::model::profile::{Repeats, Traffic};

/// Applies `--hosts`, `--rankmap`, `--from` and `--to` to a profile.
///
/// A window is cut out of the timeline in whole bins: every bin that overlaps it counts, and a note says so where that
/// widens it. Repeats, health and sizes are not kept by time; within a window there are none.
pub fn adapt(profile: &mut Profile, options: &Options) -> Result<(), Error> {
    profile.names.extend(options.names.iter().map(|(endpoint, name)| (*endpoint, name.clone())));
    if let Some(rankmap) = &options.rankmap {
        profile.ranks.clone_from(rankmap);
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
    profile.timeline.retain(|row| row.time_ns < to_ns && row.time_ns.saturating_add(bin_ns) > from_ns);
    profile.health.clear();
    profile.sizes.clear();
    for connection in &mut profile.connections {
        connection.traffic = Traffic::default();
        connection.repeats = Repeats::default();
    }
    for row in &profile.timeline {
        if let Some(connection) = profile.connections.get_mut(row.connection as usize) {
            connection.traffic += row.traffic;
        }
    }
    let cuts_a_bin =
        |moment_ns: i64| moment_ns != i64::MIN && moment_ns != i64::MAX && moment_ns.rem_euclid(bin_ns) != 0;
    if cuts_a_bin(from_ns) || cuts_a_bin(to_ns) {
        profile.notes.push(format!(
            "the window is widened to whole bins of {bin_ns} ns; for an exact one give the captures, or analyse with a smaller --bin"
        ));
    }
    Ok(())
}
