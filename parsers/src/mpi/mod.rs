//! Envelopes of MPI libraries: who sends (rank in a communicator), with which tag, and how long the message is.
//!
//! An envelope stands at the start of a transport message, so only the first packet of each message is looked at. A single
//! match proves little: callers let the matches of a connection vote ([`recognise`] never matches a payload under
//! two forms) and believe a form only when nearly all its messages fit. "P+n" is byte n of the InfiniBand payload.

mod identity;
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

pub use identity::{Identity, Operation};
pub use tag::TagLayout;

use crate::ib::{Opcode, Service};

/// How a library lays out the start of its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
    /// MVAPICH2 `ch3:mrail`.
    Mvapich2,
    /// NCCL's own transport over verbs.
    Nccl,
}

impl Form {
    /// All forms, in the order of their discriminants.
    pub const ALL: [Self; 7] =
        [Self::Ob1, Self::UcxVerbs, Self::UcxMlx5, Self::UcxUd, Self::Rxm, Self::Mvapich2, Self::Nccl];

    /// The name used in outputs.
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

    /// True where the 64-bit tag belongs to an MPI library above, whose [`TagLayout`] is to be found.
    #[must_use]
    pub const fn carries_tags(self) -> bool {
        matches!(self, Self::UcxVerbs | Self::UcxMlx5 | Self::UcxUd | Self::Rxm)
    }
}

/// Which transport operation carried the payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// SEND on a connected queue pair, with or without immediate data.
    Send,
    /// RDMA WRITE without immediate data; the value is the length of the whole write in bytes (RETH `DMALen`).
    Write(u32),
    /// Unreliable datagram; the value is its `Q_Key`.
    Datagram(u32),
}

impl Carrier {
    /// What carries the payload of the first packet of a request: SEND, WRITE without immediate data, or a datagram, whose `Q_Key` is needed. Nothing else
    /// starts a message of an MPI library.
    #[must_use]
    pub fn of(opcode: Opcode, q_key: Option<u32>, dma_bytes: u32) -> Option<Self> {
        if opcode.service() == Service::Ud {
            q_key.map(Self::Datagram)
        } else if opcode.is_write() {
            (!opcode.has_immediate()).then_some(Self::Write(dma_bytes))
        } else {
            opcode.is_send().then_some(Self::Send)
        }
    }

    /// Length of the whole message in bytes, as far as its first packet says it: a WRITE states it, and what has one packet is as long as that.
    #[must_use]
    pub fn message_bytes(self, opcode: Opcode, packet_bytes: u32) -> Option<u32> {
        match self {
            Self::Write(bytes) => Some(bytes),
            Self::Send | Self::Datagram(_) => opcode.is_only().then_some(packet_bytes),
        }
    }
}

/// The start of a transport message of an MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Layout that matched.
    pub form: Form,
    /// What it is to the MPI messages of the library.
    pub part: Part,
    /// UCX over UD numbers its datagrams itself and repeats them under new transport PSNs: destination endpoint id and sequence number.
    pub datagram: Option<ucx::Datagram>,
}

/// What a transport message is to MPI messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// An MPI message starts here; with its data, with the first of them, or with none yet.
    Start(Start),
    /// Several whole MPI messages, which [`several`] lists.
    Several,
    /// A whole MPI message whose envelope equals that of the last [`Part::Start`] of up to 255 bytes on the same connection
    /// (MVAPICH2's header caching).
    Cached {
        /// Its MPI length in bytes.
        mpi_bytes: u64,
    },
    /// More data of a message that started before, in the same direction.
    Data {
        /// The message.
        of: Name,
        /// Bytes in front of the data.
        header_bytes: u32,
    },
    /// The receiver of a message says where its data may be written, or that they may be sent. In the other direction.
    Grant {
        /// The message: always a [`Name::Request`].
        of: Name,
        /// The name that the data will use instead, where the receiver gives one: a [`Name::Receiver`].
        receiver: Option<Name>,
        /// Address and length in bytes of the memory, where there is one; a length of 0 stands for all of the message.
        memory: Option<(u64, u64)>,
        /// What [`Part::Done`] calls these data when they have been written.
        done: Option<Name>,
    },
    /// The data of a message are where they belong: said by the receiver where it has READ or been sent them, by the sender where it has written them.
    Done {
        /// The message, or a part of it, as the one calls it to whom this is said.
        of: Name,
    },
    /// No message: credits, wire-up, acknowledgements that name no message ...
    Control,
}

/// The start of an MPI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Sender, tag and length.
    pub envelope: Envelope,
    /// How the library sends it.
    pub protocol: Protocol,
    /// Bytes of headers and footers in this transport message; the rest of it are data.
    pub header_bytes: u32,
    /// What later parts and answers call it, where there are any.
    pub name: Option<Name>,
    /// Where the receiver may READ the data: address and length in bytes (0: all of the message).
    pub memory: Option<(u64, u64)>,
    /// What [`Part::Done`] calls it when the receiver has READ the data.
    pub done: Option<Name>,
}

/// How a library sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Protocol {
    /// At once, whether the receiver waits for it or not.
    Eager,
    /// As [`Protocol::Eager`], and the receiver confirms it (`MPI_Ssend`).
    Synchronous,
    /// The receiver is asked first.
    Rendezvous,
}

impl Protocol {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 3] = [Self::Eager, Self::Synchronous, Self::Rendezvous];

    /// The name used in outputs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Eager => "eager",
            Self::Synchronous => "synchronous",
            Self::Rendezvous => "rendezvous",
        }
    }
}

/// What packets call a message. Numbers of different kinds have nothing to do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// The sender's number of a message in several pieces (UCX message id, rxm message id).
    Pieces(u64),
    /// The sender's request of a rendezvous or synchronous send, which the receiver repeats.
    Request(u64),
    /// The receiver's request, which the sender repeats.
    Receiver(u64),
    /// A piece of memory that one side offers to the other for READ or WRITE (`ob1`).
    Fragment(u64),
}

/// Sender, tag and length of one MPI message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Sender and tag, in the words of the library.
    pub matching: Matching,
    /// Where the length of the MPI message comes from.
    pub length: Length,
    /// Its number, from 1 on, among all that its sender sends to this receiver on this communicator (`ob1`).
    pub sequence: Option<u16>,
}

/// Sender and tag of a message as they stand on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Matching {
    /// The library writes them out (`ob1`, MVAPICH2), or another of its packets has said who sends (NCCL).
    Named(Identity),
    /// UCX carries 64 bits that its user fills: [`TagLayout`] says how.
    UcxTag(u64),
    /// libfabric carries 64 bits of tag and, where the provider can, 64 bits of data that name the sender.
    OfiTag(u64, Option<u64>),
}

impl Matching {
    /// Sender, communicator and tag. `None` where, read like this, it is no message of the application (active messages,
    /// acknowledgements). `layout` matters to tags only.
    #[must_use]
    pub fn identity(self, layout: TagLayout) -> Option<Identity> {
        match self {
            Self::Named(identity) => Some(identity),
            Self::UcxTag(tag) => layout.split(tag),
            Self::OfiTag(tag, cq_data) => layout.split_ofi(tag, cq_data),
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
    /// The capture ends before the length, or before the tag: the rank is known and the message cannot be counted.
    NotCaptured,
}

impl Length {
    /// The MPI length in bytes of a transport message with `message_bytes` of InfiniBand payload; 0 where it is not known.
    #[must_use]
    pub const fn of(self, message_bytes: u64) -> u64 {
        match self {
            Self::Stated(bytes) => bytes,
            Self::Beyond(header_bytes) => message_bytes.saturating_sub(header_bytes as u64),
            Self::NotCaptured => 0,
        }
    }
}

/// The payload of the first packet of a transport message.
#[derive(Clone, Copy, Debug)]
pub struct Payload<'a> {
    /// What was captured of it.
    pub captured: &'a [u8],
    /// Its length on the wire, in bytes.
    pub packet_bytes: u32,
    /// Length of the whole transport message on the wire, where the first packet tells it: it is the only one, or it is a WRITE.
    pub message_bytes: Option<u32>,
}

impl<'a> Payload<'a> {
    /// A transport message of one packet that was captured whole.
    #[must_use]
    pub const fn whole(payload: &'a [u8]) -> Self {
        let length_bytes = payload.len() as u32;
        Self { captured: payload, packet_bytes: length_bytes, message_bytes: Some(length_bytes) }
    }

    /// The capture ends within the payload.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.captured.len() < self.packet_bytes as usize
    }
}

/// Looks for an MPI library's message at the start of `payload`. `usual` is the form that the connection's messages have shown so far:
/// a payload that fits it is not tried under any other.
#[must_use]
pub fn recognise(carrier: Carrier, payload: &Payload<'_>, usual: Option<Form>) -> Option<Head> {
    let candidates: &[Form] = match carrier {
        Carrier::Datagram(ucx::Q_KEY) => &[Form::UcxUd],
        Carrier::Datagram(0) => &[Form::Ob1, Form::Mvapich2],
        Carrier::Datagram(_) => &[],
        Carrier::Write(_) => &[Form::Ob1, Form::Mvapich2, Form::Nccl],
        Carrier::Send => &[Form::Rxm, Form::Ob1, Form::Mvapich2, Form::UcxMlx5, Form::UcxVerbs],
    };
    let read = |form| head(form, carrier, payload);
    usual
        .filter(|form| candidates.contains(form))
        .and_then(read)
        .or_else(|| candidates.iter().filter(|&&form| Some(form) != usual).find_map(|&form| read(form)))
}

fn head(form: Form, carrier: Carrier, first: &Payload<'_>) -> Option<Head> {
    let Payload { captured: payload, message_bytes, .. } = *first;
    let part = match (form, carrier) {
        (Form::UcxUd, _) => return ucx::datagram(first),
        (Form::UcxVerbs, _) => ucx::verbs(first),
        (Form::UcxMlx5, _) => ucx::mlx5(first),
        (Form::Rxm, _) => rxm::part(payload),
        (Form::Ob1, Carrier::Send) => ob1::send(first),
        (Form::Ob1, Carrier::Write(dma_bytes)) => ob1::eager_rdma(first, dma_bytes),
        (Form::Ob1, Carrier::Datagram(_)) => udcm::datagram(payload, message_bytes?).map(|_| Part::Control),
        (Form::Mvapich2, Carrier::Send) => mvapich2::part(payload, message_bytes),
        (Form::Mvapich2, Carrier::Write(dma_bytes)) => mvapich2::ring_part(payload, dma_bytes),
        (Form::Mvapich2, Carrier::Datagram(_)) => mvapich2_cm::datagram(payload, message_bytes?)
            .map(|_| Part::Control)
            .or_else(|| mvapich2::part(payload, message_bytes)),
        (Form::Nccl, Carrier::Write(dma_bytes)) => nccl::cts(payload, dma_bytes).map(|_| Part::Control),
        (Form::Nccl, _) => None,
    }?;
    Some(Head { form, part, datagram: None })
}

/// The MPI messages of a transport message that is [`Part::Several`], in their order, each with its envelope and its offset in the
/// payload. `payload` is all that was captured of the transport message, `message_bytes` its length on the wire. Ends early where the capture
/// cut them.
pub fn several(form: Form, payload: &[u8], message_bytes: u32) -> impl Iterator<Item = Envelope> + '_ {
    let named = |identity, data_bytes, sequence| Envelope {
        matching: Matching::Named(identity),
        length: Length::Stated(data_bytes),
        sequence,
    };
    let ob1 = (form == Form::Ob1).then(|| ob1_coalesced::parts(payload, message_bytes)).flatten();
    let ob1 =
        ob1.into_iter().flatten().filter_map(move |part| Some(named(part.identity?, part.data_bytes, part.sequence)));
    let mvapich2 = (form == Form::Mvapich2).then(|| mvapich2::coalesced(payload, message_bytes));
    ob1.chain(mvapich2.into_iter().flatten().map(move |part| named(part.identity, part.data_bytes, None)))
}

/// The `N` bytes at `offset`, if they were captured.
fn bytes<const N: usize>(payload: &[u8], offset: usize) -> Option<[u8; N]> {
    payload.get(offset..)?.first_chunk::<N>().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// A whole message of UCX on mlx5 with tag 0 and 30 zeros: rank 0, tag 0 on `MPI_COMM_WORLD` of Open MPI.
    fn zeros() -> Vec<u8> {
        let mut payload = alloc::vec![0; 40];
        payload[1] = 2;
        payload
    }

    #[test]
    fn the_usual_form_comes_first() {
        let payload = zeros();
        let form = |usual| recognise(Carrier::Send, &Payload::whole(&payload), usual).map(|head| head.form);
        // An eager packet of MVAPICH2 without data, from world rank 0, looks the same.
        assert_eq!(form(None), Some(Form::Mvapich2));
        assert_eq!(form(Some(Form::Mvapich2)), Some(Form::Mvapich2));
        assert_eq!(form(Some(Form::UcxMlx5)), Some(Form::UcxMlx5));
        // What does not fit, or cannot come by SEND, changes nothing.
        for other in [Form::Ob1, Form::Rxm, Form::UcxVerbs, Form::UcxUd, Form::Nccl] {
            assert_eq!(form(Some(other)), Some(Form::Mvapich2), "{other:?}");
        }
        let part = recognise(Carrier::Send, &Payload::whole(&payload), Some(Form::UcxMlx5)).unwrap().part;
        let Part::Start(start) = part else { panic!("{part:?}") };
        assert_eq!((start.envelope.length.of(40), start.header_bytes), (30, 10));
    }

    #[test]
    fn messages_that_do_not_fit_the_usual_form_are_tried_under_the_others() {
        // wire-formats, recorded: clear to send of openib.
        let payload = [0x20, 0, 0, 0, 3];
        for usual in [None, Some(Form::Ob1), Some(Form::UcxMlx5), Some(Form::Mvapich2)] {
            let head = recognise(Carrier::Send, &Payload::whole(&payload), usual);
            assert_eq!(head, Some(Head { form: Form::Ob1, part: Part::Control, datagram: None }), "{usual:?}");
        }
    }

    #[test]
    fn carriers_admit_their_own_forms_only() {
        let eager = [0x41, 0, 0, 0, 0x41, 0, 0, 0, 1, 0, 0, 0, 6, 0, 0, 0, 0x0d, 0, 0xAA, 0xBB, 24, 0, 0, 0xFF];
        let form = |carrier| recognise(carrier, &Payload::whole(&eager), Some(Form::Ob1)).map(|head| head.form);
        assert_eq!(form(Carrier::Send), Some(Form::Ob1));
        assert_eq!(form(Carrier::Write(24)), Some(Form::Ob1));
        assert_eq!((form(Carrier::Datagram(0)), form(Carrier::Datagram(1))), (None, None));
        let ucx = recognise(Carrier::Datagram(ucx::Q_KEY), &Payload::whole(&[0; 8]), None);
        assert_eq!(ucx, Some(Head { form: Form::UcxUd, part: Part::Control, datagram: None }));
    }

    #[test]
    fn several_lists_the_messages_of_both_forms() {
        let named = |tag, bytes, sequence| {
            let identity = Identity { rank: 1, context: 0, tag, world: true, collective: false };
            Envelope { matching: Matching::Named(identity), length: Length::Stated(bytes), sequence }
        };
        let mut payload = Vec::from([0x20, 0, 0, 0, 2]);
        for tag in [5, 6] {
            payload.extend([0x41, 0, 0, 0, 16, 0, 0, 0, 16, 0, 0, 0]);
            payload.extend([0x41, 0, 0, 0, 1, 0, 0, 0, tag, 0, 0, 0, 9, 0, 0xAA, 0xBB]);
        }
        let head = recognise(Carrier::Send, &Payload::whole(&payload), None).unwrap();
        assert_eq!((head.form, head.part), (Form::Ob1, Part::Several));
        assert_eq!(several(head.form, &payload, 61).collect::<Vec<_>>(), [named(5, 2, Some(9)), named(6, 2, Some(9))]);

        let mut payload = Vec::new();
        for tag in [5u8, 6] {
            payload.extend([0, 0, tag, 0, 0, 0, 0, 0]);
            payload.extend(0x5566_1234_5680u64.to_le_bytes());
            payload.extend([0, 0, 0, 0, 0, 0, 0, 0, tag, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0xAA, 0xBB]);
        }
        let head = recognise(Carrier::Send, &Payload::whole(&payload), None).unwrap();
        assert_eq!((head.form, head.part), (Form::Mvapich2, Part::Several));
        assert_eq!(several(head.form, &payload, 84).collect::<Vec<_>>(), [named(5, 2, None), named(6, 2, None)]);
        assert_eq!(several(Form::Rxm, &payload, 84).count(), 0);
    }

    #[test]
    fn noise_starts_no_messages() {
        let carriers = [Carrier::Send, Carrier::Write(96), Carrier::Datagram(0), Carrier::Datagram(ucx::Q_KEY)];
        let mut noise = noise::Noise::new(7);
        for _ in 0..100_000 {
            let payload = noise.payload(96);
            let cut = &payload[..noise.next() as usize % 97];
            for carrier in carriers {
                for usual in Form::ALL {
                    let head = recognise(
                        carrier,
                        &Payload { captured: cut, packet_bytes: 96, message_bytes: Some(96) },
                        Some(usual),
                    );
                    // UCX believes its Q_Key and, on connected queue pairs, most first bytes. Of the others only parts that count
                    // nothing are known by two or three bytes.
                    let is_ucx = |form| matches!(form, Form::UcxVerbs | Form::UcxMlx5 | Form::UcxUd);
                    let counts = |part| matches!(part, Part::Start(_) | Part::Several | Part::Cached { .. });
                    assert!(head.is_none_or(|head| is_ucx(head.form) || !counts(head.part)), "{head:?}");
                    let _ = several(usual, cut, 96).count();
                }
            }
        }
    }
}
