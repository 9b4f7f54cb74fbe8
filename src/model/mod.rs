//! Plain types that the stages hand to each other. Nothing here does I/O or knows a stage.

pub mod batch;
pub mod clock;
pub mod connection_key;
pub mod coverage;
pub mod few;
pub mod hash;
pub mod health;
pub mod histogram;
pub mod line;
pub mod link;
pub mod live;
pub mod message;
pub mod mpi_message;
pub mod nodes;
pub mod packed;
pub mod packet;
pub mod paged;
pub mod profile;
pub mod rank_index;
pub mod rdma_sums;
pub mod restrict;
pub mod sample;
pub mod show;
pub mod sizes;
pub mod stamps;
pub mod streams;
pub mod timing;
pub mod traffic;
pub mod turn;

pub use batch::Batch;
pub use clock::{Clock, ClockRow};
pub use connection_key::{ConnectionKey, Kind};
pub use coverage::Coverage;
pub use few::Few;
pub use hash::{HashMap, Seeded, constant_hash};
pub use health::Health;
pub use histogram::{Histogram, HistogramParts, Recorder};
pub use live::Live;
pub use message::{MessageRow, Moved, RawMessage};
pub use mpi_message::MpiMessage;
pub use nodes::Nodes;
pub use packed::Packed;
pub use packet::{InspectedPacket, Marks, Packet, PacketRecord, Packets};
pub use paged::Paged;
pub use profile::Profile;
pub use rank_index::{ConnectionRanks, JobRank, RankIndex};
pub use rdma_sums::RdmaSums;
pub use restrict::UnknownJob;
pub use sample::Sample;
pub use show::{duration, printable, quoted, ranges};
pub use sizes::{SizeOf, SizeSums, Sizes};
pub use stamps::Stamps;
pub use streams::{StreamSums, Streams};
pub use timing::{Claim, Interval, Sight, SizeClass, Timing, TimingKey, Verb};
pub use traffic::{
    ConnectionEnd, Continuity, CtsQueue, Introduction, Missing, NcclProcesses, QueuePair, SameProcess, Seen, Start,
    Sums, Wireup, clear_favourite,
};
pub use turn::Turn;
