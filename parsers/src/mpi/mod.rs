//! Parses the envelopes of MPI libraries: sender (rank in a communicator), tag and length of a
//! message.
//!
//! An envelope is at the start of a transport message, so only the first packet of each message is
//! parsed. A single match proves little: callers count the matches per connection and accept a
//! stack only if nearly all messages are consistent with it. [`recognize`] never matches a payload
//! under two stacks. In the layouts below, "P+n" is byte n of the InfiniBand payload.

mod identity;
mod mpich_context;
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

pub use identity::{Identity, MpiOperation};
pub use mpich_context::{MPICH_WORLD_LAST, mpich_leaders_parent};
pub use tag::TagLayout;

use crate::ib::{Opcode, Service};

/// Library and transport that lay out the start of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(u8)]
pub enum LibraryStack {
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
    /// MVAPICH2 `ch3:mrail`.
    Mvapich2,
    /// NCCL's own transport over verbs.
    Nccl,
}

impl LibraryStack {
    /// All stacks, in the order of their discriminants.
    pub const ALL: [Self; 7] =
        [Self::Ob1, Self::UcxVerbs, Self::UcxMlx5, Self::UcxUd, Self::Rxm, Self::Mvapich2, Self::Nccl];

    /// Name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ob1 => "openib/ob1",
            Self::UcxVerbs => "UCX rc_verbs",
            Self::UcxMlx5 => "UCX rc_mlx5",
            Self::UcxUd => "UCX ud",
            Self::Rxm => "libfabric verbs;ofi_rxm",
            Self::Mvapich2 => "MVAPICH2 ch3:mrail",
            Self::Nccl => "NCCL net_ib",
        }
    }

    /// True if an MPI library above fills the 64-bit tag, so that its [`TagLayout`] must be
    /// detected.
    #[must_use]
    pub const fn carries_tags(self) -> bool {
        matches!(self, Self::UcxVerbs | Self::UcxMlx5 | Self::UcxUd | Self::Rxm)
    }
}

/// Transport operation that carried the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// SEND on a connected queue pair, with or without immediate data.
    Send,
    /// RDMA WRITE without immediate data; the value is the length of the whole WRITE in bytes (RETH
    /// `DMALen`).
    Write(u32),
    /// Unreliable datagram; the value is its `Q_Key`.
    Datagram(u32),
}

impl Carrier {
    /// The carrier of a request's first packet: SEND, WRITE without immediate data, or datagram,
    /// which needs `q_key`. No other operation starts a message of an MPI library.
    #[must_use]
    pub fn from_opcode(opcode: Opcode, q_key: Option<u32>, dma_bytes: u32) -> Option<Self> {
        if opcode.service() == Service::Ud {
            q_key.map(Self::Datagram)
        } else if opcode.is_write() {
            (!opcode.has_immediate()).then_some(Self::Write(dma_bytes))
        } else {
            opcode.is_send().then_some(Self::Send)
        }
    }

    /// Length of the whole transport message in bytes, if the first packet shows it: a WRITE states
    /// it, and a single packet is the whole message.
    #[must_use]
    pub fn message_bytes(self, opcode: Opcode, packet_bytes: u32) -> Option<u32> {
        match self {
            Self::Write(bytes) => Some(bytes),
            Self::Send | Self::Datagram(_) => opcode.is_only().then_some(packet_bytes),
        }
    }
}

/// Parsed start of a transport message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiHeader {
    /// Stack that matched.
    pub stack: LibraryStack,
    /// Role of the transport message in the MPI protocol.
    pub part: MpiMessagePart,
    /// Endpoint id and sequence number of a UCX UD datagram. UCX numbers its datagrams and
    /// retransmits them under new transport PSNs.
    pub datagram: Option<ucx::Datagram>,
}

/// Role of a transport message in the MPI protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MpiMessagePart {
    /// Start of an MPI message, with all, some or none of its data.
    Start(MpiMessageStart),
    /// Several whole MPI messages; [`coalesced_envelopes`] lists them.
    Coalesced,
    /// A whole MPI message with the envelope of the last [`MpiMessagePart::Start`] of up to 255
    /// bytes on the same connection (MVAPICH2's header caching).
    Cached {
        /// Length of the MPI message in bytes.
        mpi_bytes: u64,
    },
    /// More data of a message that started earlier, in the same direction.
    Data {
        /// Message that the data belong to.
        message: MpiMessageId,
        /// Bytes before the data.
        header_bytes: u32,
    },
    /// The receiver grants a rendezvous: it names the memory for the data, or allows the sender to
    /// send them. Travels in the opposite direction of the data.
    Grant {
        /// Message that is granted: always a [`MpiMessageId::SenderRequest`].
        message: MpiMessageId,
        /// Id that the data will carry instead, if the receiver assigns one: a
        /// [`MpiMessageId::ReceiverRequest`].
        receiver_id: Option<MpiMessageId>,
        /// Address and length in bytes of the memory, if any; length 0 means all of the message.
        memory: Option<(u64, u64)>,
        /// Id that [`MpiMessagePart::Done`] will carry after these data are written.
        done_id: Option<MpiMessageId>,
    },
    /// The data of a message are complete. The receiver reports it after a READ or after it
    /// received them, the sender after a WRITE.
    Done {
        /// Message, or part of a message, by the id that the addressee uses.
        message: MpiMessageId,
    },
    /// No message: credits, wire-up, acknowledgements without a message id ...
    Control,
}

/// Start of an MPI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiMessageStart {
    /// Sender, tag and length.
    pub envelope: Envelope,
    /// Protocol that the library uses for the message.
    pub protocol: Protocol,
    /// Bytes of headers and footers in this transport message; the rest are data.
    pub header_bytes: u32,
    /// Id that later parts and responses carry, if any follow.
    pub id: Option<MpiMessageId>,
    /// Memory that the receiver may READ the data from: address and length in bytes (0: all of the
    /// message).
    pub memory: Option<(u64, u64)>,
    /// Id that [`MpiMessagePart::Done`] will carry after the receiver has READ the data.
    pub done_id: Option<MpiMessageId>,
}

/// Protocol that a library uses for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protocol {
    /// Sent without asking the receiver.
    Eager,
    /// Like [`Protocol::Eager`], but the receiver confirms the match (`MPI_Ssend`).
    Synchronous,
    /// Sent after the receiver grants it.
    Rendezvous,
}

impl Protocol {
    /// All protocols, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Eager, Self::Synchronous, Self::Rendezvous];

    /// Name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Synchronous => "synchronous",
            Self::Rendezvous => "rendezvous",
        }
    }
}

/// Id of a message in its packets. Ids of different variants are unrelated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MpiMessageId {
    /// The sender's id of a message in several packets (UCX message id, rxm message id).
    MultiPacket(u64),
    /// The sender's request of a rendezvous or synchronous send, which the receiver returns.
    SenderRequest(u64),
    /// The receiver's request, which the sender returns.
    ReceiverRequest(u64),
    /// Memory that one side offers to the other for READ or WRITE (`ob1`).
    Fragment(u64),
}

/// Sender, tag and length of one MPI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Sender and tag as the library encodes them.
    pub matching: MatchFields,
    /// Source of the length of the MPI message.
    pub length: Length,
    /// Sequence number, from 1, among all messages of the sender to this receiver on this
    /// communicator (`ob1`).
    pub sequence: Option<u16>,
}

/// Sender and tag of a message as encoded on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum MatchFields {
    /// The library encodes them explicitly (`ob1`, MVAPICH2), or another packet named the sender
    /// (NCCL).
    Named(Identity),
    /// 64-bit UCX tag, to be decoded with a [`TagLayout`].
    UcxTag(u64),
    /// 64-bit libfabric tag, and 64 bits of completion data that identify the sender, if the
    /// provider supports them.
    OfiTag(u64, Option<u64>),
}

impl MatchFields {
    /// Decodes sender, communicator and tag with `layout`, which matters for tags only. `None` if
    /// the result is no message of the application (active messages, acknowledgements).
    #[must_use]
    pub fn identity(self, layout: TagLayout) -> Option<Identity> {
        match self {
            Self::Named(identity) => Some(identity),
            Self::UcxTag(tag) => layout.split(tag),
            Self::OfiTag(tag, cq_data) => layout.split_ofi(tag, cq_data),
        }
    }
}

/// Length of an MPI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The envelope states the length in bytes.
    Explicit(u64),
    /// The length is that of the transport message without this many bytes of headers and footers.
    AfterHeaders(u32),
    /// The capture ends before the length or the tag: the rank is known, but the message cannot be
    /// counted.
    NotCaptured,
}

impl Length {
    /// Length in bytes of the MPI message in a transport message of `message_bytes`; 0 if unknown.
    #[must_use]
    pub const fn in_message(self, message_bytes: u64) -> u64 {
        match self {
            Self::Explicit(bytes) => bytes,
            Self::AfterHeaders(header_bytes) => message_bytes.saturating_sub(header_bytes as u64),
            Self::NotCaptured => 0,
        }
    }
}

/// Payload of the first packet of a transport message.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// Captured part of the payload.
    pub captured: &'a [u8],
    /// Length of the payload on the wire in bytes.
    pub packet_bytes: u32,
    /// Length of the whole transport message on the wire in bytes, if the first packet shows it:
    /// the packet is the only one, or a WRITE.
    pub message_bytes: Option<u32>,
}

impl<'a> Payload<'a> {
    /// A transport message of one packet, captured whole.
    #[must_use]
    pub const fn whole(payload: &'a [u8]) -> Self {
        let length_bytes = payload.len() as u32;
        Self { captured: payload, packet_bytes: length_bytes, message_bytes: Some(length_bytes) }
    }

    /// True if the capture ends inside the payload.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        self.captured.len() < self.packet_bytes as usize
    }
}

/// Parses the start of `payload` as a message of an MPI library.
///
/// `usual` is the stack of the connection's messages so far: it is tried first, and no other stack
/// is tried if it matches.
#[must_use]
pub fn recognize(carrier: Carrier, payload: &Payload<'_>, usual: Option<LibraryStack>) -> Option<MpiHeader> {
    let candidates: &[LibraryStack] = match carrier {
        Carrier::Datagram(ucx::Q_KEY) => &[LibraryStack::UcxUd],
        Carrier::Datagram(0) => &[LibraryStack::Ob1, LibraryStack::Mvapich2],
        Carrier::Datagram(_) => &[],
        Carrier::Write(_) => &[LibraryStack::Ob1, LibraryStack::Mvapich2, LibraryStack::Nccl],
        Carrier::Send => &[
            LibraryStack::Rxm,
            LibraryStack::Ob1,
            LibraryStack::Mvapich2,
            LibraryStack::UcxMlx5,
            LibraryStack::UcxVerbs,
        ],
    };
    let read = |stack| message_header(stack, carrier, payload);
    usual
        .filter(|stack| candidates.contains(stack))
        .and_then(read)
        .or_else(|| candidates.iter().filter(|&&stack| Some(stack) != usual).find_map(|&stack| read(stack)))
}

fn message_header(stack: LibraryStack, carrier: Carrier, first: &Payload<'_>) -> Option<MpiHeader> {
    let Payload { captured: payload, message_bytes, .. } = *first;
    let part = match (stack, carrier) {
        (LibraryStack::UcxUd, _) => return ucx::datagram(first),
        (LibraryStack::UcxVerbs, _) => ucx::verbs(first),
        (LibraryStack::UcxMlx5, _) => ucx::mlx5(first),
        (LibraryStack::Rxm, _) => rxm::part(payload),
        (LibraryStack::Ob1, Carrier::Send) => ob1::send(first),
        (LibraryStack::Ob1, Carrier::Write(dma_bytes)) => ob1::eager_rdma(first, dma_bytes),
        (LibraryStack::Ob1, Carrier::Datagram(_)) => {
            udcm::datagram(payload, message_bytes?).map(|_| MpiMessagePart::Control)
        }
        (LibraryStack::Mvapich2, Carrier::Send) => mvapich2::part(payload, message_bytes),
        (LibraryStack::Mvapich2, Carrier::Write(dma_bytes)) => mvapich2::ring_part(payload, dma_bytes),
        (LibraryStack::Mvapich2, Carrier::Datagram(_)) => mvapich2_cm::datagram(payload, message_bytes?)
            .map(|_| MpiMessagePart::Control)
            .or_else(|| mvapich2::part(payload, message_bytes)),
        (LibraryStack::Nccl, Carrier::Write(dma_bytes)) => {
            nccl::cts(payload, dma_bytes).map(|_| MpiMessagePart::Control)
        }
        (LibraryStack::Nccl, _) => None,
    }?;
    Some(MpiHeader { stack, part, datagram: None })
}

/// The MPI messages of a transport message that is [`MpiMessagePart::Coalesced`], in order.
///
/// `payload` is the captured part of the transport message, `message_bytes` its length on the wire.
/// The iterator ends early if the capture truncates the payload.
pub fn coalesced_envelopes(
    stack: LibraryStack,
    payload: &[u8],
    message_bytes: u32,
) -> impl Iterator<Item = Envelope> + '_ {
    let named = |identity, data_bytes, sequence| Envelope {
        matching: MatchFields::Named(identity),
        length: Length::Explicit(data_bytes),
        sequence,
    };
    let ob1 = (stack == LibraryStack::Ob1).then(|| ob1_coalesced::messages(payload, message_bytes)).flatten();
    let ob1 =
        ob1.into_iter().flatten().filter_map(move |part| Some(named(part.identity?, part.data_bytes, part.sequence)));
    let mvapich2 = (stack == LibraryStack::Mvapich2).then(|| mvapich2::coalesced(payload, message_bytes));
    ob1.chain(mvapich2.into_iter().flatten().map(move |part| named(part.identity, part.data_bytes, None)))
}

/// The `N` bytes at `offset`; `None` if they were not captured.
fn bytes<const N: usize>(payload: &[u8], offset: usize) -> Option<[u8; N]> {
    payload.get(offset..)?.first_chunk::<N>().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A whole UCX mlx5 message with tag 0 and 30 zeros: rank 0, tag 0 on `MPI_COMM_WORLD` of Open
    /// MPI.
    fn zeros() -> Vec<u8> {
        let mut payload = alloc::vec![0; 40];
        payload[1] = 2;
        payload
    }

    #[test]
    fn the_usual_stack_comes_first() {
        let payload = zeros();
        let form = |usual| recognize(Carrier::Send, &Payload::whole(&payload), usual).map(|head| head.stack);
        // An eager packet of MVAPICH2 without data, from world rank 0, has the same bytes.
        assert_eq!(form(None), Some(LibraryStack::Mvapich2));
        assert_eq!(form(Some(LibraryStack::Mvapich2)), Some(LibraryStack::Mvapich2));
        assert_eq!(form(Some(LibraryStack::UcxMlx5)), Some(LibraryStack::UcxMlx5));
        // A usual stack that does not match, or cannot use SEND, changes nothing.
        for other in
            [LibraryStack::Ob1, LibraryStack::Rxm, LibraryStack::UcxVerbs, LibraryStack::UcxUd, LibraryStack::Nccl]
        {
            assert_eq!(form(Some(other)), Some(LibraryStack::Mvapich2), "{other:?}");
        }
        let part = recognize(Carrier::Send, &Payload::whole(&payload), Some(LibraryStack::UcxMlx5)).unwrap().part;
        let MpiMessagePart::Start(start) = part else { panic!("{part:?}") };
        assert_eq!((start.envelope.length.in_message(40), start.header_bytes), (30, 10));
    }

    #[test]
    fn other_stacks_are_tried_if_the_usual_one_does_not_match() {
        // Recorded: "clear to send" of the openib BTL.
        let payload = [0x20, 0, 0, 0, 3];
        for usual in [None, Some(LibraryStack::Ob1), Some(LibraryStack::UcxMlx5), Some(LibraryStack::Mvapich2)] {
            let head = recognize(Carrier::Send, &Payload::whole(&payload), usual);
            assert_eq!(
                head,
                Some(MpiHeader { stack: LibraryStack::Ob1, part: MpiMessagePart::Control, datagram: None }),
                "{usual:?}"
            );
        }
    }

    #[test]
    fn each_carrier_admits_its_own_stacks_only() {
        let eager = [0x41, 0, 0, 0, 0x41, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0x0d, 0, 0xAA, 0xBB, 24, 0, 0, 0xFF];
        let form =
            |carrier| recognize(carrier, &Payload::whole(&eager), Some(LibraryStack::Ob1)).map(|head| head.stack);
        assert_eq!(form(Carrier::Send), Some(LibraryStack::Ob1));
        assert_eq!(form(Carrier::Write(24)), Some(LibraryStack::Ob1));
        assert_eq!((form(Carrier::Datagram(0)), form(Carrier::Datagram(1))), (None, None));
        let ucx = recognize(Carrier::Datagram(ucx::Q_KEY), &Payload::whole(&[0; 8]), None);
        assert_eq!(ucx, Some(MpiHeader { stack: LibraryStack::UcxUd, part: MpiMessagePart::Control, datagram: None }));
    }

    #[test]
    fn coalesced_envelopes_lists_the_messages_of_both_stacks() {
        let named = |tag, bytes, sequence| {
            let identity = Identity { rank: 1, context: 0, tag, world: true, collective: false };
            Envelope { matching: MatchFields::Named(identity), length: Length::Explicit(bytes), sequence }
        };
        let mut payload = Vec::from([0x20, 0, 0, 0, 2]);
        for tag in [5, 6] {
            payload.extend([0x41, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0]);
            payload.extend([0x41, 0, 0, 0, 1, 0, 0, 0, tag, 0, 0, 0, 9, 0, 0xAA, 0xBB]);
        }
        let head = recognize(Carrier::Send, &Payload::whole(&payload), None).unwrap();
        assert_eq!((head.stack, head.part), (LibraryStack::Ob1, MpiMessagePart::Coalesced));
        assert_eq!(
            coalesced_envelopes(head.stack, &payload, 61).collect::<Vec<_>>(),
            [named(5, 2, Some(9)), named(6, 2, Some(9))]
        );

        let mut payload = Vec::new();
        for tag in [5u8, 6] {
            payload.extend([0, 0, tag, 0, 0, 0, 0, 0]);
            payload.extend(0x5566_1234_5680u64.to_le_bytes());
            payload.extend([0, 0, 0, 0, 0, 0, 0, 0, tag, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0xAA, 0xBB]);
        }
        let head = recognize(Carrier::Send, &Payload::whole(&payload), None).unwrap();
        assert_eq!((head.stack, head.part), (LibraryStack::Mvapich2, MpiMessagePart::Coalesced));
        assert_eq!(
            coalesced_envelopes(head.stack, &payload, 84).collect::<Vec<_>>(),
            [named(5, 2, None), named(6, 2, None)]
        );
        assert_eq!(coalesced_envelopes(LibraryStack::Rxm, &payload, 84).count(), 0);
    }

    #[test]
    fn noise_starts_no_messages() {
        let carriers = [Carrier::Send, Carrier::Write(96), Carrier::Datagram(0), Carrier::Datagram(ucx::Q_KEY)];
        let mut noise = noise::Noise::new(7);
        for _ in 0..100_000 {
            let payload = noise.payload(96);
            let cut = &payload[..noise.next() as usize % 97];
            for carrier in carriers {
                for usual in LibraryStack::ALL {
                    let head = recognize(
                        carrier,
                        &Payload { captured: cut, packet_bytes: 96, message_bytes: Some(96) },
                        Some(usual),
                    );
                    // UCX accepts its Q_Key and, on connected queue pairs, most first bytes. The
                    // other stacks recognize only parts that count no message by two or three
                    // bytes.
                    let is_ucx =
                        |form| matches!(form, LibraryStack::UcxVerbs | LibraryStack::UcxMlx5 | LibraryStack::UcxUd);
                    let counts = |part| {
                        matches!(
                            part,
                            MpiMessagePart::Start(_) | MpiMessagePart::Coalesced | MpiMessagePart::Cached { .. }
                        )
                    };
                    assert!(head.is_none_or(|head| is_ucx(head.stack) || !counts(head.part)), "{head:?}");
                    let _ = coalesced_envelopes(usual, cut, 96).count();
                }
            }
        }
    }
}
