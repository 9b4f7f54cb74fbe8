//! Plain types that the stages exchange. Nothing here does I/O or depends on a stage.

pub mod batch;
pub mod clock;
pub mod column;
pub mod connection_key;
pub mod coverage;
pub mod hash;
pub mod health;
pub mod histogram;
pub mod line;
pub mod link;
pub mod live;
pub mod message;
pub(crate) mod message_table;
pub mod mirror_sequences;
pub mod mpi_message;
pub mod nodes;
pub mod packed;
pub mod packet;
pub mod packet_role;
pub mod paged;
pub mod profile;
pub mod rank_index;
pub mod rdma_sums;
pub mod restrict;
pub mod sample;
pub mod show;
pub mod sizes;
pub mod streams;
pub(crate) mod table;
pub mod timestamps;
pub mod timing;
pub mod traffic;
pub mod trust;
pub mod vec_map;

pub use batch::Batch;
pub use clock::{Clock, ClockRow};
pub use connection_key::{ConnectionKey, TrafficKind};
pub use coverage::Coverage;
pub use hash::{HashMap, SeededHasher, constant_hash};
pub use health::Health;
pub use histogram::{Histogram, HistogramParts, Recorder};
pub use live::LiveSums;
pub use message::{MessageRow, RawMessage};
pub use mirror_sequences::{MirrorLoss, MirrorSequences, SequenceRuns};
pub use mpi_message::MpiMessage;
pub use nodes::Nodes;
pub use packed::PackedRows;
pub use packet::{InspectedPacket, PacketFields, PacketFlags, PacketRecord, PacketRef, Packets};
pub use packet_role::PacketRole;
pub use paged::PagedVec;
pub use profile::Profile;
pub use rank_index::{ConnectionRanks, JobRank, RankIndex};
pub use rdma_sums::RdmaSums;
pub use restrict::UnknownJob;
pub use sample::Sample;
pub use show::{count_either, count_of, duration, printable, quoted, ranges};
pub use sizes::{SizeCategory, SizeSums, Sizes};
pub use streams::{StreamSums, Streams};
pub use timestamps::TimestampStats;
pub use timing::{Interval, ObservedPorts, RequiredDetection, SizeClass, Timing, TimingKey, Verb};
pub use traffic::{
    ConnectionEnd, Continuity, CtsQueue, MissingMessages, MpiConnectionMessage, NcclProcesses, PacketObservation,
    PacketSums, PsnDigest, QueuePair, SameProcess, StartEvent, WorkerWireup, clear_favorite,
};
pub use trust::{PacketBounds, Trust, TrustVerdict};
pub use vec_map::VecMap;
