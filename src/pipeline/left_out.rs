//! Notes on everything that is missing from the numbers: data beyond a bound on memory, frames that
//! may hold RoCE and were not read, and frames that a mirror lost.

use super::AnalysisOptions;
use crate::model::{Coverage, count_of};
use ibscope_parsers::link::NotInfiniband;

/// A note for each count that is not zero. `cm` counts connection management messages beyond the
/// bound.
pub(super) fn notes(coverage: &Coverage, cm: u64, options: &AnalysisOptions) -> Vec<String> {
    let beyond = format!("packets of connections beyond --max-connections {}", options.limits.max_connections);
    let all = [
        (
            coverage.untracked_packets,
            beyond.as_str(),
            "They are missing from all other numbers, and the coverage of all pairs is unknown; give a larger --max-connections",
        ),
        (
            coverage.overlap_left_out,
            "packets that may also be in another file of the same observation point, which they were not compared with",
            "Those that are also in the next file count twice, so the coverage of all pairs is unknown",
        ),
        (cm, "connection management messages that were counted but not stored", "Ranks in them may be unknown"),
        (
            coverage.connection_messages_left_out,
            "wire-up and connection messages that were counted but not stored",
            "Ranks derived from them may be unknown",
        ),
        (
            coverage.pause_frames_left_out,
            "pause frames of senders over the limit",
            "They are missing from the table of pauses",
        ),
        (
            coverage.mirrored_frames_left_out,
            "mirrored frames of sessions over the limit",
            "Lost frames of these sessions are not detected",
        ),
        (
            coverage.repeated_samples,
            "samples of sFlow or psample that the capture holds a second time",
            "Each sample counts once; let the network and the mirror deliver each datagram once",
        ),
        (
            coverage.statistics_left_out,
            "statistics of interfaces over the limit",
            "The packets that these interfaces dropped are not counted",
        ),
        (
            coverage.window_overflows,
            "connections with more PSN gaps than ibscope tracks",
            "Late retransmissions may count as new packets, so the coverage of these connections is unknown",
        ),
        (
            coverage.unclear_copies,
            "connections whose packets appear more often than one or two observation points explain",
            "Each packet counts once, and their retransmissions are unknown; mirror each port once, for the whole capture",
        ),
        (
            coverage.messages_evicted,
            "messages that ibscope stopped tracking before their end, because too many were incomplete at a time",
            "They count as incomplete, and their lengths may be missing from the sums",
        ),
    ];
    let left_out = all.into_iter().filter(|(count, ..)| *count > 0);
    let mut notes: Vec<String> = left_out.map(|(count, what, effect)| format!("{what}: {count}. {effect}")).collect();
    notes.extend(lost_mirrored_frames(coverage));
    let unread = unread_frames(coverage);
    notes.extend(unread.map(|(name, count, remedy)| {
        format!("{name}: {} may hold RoCE and {} not read; {remedy}", count_of(count, "frame"), was(count))
    }));
    notes
}

const fn was(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// Sessions of mirrors that a note names, those with the most lost frames.
const MAX_NAMED_SESSIONS: usize = 4;

/// The note on frames that were lost between a mirror and the capture.
fn lost_mirrored_frames(coverage: &Coverage) -> Option<String> {
    let lost = coverage.lost_mirrored_frames();
    let mut sessions: Vec<_> = coverage.mirror_losses.iter().collect();
    sessions.sort_by_key(|(_, loss)| std::cmp::Reverse(loss.lost_frames));
    let named: Vec<String> = sessions
        .iter()
        .take(MAX_NAMED_SESSIONS)
        .map(|(name, loss)| format!("{} of {name}", loss.lost_frames))
        .collect();
    let more = sessions.len().saturating_sub(MAX_NAMED_SESSIONS);
    let more = if more > 0 { format!(", and of {}", count_of(more as u64, "more session")) } else { String::new() };
    (lost > 0).then(|| {
        format!(
            "{} {} lost between the mirror and the capture, as the sequence numbers of the mirror show ({}{more}): counts are lower \
             bounds; mirror fewer ports or truncate the frames",
            count_of(lost, "mirrored frame"),
            was(lost),
            named.join("; ")
        )
    })
}

/// Frames that may hold RoCE and were not read: name, number and remedy.
pub(super) fn unread_frames(coverage: &Coverage) -> impl Iterator<Item = (&str, u64, &'static str)> {
    coverage.undecoded.iter().filter_map(|(name, count)| Some((name.as_str(), *count, remedy(name)?)))
}

/// Remedy for frames of this name, if they may hold RoCE.
fn remedy(name: &str) -> Option<&'static str> {
    let is = |what: NotInfiniband| name.starts_with(&what.to_string());
    if is(NotInfiniband::Fragment) {
        return Some("raise the MTU on the path of the mirror, or let the mirror truncate the frames");
    }
    if is(NotInfiniband::TooDeep) {
        return Some("capture at a point with fewer tunnels");
    }
    (name.contains("with unknown content") || name.starts_with("GRE protocol"))
        .then_some("let the mirror send Ethernet frames in ERSPAN, GRE or VXLAN")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::MirrorLoss;

    fn losses(sessions: usize) -> Coverage {
        let loss =
            |session: usize| (format!("session {session}"), MirrorLoss { frames: 9, lost_frames: session as u64 + 1 });
        Coverage { mirror_losses: (0..sessions).map(loss).collect(), ..Coverage::default() }
    }

    #[test]
    fn sessions_beyond_the_named_ones_are_counted() {
        assert_eq!(lost_mirrored_frames(&losses(0)), None);
        let one = lost_mirrored_frames(&losses(1)).unwrap();
        assert!(one.starts_with("1 mirrored frame was lost between the mirror and the capture"), "{one}");
        assert!(one.contains("(1 of session 0)"), "{one}");
        let named = lost_mirrored_frames(&losses(MAX_NAMED_SESSIONS)).unwrap();
        assert!(named.contains("(4 of session 3; 3 of session 2; 2 of session 1; 1 of session 0)"), "{named}");
        let more = lost_mirrored_frames(&losses(MAX_NAMED_SESSIONS + 1)).unwrap();
        assert!(more.contains("; 2 of session 1, and of 1 more session)"), "{more}");
    }

    #[test]
    fn frames_that_may_hold_roce_have_a_remedy() {
        let names = [
            "IP fragment in VXLAN",
            "ERSPAN III with unknown content 0x0007",
            "GRE protocol 0x6559",
            "frame in more than 8 tunnels",
            "IPv4 header truncated",
        ];
        let coverage = Coverage { undecoded: names.map(|name| (name.to_owned(), 1)).into(), ..Coverage::default() };
        let found: Vec<&str> = unread_frames(&coverage).map(|(name, ..)| name).collect();
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(!found.contains(&"IPv4 header truncated"));
    }
}
