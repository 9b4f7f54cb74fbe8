//! The verdict on a capture as a sentence.

use super::units::{count_of, group};
use crate::model::{PacketBounds, Trust, TrustVerdict, printable};

/// Reasons in the summary; `health` lists all.
const MAX_REASONS: usize = 2;

/// Whether the capture holds all packets, as a clause of a sentence; `None` if it does.
pub(crate) fn doubt(trust: &Trust) -> Option<String> {
    match trust.verdict {
        TrustVerdict::Complete => None,
        TrustVerdict::Unknown => Some("it is unknown whether the capture is complete".to_owned()),
        TrustVerdict::Incomplete | TrustVerdict::Sampled => Some(format!("the capture is {}", trust.verdict.name())),
    }
}

/// The verdict and the missing packets.
pub(super) fn sentence(trust: &Trust) -> String {
    if trust.verdict == TrustVerdict::Sampled {
        return "sampled: what the capture lost besides the packets that were not sampled is not known".to_owned();
    }
    let Trust { proven_connections: proven, reliable_connections: all, .. } = *trust;
    let connections = count_of(all, "reliable connection");
    let scope = if proven == all {
        format!("every packet of {connections} was captured")
    } else {
        format!("{} of {connections} {} proven complete", group(proven), if proven == 1 { "is" } else { "are" })
    };
    let scope = Some(scope).filter(|_| all > 0);
    let by_capture = bounds(trust.lost_by_capture_packets).map(|lost| format!("the capture lost {lost}"));
    let on_fabric = bounds(trust.lost_on_fabric_packets).map(|lost| format!("the fabric lost {lost}"));
    let parts: Vec<String> = by_capture.into_iter().chain(on_fabric).chain(scope).collect();
    let detail = if parts.is_empty() { "the capture has no reliable connection".to_owned() } else { parts.join("; ") };
    format!("{}: {detail}", trust.verdict.name())
}

/// The sentence with the first reasons.
pub(super) fn summary(trust: &Trust) -> String {
    let mut text = sentence(trust);
    if !matches!(trust.verdict, TrustVerdict::Complete | TrustVerdict::Sampled) {
        let shown = trust.reasons.iter().take(MAX_REASONS).map(|reason| printable(reason));
        let more = trust.reasons.len().checked_sub(MAX_REASONS).filter(|more| *more > 0);
        let more = more.map(|more| format!("{} in `ibscope health`", count_of(more as u64, "more reason")));
        shown.chain(more).for_each(|reason| text = format!("{text}; {reason}"));
    }
    text
}

/// A number of lost packets; `None` if none is known to be lost.
fn bounds(lost: PacketBounds) -> Option<String> {
    match lost {
        PacketBounds { at_least: 0, .. } => None,
        PacketBounds { at_least, at_most: Some(most) } if at_least == most => Some(count_of(most, "packet")),
        PacketBounds { at_least, at_most: Some(most) } => {
            Some(format!("{} to {}", group(at_least), count_of(most, "packet")))
        }
        PacketBounds { at_least, at_most: None } => Some(format!("at least {}", count_of(at_least, "packet"))),
    }
}
