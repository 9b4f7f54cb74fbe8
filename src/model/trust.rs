//! Whether a capture holds all packets: the verdict, and bounds on the missing packets.

use serde::{Deserialize, Serialize};

/// Lower and upper bound of a number of packets; without an upper bound, any number is possible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u64, Option<u64>)", into = "(u64, Option<u64>)")]
pub struct PacketBounds {
    /// Packets that are certainly lost.
    pub at_least: u64,
    /// Packets that may be lost.
    pub at_most: Option<u64>,
}

impl PacketBounds {
    /// No packet is lost.
    pub const NONE: Self = Self { at_least: 0, at_most: Some(0) };
}

impl From<(u64, Option<u64>)> for PacketBounds {
    fn from((at_least, at_most): (u64, Option<u64>)) -> Self {
        Self { at_least, at_most }
    }
}

impl From<PacketBounds> for (u64, Option<u64>) {
    fn from(bounds: PacketBounds) -> Self {
        (bounds.at_least, bounds.at_most)
    }
}

/// Whether the capture holds all packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TrustVerdict {
    /// The packets prove that none is missing.
    Complete,
    /// The packets prove that some are missing.
    Incomplete,
    /// The mirror sampled the packets.
    Sampled,
    /// The packets prove neither.
    #[default]
    Unknown,
}

impl TrustVerdict {
    /// The name in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Sampled => "sampled",
            Self::Unknown => "unknown",
        }
    }
}

/// Records that one input misses at its observation points, and that other records show: those of
/// another input, or of the other port in the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputLoss {
    /// Name of the input.
    pub input: String,
    /// Missing records: lost by this capture, or on the fabric before the point.
    pub missing_records: u64,
    /// When they are missing; `None` without a timeline.
    #[serde(flatten)]
    pub times: Option<LossTimes>,
}

/// When records are missing, in nanoseconds from the first packet, to the width of a bin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossTimes {
    /// Start of the first bin with missing records.
    pub from_ns: i64,
    /// End of the last one.
    pub to_ns: i64,
    /// Start of the minute, or of the shorter span, with the most missing records.
    pub worst_from_ns: i64,
    /// Its end.
    pub worst_to_ns: i64,
    /// Records that are missing in this span.
    pub worst_records: u64,
}

/// The verdict on a capture and the numbers behind it. `docs/method.md` derives them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// The verdict.
    pub verdict: TrustVerdict,
    /// Packets that left the sender's port and did not reach the receiver.
    pub lost_on_fabric_packets: PacketBounds,
    /// Packets that passed an observation point and that the capture does not have from there. A
    /// packet that is missing at both ports counts twice.
    pub lost_by_capture_packets: PacketBounds,
    /// Packets that passed an observation point and that the capture does not have from any.
    #[serde(default)]
    pub never_captured_packets: PacketBounds,
    /// Directed connections of the reliable service (RC) with data.
    pub reliable_connections: u64,
    /// The number of these that provably miss no packet.
    pub proven_connections: u64,
    /// Reasons against the verdict `complete`, one phrase each.
    pub reasons: Vec<String>,
    /// The inputs that miss records, and when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_losses: Vec<InputLoss>,
}

impl Trust {
    /// Adds reasons for which packets may be missing without a trace. With any, the verdict is not
    /// `complete`, and there are no upper bounds.
    pub fn doubt(&mut self, reasons: impl Iterator<Item = String>) {
        let before = self.reasons.len();
        self.reasons.extend(reasons);
        if self.reasons.len() == before {
            return;
        }
        if self.verdict == TrustVerdict::Complete {
            self.verdict = TrustVerdict::Unknown;
        }
        self.lost_by_capture_packets.at_most = None;
        self.never_captured_packets.at_most = None;
        self.lost_on_fabric_packets.at_most = None;
    }

    /// Takes back what depends on the order of records, which is not that of the capture: packets that look
    /// lost may only be late. [`Trust::doubt`] adds the reason.
    pub const fn lose_order(&mut self) {
        if matches!(self.verdict, TrustVerdict::Incomplete) {
            self.verdict = TrustVerdict::Unknown;
        }
        self.lost_on_fabric_packets.at_least = 0;
        self.lost_by_capture_packets.at_least = 0;
        self.never_captured_packets.at_least = 0;
    }

    /// Notes that sequence numbers of a mirror show lost frames. How many of them held InfiniBand
    /// packets is not known, so the bounds do not change.
    pub fn lose_mirrored_frames(&mut self) {
        if self.verdict != TrustVerdict::Sampled {
            self.verdict = TrustVerdict::Incomplete;
        }
    }
}
