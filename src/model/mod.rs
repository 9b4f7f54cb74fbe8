//! Plain types that the stages hand to each other. Nothing here does I/O or knows a stage.

pub mod batch;
pub mod clock;
pub mod coverage;
pub mod few;
pub mod hash;
pub mod health;
pub mod histogram;
pub mod line;
pub mod link;
pub mod live;
pub mod message;
pub mod nodes;
pub mod packed;
pub mod packet;
pub mod paged;
pub mod profile;
pub mod rank_index;
pub mod restrict;
pub mod sample;
pub mod show;
pub mod sizes;
pub mod stamps;
pub mod streams;
pub mod timing;
pub mod traffic;

pub use batch::Batch;
pub use clock::{Clock, ClockRow};
pub use coverage::Coverage;
pub use few::Few;
pub use hash::{HashMap, Seeded, constant_hash};
pub use health::Health;
pub use histogram::{Histogram, HistogramParts, Recorder};
pub use live::Live;
pub use message::{MessageRow, Moved, RawMessage};
pub use nodes::Nodes;
pub use packed::Packed;
pub use packet::{InspectedPacket, Kind, Marks, Packet, PacketRecord, Packets};
pub use paged::Paged;
pub use profile::Profile;
pub use rank_index::{ConnectionRanks, JobRank, RankIndex};
pub use restrict::UnknownJob;
pub use sample::Sample;
pub use show::{duration, printable, quoted, ranges};
pub use sizes::{SizeOf, SizeSums, Sizes};
pub use stamps::Stamps;
pub use streams::{StreamSums, Streams};
pub use timing::{Claim, Interval, Sight, SizeClass, Timing, TimingKey, Verb};
pub use traffic::{
    ConnectionEnd, ConnectionKey, Continuity, CtsQueue, Introduction, Missing, MpiMessage, NcclProcesses, QueuePair,
    SameProcess, Seen, Start, Sums, Turn, Wireup, clear_favourite,
};
