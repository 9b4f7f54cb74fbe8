//! Sums of one connection over all inputs.

use super::health::BriefHealth;
use super::profile::{RetransmissionSums, Traffic};
use super::{
    BinSums, ConnectionKey, ConnectionPaths, Continuity, MissingMessages, MpiTotals, OperationMix, OtherInputs,
    PackedBins, RdmaSums, Recorder, RequiredDetection, SampledSums, SizeCategory, SizeClass, SizeSums, StorageSums,
    TimeBin, TimingKey, UpperLayerVotes, VecMap, Votes,
};
use ibscope_parsers::Qpn;
use smallvec::SmallVec;

/// Packets that some observation points of a connection hold and others do not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservationSums {
    /// Observation points of the connection; 0 if it is not known what they hold together.
    pub points: u64,
    /// A point was not captured all the time in which the connection had packets.
    pub is_partial: bool,
    /// One input has all points: its records do not name theirs, and its losses may hit all.
    pub is_one_input: bool,
    /// Requests, and responses with data.
    pub data: MissingRecords,
    /// ACKs and NAKs.
    pub acks: MissingRecords,
}

/// Packets, and records of them that are missing at an observation point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MissingRecords {
    /// Packets, each PSN once.
    pub first_packets: u64,
    /// Further transmissions of the same PSNs.
    pub later_packets: u64,
    /// Records of the first transmissions that are missing at a point.
    pub first_missing: u64,
    /// Records of further transmissions that are missing at a point.
    pub later_missing: u64,
}

impl MissingRecords {
    /// All missing records.
    #[must_use]
    pub const fn missing(&self) -> u64 {
        self.first_missing + self.later_missing
    }
}

/// Sums of one connection over all inputs, without mirror copies. Its library is not detected yet.
#[derive(Clone, Debug)]
pub struct ConnectionTotals {
    /// The connection.
    pub key: ConnectionKey,
    /// Time of its first and last packet, nanoseconds since the epoch.
    pub times_ns: (i64, i64),
    /// Sums without the MPI columns.
    pub traffic: Traffic,
    /// Sums of all observations: the samples, if the capture is sampled.
    pub sampled: SampledSums,
    /// Retransmissions.
    pub retransmissions: RetransmissionSums,
    /// Other health counts.
    pub health: BriefHealth,
    /// First packets of messages that belong to no known library.
    pub unknown_starts: u64,
    /// First packets of messages that match an upper-layer protocol, if any.
    pub upper_layers: Option<Box<UpperLayerVotes>>,
    /// Its operations and the sizes of its messages.
    pub operations: OperationMix,
    /// MPI results, if any.
    pub mpi: Option<Box<MpiTotals>>,
    /// Commands of a storage protocol, if it carries some.
    pub storage: Option<Box<StorageSums>>,
    /// Counts of incomplete messages, if any.
    pub missing: Option<Box<MissingMessages>>,
    /// Missing packets, by sequence numbers.
    pub continuity: Continuity,
    /// Packets that not all of its observation points hold; `None` with one point.
    pub observations: Option<Box<ObservationSums>>,
    /// RDMA WRITEs and READs within the traffic.
    pub rdma: RdmaSums,
    /// Packets by path fields.
    pub paths: ConnectionPaths,
    /// Indices of the inputs that these sums come from, in time order; usually one.
    pub inputs: SmallVec<[u32; 2]>,
    /// Votes for the sender's queue pair, which the packets do not carry: responses that are
    /// consistent with requests to it. 0 counts against it, see [`ConnectionEnd::partners`](super::ConnectionEnd::partners).
    pub partners: VecMap<Qpn, u64>,
    /// The same votes from replies that return a request number.
    pub echoes: VecMap<Qpn, u64>,
    /// Times between packets, with the detection that they require.
    pub latencies: VecMap<(Option<RequiredDetection>, TimingKey), Recorder>,
    /// Sizes of packets and messages.
    pub sizes: VecMap<(SizeCategory, SizeClass), SizeSums>,
    /// Time series of response times, unsorted.
    pub time_bins: Vec<TimeBin>,
    /// Time series of these sums; entries of one bin are adjacent.
    pub bins: Box<PackedBins<BinSums>>,
}

/// The next larger blocks of the allocator have 896 bytes, and there may be a million of these.
const _: () = assert!(size_of::<ConnectionTotals>() <= 768);

impl ConnectionTotals {
    /// True if both ports were captured, in one input or in two that overlap in time.
    #[must_use]
    pub const fn is_at_both_ports(&self) -> bool {
        self.continuity.is_observed_twice || !matches!(self.continuity.other_inputs, OtherInputs::None)
    }

    /// Evidence for library and rank.
    #[must_use]
    pub fn votes(&self) -> &Votes {
        static NONE: Votes = Votes::NONE;
        self.mpi.as_ref().map_or(&NONE, |mpi| &mpi.votes)
    }

    /// Number of first packets of messages that were classified.
    #[must_use]
    pub fn starts(&self) -> u64 {
        let votes = self.votes();
        self.unknown_starts + votes.enveloped.iter().chain(&votes.bare).sum::<u64>()
    }

    /// Adds the MPI results of a later input.
    pub fn merge_mpi(&mut self, later: Option<Box<MpiTotals>>) {
        match (&mut self.mpi, later) {
            (Some(mpi), Some(later)) => mpi.merge(*later),
            (None, later) => self.mpi = later,
            (Some(_), None) => {}
        }
    }
}
