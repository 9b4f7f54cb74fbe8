//! Envelopes of MPI libraries: who sends (rank in a communicator), with which tag, and how long the message is.
//!
//! An envelope stands at the start of a transport message, so only the first packet of each message is looked at. A single
//! match proves little: callers let the matches of a connection vote ([`recognise`] never matches a payload under
//! two forms) and believe a form only when nearly all its messages fit. "P+n" is byte n of the InfiniBand payload.

pub mod mvapich2;
pub mod mvapich2_cm;
pub mod nccl;
#[cfg(test)]
mod noise;
pub mod ob1;
pub mod ob1_coalesced;
pub mod rdmacm;
pub mod rxm;
pub mod tag;
pub mod ucx;
pub mod ucx_wireup;
pub mod udcm;

pub use tag::{Identity, TagLayout};

/// How a library lays out the start of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Form {
    /// Open MPI `ob1` over the `openib` BTL.
    Ob1,
    /// UCX over RC or DC with the one-byte header of its verbs transports.
    UcxVerbs,
    /// UCX over RC or DC with the two-byte header of its mlx5 transports.
    UcxMlx5,
    /// UCX over UD.
    UcxUd,
    /// libfabric's `verbs;ofi_rxm`.
    Rxm,
}

impl Form {
    /// All forms, in the order of their discriminants.
    pub const ALL: [Self; 5] = [Self::Ob1, Self::UcxVerbs, Self::UcxMlx5, Self::UcxUd, Self::Rxm];

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ob1 => "openib/ob1",
            Self::UcxVerbs => "UCX rc_verbs",
            Self::UcxMlx5 => "UCX rc_mlx5",
            Self::UcxUd => "UCX ud",
            Self::Rxm => "libfabric verbs;ofi_rxm",
        }
    }
}

/// Which transport operation carried the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// SEND on a connected queue pair.
    Send,
    /// RDMA WRITE; the value is the length of the whole write in bytes (RETH `DMALen`).
    Write(u32),
    /// Unreliable datagram; the value is its `Q_Key`.
    Datagram(u32),
}

/// The start of a message of an MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Layout that matched.
    pub form: Form,
    /// The envelope; `None` where the library sent one of its messages that has none (acknowledgement, fragment, wire-up ...).
    pub envelope: Option<Envelope>,
    /// UCX over UD numbers its datagrams itself and repeats them under new transport PSNs: destination endpoint id and sequence number.
    pub datagram: Option<ucx::Datagram>,
}

/// Sender, tag and length of one MPI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Sender and tag, in the words of the library.
    pub matching: Matching,
    /// Where the length of the MPI message comes from.
    pub length: Length,
}

/// Sender and tag of a message as they stand on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matching {
    /// `ob1` writes them out.
    Ob1(Identity),
    /// UCX carries 64 bits that its user fills: [`TagLayout`] says how.
    UcxTag(u64),
    /// libfabric carries 64 bits of tag and, where the provider can, 64 bits of data that name the sender.
    OfiTag(u64, Option<u64>),
}

impl Matching {
    /// Sender, communicator and tag. `layout` does not matter for `ob1`.
    #[must_use]
    pub fn identity(self, layout: TagLayout) -> Identity {
        match self {
            Self::Ob1(identity) => identity,
            Self::UcxTag(tag) => layout.split(tag),
            Self::OfiTag(tag, cq_data) => {
                let identity = match (layout, cq_data) {
                    (TagLayout::OpenMpi, Some(cq_data)) => rxm::identity_open_mpi(tag, cq_data),
                    (TagLayout::OpenMpi, None) => rxm::identity_open_mpi_12_18_32(tag),
                    (TagLayout::Mpich, Some(cq_data)) => rxm::identity_mpich(tag, cq_data),
                    (TagLayout::Mpich, None) => rxm::identity_mpich_16_24_20(tag),
                };
                identity.unwrap_or(Identity::NOBODY)
            }
        }
    }
}

/// The MPI length of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The envelope states it, in bytes.
    Stated(u64),
    /// It is what the transport message holds beyond this many bytes of headers and footers.
    Beyond(u32),
}

impl Length {
    /// The MPI length in bytes of a transport message with `message_bytes` of InfiniBand payload.
    #[must_use]
    pub const fn of(self, message_bytes: u64) -> u64 {
        match self {
            Self::Stated(bytes) => bytes,
            Self::Beyond(header_bytes) => message_bytes.saturating_sub(header_bytes as u64),
        }
    }
}

/// Looks for an MPI library's message at the start of `payload`.
///
/// `payload` holds the captured bytes of the first packet, `whole` says that they are the whole transport message.
#[must_use]
pub fn recognise(carrier: Carrier, payload: &[u8], whole: bool) -> Option<Head> {
    match carrier {
        Carrier::Datagram(ucx::Q_KEY) => ucx::datagram(payload),
        Carrier::Datagram(_) => None,
        Carrier::Write(dma_bytes) => ob1::eager_rdma(payload, dma_bytes, whole),
        Carrier::Send => rxm_head(payload).or_else(|| ob1::send(payload)).or_else(|| ucx::connected(payload)),
    }
}

/// The head of a libfabric message. Later segments, credits and acknowledgements have none of their own.
fn rxm_head(payload: &[u8]) -> Option<Head> {
    let header = rxm::send(payload)?;
    let envelope = header.starts_message().then_some(Envelope {
        matching: Matching::OfiTag(header.tag, header.cq_data),
        length: Length::Stated(header.size_bytes),
    });
    Some(Head { form: Form::Rxm, envelope, datagram: None })
}

/// The `N` bytes at `offset`, if they were captured.
fn bytes<const N: usize>(payload: &[u8], offset: usize) -> Option<[u8; N]> {
    payload.get(offset..)?.first_chunk::<N>().copied()
}
