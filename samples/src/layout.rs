//! The bytes of packets: which templates a capture needs, and how one packet is made of them.

use std::io;

use ibscope_parsers::frame::LinkType;

use crate::random::Random;
use crate::stack::{self, Content, Slot, Stack, Words};
use crate::template::Template;
use crate::{Framing, Kind, Options};

/// Payload of a full packet: the largest MTU of InfiniBand.
const MTU_BYTES: usize = 4096;
/// Payloads of the small messages in native framing; 26 bytes of headers and CRCs make 66 to 126 bytes of them.
const SMALL_PAYLOADS: [usize; 8] = [40, 46, 52, 61, 72, 81, 92, 100];
/// RoCEv2 has 32 bytes more around each payload.
const ROCE_EXTRA_BYTES: usize = 32;
/// Big messages: packets (a multiple of three, so that ACKs stay a quarter of all) and payload bytes of the last one.
const BIG_MESSAGES: [(u32, usize); 4] = [(6, 4096), (12, 1), (24, 2051), (48, 1000)];

const OPCODE_SEND_ONLY: u8 = 0x04;
const OPCODE_WRITE_FIRST: u8 = 0x06;
const OPCODE_WRITE_MIDDLE: u8 = 0x07;
const OPCODE_WRITE_LAST: u8 = 0x08;
const OPCODE_ACKNOWLEDGE: u8 = 0x11;
const OPCODE_DATAGRAM: u8 = 0x64;
/// ACK without credits, as channel adapters with shared receive queues send it.
const SYNDROME_ACK: u8 = 0x1F;
/// NAK: a PSN is missing.
const SYNDROME_SEQUENCE: u8 = 0x60;

/// Time and both lengths in front of a record's data.
pub(crate) const PCAP_HEADER_BYTES: usize = 16;
const ERF_BYTES: usize = 16;
const ERF_TYPE_INFINIBAND: u8 = 21;
/// Set in every record that ibdump writes: the records' lengths vary.
const ERF_FLAG_VARYING: u8 = 4;
/// Bytes of a packet that vary, at most.
const MOST_VARYING: usize = 40;
/// From Ethernet through UDP.
const ROCE_HEAD_BYTES: usize = 42;

/// One packet, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    /// Index of the template.
    pub(crate) template: u16,
    /// Node number of the sender, from 1.
    pub(crate) src: u16,
    /// Node number of the receiver, from 1.
    pub(crate) dst: u16,
    /// Destination queue pair, 24 bits.
    pub(crate) dest_qp: u32,
    /// Packet sequence number, 24 bits.
    pub(crate) psn: u32,
    /// The sender asks for an acknowledgement.
    pub(crate) ack_req: bool,
    /// Messages completed by the sender of an ACK, 24 bits.
    pub(crate) msn: u32,
    /// Identification of the IPv4 header.
    pub(crate) ip_id: u16,
    /// UDP source port.
    pub(crate) udp_source: u16,
    /// What varies in the payload.
    pub(crate) words: Words,
}

/// Templates of what is said before and after the data of a message that is asked for first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rendezvous {
    /// The sender asks.
    pub(crate) offer: u16,
    /// The receiver says where.
    pub(crate) grant: u16,
    /// The sender has written all.
    pub(crate) done: u16,
}

/// One length of message: which template each of its packets has.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// Number of packets.
    pub(crate) packets: u32,
    /// Template of the first packet (the only one of a message of one packet).
    pub(crate) first: u16,
    /// Template of every packet between first and last.
    pub(crate) middle: u16,
    /// Template of the last packet.
    pub(crate) last: u16,
    /// Bytes of the MPI message, where there is a stack.
    pub(crate) mpi_bytes: u64,
    /// The data are asked for first.
    pub(crate) rendezvous: Option<Rendezvous>,
}

impl Message {
    /// The template of packet `index`, and whether that is the message's last packet.
    pub(crate) fn packet(&self, index: u32) -> (u16, bool) {
        match index {
            _ if index + 1 == self.packets => (if index == 0 { self.first } else { self.last }, true),
            0 => (self.first, false),
            _ => (self.middle, false),
        }
    }
}

/// All templates of a capture, and what its messages are made of.
pub(crate) struct Layout {
    /// How packets are framed.
    pub(crate) framing: Framing,
    templates: Vec<Template>,
    /// Bytes of each template's payload that vary.
    slots: Vec<Vec<Slot>>,
    /// Bytes of a packet that are captured, at most.
    pub(crate) snaplen: usize,
    /// The messages that occur, each as often as any other.
    pub(crate) messages: Vec<Message>,
    /// Template of the ACK.
    pub(crate) ack: u16,
    /// Template of the NAK.
    pub(crate) nak: u16,
    /// Template of what introduces a connection, where there is a stack.
    pub(crate) introduction: Option<u16>,
}

impl Layout {
    /// Builds the templates; the seed decides the payloads.
    pub(crate) fn new(options: &Options) -> io::Result<Self> {
        let Options { framing, kind, stack, .. } = *options;
        let (templates, slots, messages) = (Vec::new(), Vec::new(), Vec::new());
        let snaplen = options.snaplen as usize;
        let mut layout = Self { framing, templates, slots, snaplen, messages, ack: 0, nak: 0, introduction: None };
        let mut random = Random::new(options.seed ^ 0x7061_796c_6f61_6473);
        layout.ack = layout.add(OPCODE_ACKNOWLEDGE, &Content::fixed(&[SYNDROME_ACK, 0, 0, 0], &[]))?;
        layout.nak = layout.add(OPCODE_ACKNOWLEDGE, &Content::fixed(&[SYNDROME_SEQUENCE, 0, 0, 0], &[]))?;
        match kind {
            Kind::Small => layout.small(stack, &mut random)?,
            Kind::Big => layout.big(stack, &mut random)?,
        }
        layout.introduction = match stack {
            Stack::None => None,
            Stack::Ob1 => Some(layout.add(OPCODE_DATAGRAM, &stack.introduction())?),
            Stack::Ucx => Some(layout.add(OPCODE_SEND_ONLY, &stack.introduction())?),
        };
        Ok(layout)
    }

    fn small(&mut self, stack: Stack, random: &mut Random) -> io::Result<()> {
        let mut content = stack.eager();
        let envelope_bytes = content.payload.len();
        for bytes in SMALL_PAYLOADS {
            // An envelope needs the room that RoCEv2 would take.
            let is_less = self.framing == Framing::Roce && stack == Stack::None;
            let data = payload(if is_less { bytes - ROCE_EXTRA_BYTES } else { bytes } - envelope_bytes, random);
            content.payload.truncate(envelope_bytes);
            content.payload.extend_from_slice(&data);
            let only = self.add(OPCODE_SEND_ONLY, &content)?;
            let mpi_bytes = if stack == Stack::None { 0 } else { data.len() as u64 };
            let message = Message { packets: 1, first: only, middle: only, last: only, mpi_bytes, rendezvous: None };
            self.messages.push(message);
        }
        Ok(())
    }

    fn big(&mut self, stack: Stack, random: &mut Random) -> io::Result<()> {
        let full = payload(MTU_BYTES, random);
        let middle = self.add(OPCODE_WRITE_MIDDLE, &Content::fixed(&[], &full))?;
        for (packets, last_bytes) in BIG_MESSAGES {
            let message_bytes = (packets - 1) * MTU_BYTES as u32 + last_bytes as u32;
            let first = self.add(OPCODE_WRITE_FIRST, &stack::reth(stack, message_bytes, &full))?;
            let last = self.add(OPCODE_WRITE_LAST, &Content::fixed(&[], &full[..last_bytes]))?;
            let (mut mpi_bytes, mut rendezvous) = (0, None);
            if stack != Stack::None {
                mpi_bytes = u64::from(message_bytes);
                rendezvous = Some(Rendezvous {
                    offer: self.add(OPCODE_SEND_ONLY, &stack.offer(mpi_bytes))?,
                    grant: self.add(OPCODE_SEND_ONLY, &stack.grant(mpi_bytes))?,
                    done: self.add(OPCODE_SEND_ONLY, &stack.done(mpi_bytes))?,
                });
            }
            self.messages.push(Message { packets, first, middle, last, mpi_bytes, rendezvous });
        }
        Ok(())
    }

    /// The template of this index.
    pub(crate) fn template(&self, index: u16) -> &Template {
        &self.templates[usize::from(index)]
    }

    /// Size of the packet's pcap record in the file, in bytes.
    pub(crate) fn record_bytes(&self, template: u16) -> u64 {
        (PCAP_HEADER_BYTES + self.template(template).len().min(self.snaplen)) as u64
    }

    /// Time that the packet takes on the link, in nanoseconds: 100 Gbit/s.
    pub(crate) fn link_ns(&self, template: u16) -> u64 {
        (PCAP_HEADER_BYTES + self.template(template).len()) as u64 * 2 / 25
    }

    /// Adds the template of one sort of packet.
    fn add(&mut self, opcode: u8, content: &Content) -> io::Result<u16> {
        let Content { extension, payload, slots } = content;
        let pad = payload.len().wrapping_neg() % 4;
        let after_head = 12 + extension.len() + payload.len() + pad + 4;
        let mut bytes = match self.framing {
            Framing::Native => native_head(after_head),
            Framing::Roce => roce_head(after_head),
        };
        let bth = bytes.len();
        // BTH: migrated state and pad count, full member of the default partition; QP, ACK request and PSN vary.
        bytes.extend_from_slice(&[opcode, 0x40 | (pad as u8) << 4, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(extension);
        bytes.extend_from_slice(payload);
        let has_vcrc = self.framing == Framing::Native;
        bytes.resize(bytes.len() + pad + if has_vcrc { 6 } else { 4 }, 0);

        let mut offsets: Vec<usize> = [5, 6, 7, 8, 9, 10, 11].map(|offset| bth + offset).to_vec();
        let link_type = match self.framing {
            Framing::Native => {
                offsets.extend([ERF_BYTES + 2, ERF_BYTES + 3, ERF_BYTES + 6, ERF_BYTES + 7]);
                LinkType::ERF
            }
            Framing::Roce => {
                offsets.extend([18, 19, 28, 29, 32, 33, 34, 35]);
                LinkType::ETHERNET
            }
        };
        if opcode == OPCODE_ACKNOWLEDGE {
            offsets.extend([bth + 13, bth + 14, bth + 15]);
        }
        offsets.extend(slots.iter().map(|slot| bth + 12 + slot.at));
        self.slots.push(slots.clone());
        self.templates.push(Template::new(link_type, bytes, &offsets, has_vcrc, payload.len())?);
        Ok((self.templates.len() - 1) as u16)
    }

    /// Appends the packet's data to `out`, as seen at `time_ns` since the epoch.
    pub(crate) fn render(&self, packet: &Packet, time_ns: u64, out: &mut Vec<u8>) {
        let template = self.template(packet.template);
        let [_, qp2, qp1, qp0] = packet.dest_qp.to_be_bytes();
        let [_, psn2, psn1, psn0] = packet.psn.to_be_bytes();
        let (ack_req, src, dst) = (u8::from(packet.ack_req) << 7, packet.src.to_be_bytes(), packet.dst.to_be_bytes());
        let mut values = [0; MOST_VARYING];
        values[..7].copy_from_slice(&[qp2, qp1, qp0, ack_req, psn2, psn1, psn0]);
        match self.framing {
            Framing::Native => {
                values[7..11].copy_from_slice(&[dst[0], dst[1], src[0], src[1]]);
                self.fill(packet, &mut values[11..]);
                let data = template.render(out, &values);
                // ibdump takes 4295 for 2^32 / 10^6.
                let (seconds, fraction_us) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000 / 1000);
                data[..8].copy_from_slice(&((seconds << 32) + fraction_us * 4295).to_le_bytes());
            }
            Framing::Roce => {
                let (id, port) = (packet.ip_id.to_be_bytes(), packet.udp_source.to_be_bytes());
                values[7..15].copy_from_slice(&[id[0], id[1], src[0], src[1], dst[0], dst[1], port[0], port[1]]);
                self.fill(packet, &mut values[15..]);
                let data = template.render(out, &values);
                data[4..6].copy_from_slice(&dst);
                data[10..12].copy_from_slice(&src);
                let checksum = ipv4_checksum(&data[14..34]);
                data[24..26].copy_from_slice(&checksum);
            }
        }
    }

    /// What varies after the BTH: the message number of an ACK, or what the payload has.
    fn fill(&self, packet: &Packet, values: &mut [u8]) {
        let slots = &self.slots[usize::from(packet.template)];
        if slots.is_empty() {
            values[..3].copy_from_slice(&packet.msn.to_be_bytes()[1..]);
        }
        values.iter_mut().zip(slots).for_each(|(value, slot)| *value = slot.value(&packet.words));
    }
}

/// Bytes that no MPI library's first header looks like, random after the first.
fn payload(bytes: usize, random: &mut Random) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
    // Neither an ob1 or openib tag (0x20, 0x41 to 0x6F) nor an active message of UCX (0x1F in the low bits is unused).
    payload[0] = 0xFF;
    payload
}

/// ERF header and LRH (LNH 2: BTH follows) of a packet with `after_head` bytes from BTH through ICRC.
fn native_head(after_head: usize) -> Vec<u8> {
    let through_icrc = 8 + after_head;
    let wire_bytes = (through_icrc + 2) as u16;
    let mut head = vec![0; ERF_BYTES + 8];
    head[8] = ERF_TYPE_INFINIBAND;
    head[9] = ERF_FLAG_VARYING;
    head[10..12].copy_from_slice(&(wire_bytes + ERF_BYTES as u16).to_be_bytes());
    head[14..16].copy_from_slice(&wire_bytes.to_be_bytes());
    head[17] = 2;
    head[20..22].copy_from_slice(&((through_icrc / 4) as u16).to_be_bytes());
    head
}

/// Ethernet, IPv4 (not to be fragmented, 64 hops) and UDP headers, locally administered MAC addresses.
fn roce_head(after_head: usize) -> Vec<u8> {
    let mut head = vec![0; ROCE_HEAD_BYTES];
    head[0] = 2;
    head[6] = 2;
    head[12..14].copy_from_slice(&[0x08, 0x00]);
    head[14] = 0x45;
    head[16..18].copy_from_slice(&((28 + after_head) as u16).to_be_bytes());
    head[20] = 0x40;
    head[22] = 64;
    head[23] = 17;
    head[26..28].copy_from_slice(&[10, 77]);
    head[30..32].copy_from_slice(&[10, 77]);
    head[36..38].copy_from_slice(&4791_u16.to_be_bytes());
    head[38..40].copy_from_slice(&((8 + after_head) as u16).to_be_bytes());
    head
}

/// Header checksum of RFC 791; the checksum field itself has to be zero.
fn ipv4_checksum(header: &[u8]) -> [u8; 2] {
    let mut sum: u32 = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    (!(sum as u16)).to_be_bytes()
}
