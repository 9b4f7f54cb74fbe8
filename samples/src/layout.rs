//! Packet bytes: the templates of a capture, and rendering of a packet from its template.

use std::io;

use ibscope_parsers::frame::LinkType;

use crate::random::Random;
use crate::stack::{self, SampleStack, TemplateContent, ValueSlot, Words};
use crate::template::PacketTemplate;
use crate::{SampleFraming, SampleKind, SampleOptions};

/// Payload of a full packet in bytes: the largest MTU of InfiniBand.
const MTU_BYTES: usize = 4096;
/// Payloads of the small messages in native framing. With 26 bytes of headers and CRCs the packets
/// have 66 to 126 bytes.
const SMALL_PAYLOADS: [usize; 8] = [40, 46, 52, 61, 72, 81, 92, 100];
/// Header bytes that RoCEv2 has in addition.
const ROCE_EXTRA_BYTES: usize = 32;
/// Big messages: packets (a multiple of three, so that ACKs are a quarter of all packets), and
/// payload bytes of the last packet.
const BIG_MESSAGES: [(u32, usize); 4] = [(6, 4096), (12, 1), (24, 2051), (48, 1000)];

const OPCODE_SEND_ONLY: u8 = 0x04;
const OPCODE_WRITE_FIRST: u8 = 0x06;
const OPCODE_WRITE_MIDDLE: u8 = 0x07;
const OPCODE_WRITE_LAST: u8 = 0x08;
const OPCODE_ACKNOWLEDGE: u8 = 0x11;
const OPCODE_DATAGRAM: u8 = 0x64;
/// ACK without credits, as channel adapters with shared receive queues send it.
const SYNDROME_ACK: u8 = 0x1F;
/// NAK: PSN sequence error.
const SYNDROME_SEQUENCE: u8 = 0x60;

/// Length of a pcap record header: time and both lengths.
pub(crate) const PCAP_HEADER_BYTES: usize = 16;
const ERF_BYTES: usize = 16;
const ERF_TYPE_INFINIBAND: u8 = 21;
/// ERF flag that ibdump sets in every record: records have varying lengths.
const ERF_FLAG_VARYING: u8 = 4;
/// Maximum number of varying bytes in a packet.
const MAX_VARYING_BYTES: usize = 40;
/// Length of the headers from Ethernet through UDP.
const ROCE_HEAD_BYTES: usize = 42;

/// A packet, without its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SamplePacket {
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
    /// True if the sender asks for an acknowledgement.
    pub(crate) ack_req: bool,
    /// Messages completed by the sender of an ACK, 24 bits.
    pub(crate) msn: u32,
    /// Identification of the IPv4 header.
    pub(crate) ip_id: u16,
    /// UDP source port.
    pub(crate) udp_source: u16,
    /// Varying values in the payload.
    pub(crate) words: Words,
}

/// Templates of the control messages of a rendezvous.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RendezvousTemplates {
    /// The sender offers the message.
    pub(crate) offer: u16,
    /// The receiver grants memory.
    pub(crate) grant: u16,
    /// The sender has written all data.
    pub(crate) done: u16,
}

/// Templates of one length of message.
#[derive(Clone, Debug)]
pub(crate) struct MessageTemplates {
    /// Number of packets.
    pub(crate) packets: u32,
    /// Template of the first packet, or of the only one.
    pub(crate) first: u16,
    /// Template of the packets between first and last.
    pub(crate) middle: u16,
    /// Template of the last packet.
    pub(crate) last: u16,
    /// Length of the MPI message in bytes; 0 without a stack.
    pub(crate) mpi_bytes: u64,
    /// Control messages, if the message is sent by rendezvous.
    pub(crate) rendezvous: Option<RendezvousTemplates>,
}

impl MessageTemplates {
    /// Template of packet `index`, and whether it is the last packet of the message.
    pub(crate) fn packet(&self, index: u32) -> (u16, bool) {
        match index {
            _ if index + 1 == self.packets => (if index == 0 { self.first } else { self.last }, true),
            0 => (self.first, false),
            _ => (self.middle, false),
        }
    }
}

/// All templates of a capture, and the messages built from them.
pub(crate) struct SampleLayout {
    /// Framing of the packets.
    pub(crate) framing: SampleFraming,
    templates: Vec<PacketTemplate>,
    /// Varying bytes in the payload of each template.
    slots: Vec<Vec<ValueSlot>>,
    /// Snap length in bytes.
    pub(crate) snaplen: usize,
    /// The messages of the capture, all equally frequent.
    pub(crate) messages: Vec<MessageTemplates>,
    /// Template of the ACK.
    pub(crate) ack: u16,
    /// Template of the NAK.
    pub(crate) nak: u16,
    /// Template of the connection message, if there is a stack.
    pub(crate) connection_message: Option<u16>,
}

impl SampleLayout {
    /// Builds the templates; the seed determines the payloads.
    pub(crate) fn new(options: &SampleOptions) -> io::Result<Self> {
        let SampleOptions { framing, kind, stack, .. } = *options;
        let (templates, slots, messages) = (Vec::new(), Vec::new(), Vec::new());
        let snaplen = options.snaplen as usize;
        let mut layout =
            Self { framing, templates, slots, snaplen, messages, ack: 0, nak: 0, connection_message: None };
        let mut random = Random::new(options.seed ^ 0x7061_796c_6f61_6473);
        layout.ack = layout.add(OPCODE_ACKNOWLEDGE, &TemplateContent::fixed(&[SYNDROME_ACK, 0, 0, 0], &[]))?;
        layout.nak = layout.add(OPCODE_ACKNOWLEDGE, &TemplateContent::fixed(&[SYNDROME_SEQUENCE, 0, 0, 0], &[]))?;
        match kind {
            SampleKind::Small => layout.small(stack, &mut random)?,
            SampleKind::Big => layout.big(stack, &mut random)?,
        }
        layout.connection_message = match stack {
            SampleStack::None => None,
            SampleStack::Ob1 => Some(layout.add(OPCODE_DATAGRAM, &stack.connection_message())?),
            SampleStack::Ucx => Some(layout.add(OPCODE_SEND_ONLY, &stack.connection_message())?),
        };
        Ok(layout)
    }

    fn small(&mut self, stack: SampleStack, random: &mut Random) -> io::Result<()> {
        let mut content = stack.eager();
        let envelope_bytes = content.payload.len();
        for bytes in SMALL_PAYLOADS {
            // With a stack the envelope needs room, so RoCEv2 payloads are not shortened.
            let is_less = self.framing == SampleFraming::Roce && stack == SampleStack::None;
            let data = payload(if is_less { bytes - ROCE_EXTRA_BYTES } else { bytes } - envelope_bytes, random);
            content.payload.truncate(envelope_bytes);
            content.payload.extend_from_slice(&data);
            let only = self.add(OPCODE_SEND_ONLY, &content)?;
            let mpi_bytes = if stack == SampleStack::None { 0 } else { data.len() as u64 };
            let message =
                MessageTemplates { packets: 1, first: only, middle: only, last: only, mpi_bytes, rendezvous: None };
            self.messages.push(message);
        }
        Ok(())
    }

    fn big(&mut self, stack: SampleStack, random: &mut Random) -> io::Result<()> {
        let full = payload(MTU_BYTES, random);
        let middle = self.add(OPCODE_WRITE_MIDDLE, &TemplateContent::fixed(&[], &full))?;
        for (packets, last_bytes) in BIG_MESSAGES {
            let message_bytes = (packets - 1) * MTU_BYTES as u32 + last_bytes as u32;
            let first = self.add(OPCODE_WRITE_FIRST, &stack::reth(stack, message_bytes, &full))?;
            let last = self.add(OPCODE_WRITE_LAST, &TemplateContent::fixed(&[], &full[..last_bytes]))?;
            let (mut mpi_bytes, mut rendezvous) = (0, None);
            if stack != SampleStack::None {
                mpi_bytes = u64::from(message_bytes);
                rendezvous = Some(RendezvousTemplates {
                    offer: self.add(OPCODE_SEND_ONLY, &stack.offer(mpi_bytes))?,
                    grant: self.add(OPCODE_SEND_ONLY, &stack.grant(mpi_bytes))?,
                    done: self.add(OPCODE_SEND_ONLY, &stack.done(mpi_bytes))?,
                });
            }
            self.messages.push(MessageTemplates { packets, first, middle, last, mpi_bytes, rendezvous });
        }
        Ok(())
    }

    /// Template of this index.
    pub(crate) fn template(&self, index: u16) -> &PacketTemplate {
        &self.templates[usize::from(index)]
    }

    /// Length of the packet's pcap record in the file, in bytes.
    pub(crate) fn record_bytes(&self, template: u16) -> u64 {
        (PCAP_HEADER_BYTES + self.template(template).len().min(self.snaplen)) as u64
    }

    /// Transmission time of the packet in nanoseconds at 100 Gbit/s.
    pub(crate) fn link_ns(&self, template: u16) -> u64 {
        (PCAP_HEADER_BYTES + self.template(template).len()) as u64 * 2 / 25
    }

    /// Adds a packet template and returns its index.
    fn add(&mut self, opcode: u8, content: &TemplateContent) -> io::Result<u16> {
        let TemplateContent { extension, payload, slots } = content;
        let pad = payload.len().wrapping_neg() % 4;
        let after_head = 12 + extension.len() + payload.len() + pad + 4;
        let mut bytes = match self.framing {
            SampleFraming::Native => native_head(after_head),
            SampleFraming::Roce => roce_head(after_head),
        };
        let bth = bytes.len();
        // BTH: migrated state and pad count, full member of the default partition. QP, ACK request
        // and PSN vary.
        bytes.extend_from_slice(&[opcode, 0x40 | (pad as u8) << 4, 0xFF, 0xFF, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend_from_slice(extension);
        bytes.extend_from_slice(payload);
        let has_vcrc = self.framing == SampleFraming::Native;
        bytes.resize(bytes.len() + pad + if has_vcrc { 6 } else { 4 }, 0);

        let mut offsets: Vec<usize> = [5, 6, 7, 8, 9, 10, 11].map(|offset| bth + offset).to_vec();
        let link_type = match self.framing {
            SampleFraming::Native => {
                offsets.extend([ERF_BYTES + 2, ERF_BYTES + 3, ERF_BYTES + 6, ERF_BYTES + 7]);
                LinkType::ERF
            }
            SampleFraming::Roce => {
                offsets.extend([18, 19, 28, 29, 32, 33, 34, 35]);
                LinkType::ETHERNET
            }
        };
        if opcode == OPCODE_ACKNOWLEDGE {
            offsets.extend([bth + 13, bth + 14, bth + 15]);
        }
        offsets.extend(slots.iter().map(|slot| bth + 12 + slot.at));
        self.slots.push(slots.clone());
        self.templates.push(PacketTemplate::new(link_type, bytes, &offsets, has_vcrc, payload.len())?);
        Ok((self.templates.len() - 1) as u16)
    }

    /// Appends the packet's data to `out`, as observed at `time_ns` since the epoch.
    pub(crate) fn render(&self, packet: &SamplePacket, time_ns: u64, out: &mut Vec<u8>) {
        let template = self.template(packet.template);
        let [_, qp2, qp1, qp0] = packet.dest_qp.to_be_bytes();
        let [_, psn2, psn1, psn0] = packet.psn.to_be_bytes();
        let (ack_req, src, dst) = (u8::from(packet.ack_req) << 7, packet.src.to_be_bytes(), packet.dst.to_be_bytes());
        let mut values = [0; MAX_VARYING_BYTES];
        values[..7].copy_from_slice(&[qp2, qp1, qp0, ack_req, psn2, psn1, psn0]);
        match self.framing {
            SampleFraming::Native => {
                values[7..11].copy_from_slice(&[dst[0], dst[1], src[0], src[1]]);
                self.fill(packet, &mut values[11..]);
                let data = template.render(out, &values);
                // ibdump uses 4295 for 2^32 / 10^6.
                let (seconds, fraction_us) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000 / 1000);
                data[..8].copy_from_slice(&((seconds << 32) + fraction_us * 4295).to_le_bytes());
            }
            SampleFraming::Roce => {
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

    /// Sets the varying bytes after the BTH: the MSN of an ACK, or the payload's slots.
    fn fill(&self, packet: &SamplePacket, values: &mut [u8]) {
        let slots = &self.slots[usize::from(packet.template)];
        if slots.is_empty() {
            values[..3].copy_from_slice(&packet.msn.to_be_bytes()[1..]);
        }
        values.iter_mut().zip(slots).for_each(|(value, slot)| *value = slot.value(&packet.words));
    }
}

/// Random payload whose first byte matches no MPI library's header.
fn payload(bytes: usize, random: &mut Random) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..bytes).map(|_| random.next() as u8).collect();
    // Neither an ob1 or openib tag (0x20, 0x41 to 0x6F) nor a UCX active message (0x1F in the low
    // bits is unused).
    payload[0] = 0xFF;
    payload
}

/// ERF header and LRH (LNH 2: BTH follows) of a packet with `after_head` bytes from BTH through
/// ICRC.
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

/// Ethernet, IPv4 (don't fragment, TTL 64) and UDP headers with locally administered MAC addresses.
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

/// Header checksum of RFC 791; the checksum field must be zero.
fn ipv4_checksum(header: &[u8]) -> [u8; 2] {
    let mut sum: u32 = header.chunks_exact(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    sum = (sum & 0xFFFF) + (sum >> 16);
    sum = (sum & 0xFFFF) + (sum >> 16);
    (!(sum as u16)).to_be_bytes()
}
