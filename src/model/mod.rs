//! Plain types that the stages hand to each other. Nothing here does I/O or knows a stage.

pub mod batch;
pub mod coverage;
pub mod packet;
pub mod profile;
pub mod traffic;

pub use batch::Batch;
pub use coverage::Coverage;
pub use packet::{InspectedPacket, Kind, PacketRecord};
pub use profile::Profile;
pub use traffic::{ConnectionKey, MpiMessage, QueuePair, Seen, Start, Sums, Turn, Wireup};
