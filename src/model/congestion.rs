//! Packets that show congestion, loss or a slow receiver, by bin of the time series.
//!
//! The totals of a connection are in [`Health`](super::Health). Invariant: the counts of all bins add
//! up to them, except for packets without a time, which are in no bin.

use super::column::column_values;
use ibscope_parsers::ib::{AethKind, NakCode};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Number of the codes of NAKs that [`nak_code`] distinguishes.
pub const NAK_CODES: usize = 6;

/// Index of the code of a NAK: PSN sequence, invalid request, remote access, remote operation, invalid
/// RD, reserved. `None` for an RNR NAK.
#[must_use]
pub const fn nak_code(kind: &AethKind) -> Option<usize> {
    match kind {
        AethKind::RnrNak { .. } => None,
        AethKind::Nak(NakCode::PsnSequenceError) => Some(0),
        AethKind::Nak(NakCode::InvalidRequest) => Some(1),
        AethKind::Nak(NakCode::RemoteAccess) => Some(2),
        AethKind::Nak(NakCode::RemoteOperational) => Some(3),
        AethKind::Nak(NakCode::InvalidRdRequest) => Some(4),
        AethKind::Nak(NakCode::Reserved(_)) | AethKind::Reserved | AethKind::Ack { .. } => Some(5),
    }
}

/// What a packet shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CongestionEvent {
    /// ECN "congestion experienced".
    EcnCe,
    /// FECN.
    Fecn,
    /// BECN, in a packet that is no congestion notification.
    Becn,
    /// A congestion notification.
    Notification,
    /// A NAK other than an RNR NAK.
    Nak,
    /// An RNR NAK.
    RnrNak,
}

/// Counts of one connection in one bin: the time series of columns of [`Health`](super::Health).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinCongestion {
    /// RoCE packets with ECN "congestion experienced".
    pub ecn_ce_packets: u64,
    /// Packets with FECN.
    pub fecn_packets: u64,
    /// Packets with BECN that are not congestion notifications.
    pub becn_packets: u64,
    /// Congestion notifications.
    pub cnp_packets: u64,
    /// NAKs without RNR NAKs.
    pub naks: u64,
    /// RNR NAKs.
    pub rnr_naks: u64,
}

column_values! {
    BinCongestion {
        ecn_ce_packets: "ecn_ce_packets", Count, "RoCE packets with ECN \"congestion experienced\" in the IP header or GRH";
        fecn_packets: "fecn_packets", Count, "packets with FECN: a switch on their path was congested";
        becn_packets: "becn_packets", Count, "packets with BECN that are not congestion notifications";
        cnp_packets: "cnp_packets", Count, "congestion notifications that `src` sent: they ask a queue pair to slow down";
        naks: "naks", Count, "NAKs that `src` sent, without RNR NAKs: packets were lost or refused";
        rnr_naks: "rnr_naks", Count, "RNR NAKs that `src` sent: it had no receive buffer for a request";
    }
}

impl BinCongestion {
    /// Adds packets of one kind.
    pub const fn add(&mut self, event: CongestionEvent, packets: u64) {
        let count = match event {
            CongestionEvent::EcnCe => &mut self.ecn_ce_packets,
            CongestionEvent::Fecn => &mut self.fecn_packets,
            CongestionEvent::Becn => &mut self.becn_packets,
            CongestionEvent::Notification => &mut self.cnp_packets,
            CongestionEvent::Nak => &mut self.naks,
            CongestionEvent::RnrNak => &mut self.rnr_naks,
        };
        *count = count.saturating_add(packets);
    }

    /// Number of packets of all kinds.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.values().iter().sum()
    }
}

impl AddAssign for BinCongestion {
    fn add_assign(&mut self, other: Self) {
        let mut sums = self.values();
        sums.iter_mut().zip(other.values()).for_each(|(sum, own)| *sum = sum.saturating_add(own));
        *self = Self::from_values(sums);
    }
}
