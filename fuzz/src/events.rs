//! Traffic of queue pairs, one choice after the other: messages, responses, losses,
//! retransmissions, and sometimes nonsense.

use crate::mad;
use crate::packet::{self, FuzzEncapsulation, FuzzPacket};
use arbitrary::{Result, Unstructured};
use ibscope_parsers::ib::{Bth, Opcode};
use ibscope_parsers::mpi::ucx;
use ibscope_parsers::{Psn, Qpn};

/// Limit of packets per capture; more do not reach more code.
const MAX_PACKETS: usize = 400;
/// Path MTU; small, so that messages of several packets stay short.
const MTU_BYTES: usize = 64;

/// A packet with its capture time in microseconds from the first packet.
pub(crate) struct SentPacket {
    pub(crate) time_us: u32,
    pub(crate) bytes: Vec<u8>,
}

/// One direction between two queue pairs.
#[derive(Clone, Copy)]
struct FuzzQueuePair {
    ends: (u8, u8),
    dest_qp: u32,
    psn: u32,
    read_psn: u32,
}

/// Generator of the packets, in capture order.
pub(crate) struct PacketSequence<'a, 'b> {
    input: &'a mut Unstructured<'b>,
    frame: FuzzEncapsulation,
    time_us: u32,
    queues: [FuzzQueuePair; 8],
    sent: Vec<SentPacket>,
}

impl<'a, 'b> PacketSequence<'a, 'b> {
    /// Creates four queue pairs, each connected to another one, on three nodes.
    pub(crate) fn new(frame: FuzzEncapsulation, input: &'a mut Unstructured<'b>) -> Self {
        let queue = |index: u8| {
            let (one, other) = if (index / 2).is_multiple_of(2) { (1, 2) } else { (3, 1) };
            let ends = if index.is_multiple_of(2) { (one, other) } else { (other, one) };
            // Start near the largest PSN, so that PSNs wrap around.
            FuzzQueuePair { ends, dest_qp: 0x10 + u32::from(index), psn: 0xFF_FFF0, read_psn: 0xFF_FFF0 }
        };
        Self { input, frame, time_us: 0, queues: [0, 1, 2, 3, 4, 5, 6, 7].map(queue), sent: Vec::new() }
    }

    /// Generates packets until the choices end.
    pub(crate) fn run(mut self) -> Vec<SentPacket> {
        while self.sent.len() < MAX_PACKETS && !self.input.is_empty() && self.next().is_ok() {}
        self.sent
    }

    fn next(&mut self) -> Result<()> {
        let [what, which, passed] = self.input.arbitrary::<[u8; 3]>()?;
        let index = usize::from(which & 7);
        // Usually a few microseconds; sometimes a second, or back in time.
        self.time_us = match passed {
            0xFF => self.time_us.wrapping_add(1_000_000),
            0xFE => self.time_us.saturating_sub(50),
            few => self.time_us.wrapping_add(u32::from(few)),
        };
        match what & 15 {
            0..=3 => self.message(index, [0x00, 0x01, 0x02, 0x04], 0),
            4 => self.message(index, [0x00, 0x01, 0x03, 0x05], 4),
            5 | 6 => self.message(index, [0x06, 0x07, 0x08, 0x0A], 16),
            7 => self.read(index),
            8 | 9 => self.acknowledge(index, what >> 4),
            10 => self.datagram(index, what >> 4),
            11 => self.management(index, what >> 4),
            12 => {
                // Skips PSNs (a loss), or steps back to lost ones.
                let step = u32::from(which >> 3);
                let queue = &mut self.queues[index];
                queue.psn = if what & 16 == 0 { queue.psn.wrapping_add(step) } else { queue.psn.wrapping_sub(step) }
                    & 0xFF_FFFF;
                Ok(())
            }
            13 => self.retransmit(which),
            14 => self.arbitrary_packet(index),
            _ => {
                let bytes = self.some_bytes(usize::from(which))?;
                self.sent.push(SentPacket { time_us: self.time_us, bytes });
                Ok(())
            }
        }
    }

    fn some_bytes(&mut self, most: usize) -> Result<Vec<u8>> {
        let length = most.min(self.input.len());
        self.input.bytes(length).map(<[u8]>::to_vec)
    }

    fn put(&mut self, index: usize, opcode: u8, psn: u32, extension: &[u8], payload: &[u8]) {
        let queue = self.queues[index];
        let bth = Bth {
            opcode: Opcode(opcode),
            solicited: false,
            mig_req: true,
            pad_count: 0,
            tver: 0,
            pkey: 0xFFFF,
            fecn: false,
            becn: false,
            dest_qp: Qpn::new(queue.dest_qp),
            ack_req: true,
            psn: Psn::new(psn),
        };
        let bytes = packet::bytes(self.frame, &FuzzPacket { ends: queue.ends, bth, extension, payload });
        self.sent.push(SentPacket { time_us: self.time_us, bytes });
    }

    /// First, middle, last or only packets of a message. The payload begins with some of the
    /// choices and continues with zeros.
    fn message(&mut self, index: usize, [first, middle, last, only]: [u8; 4], extension_bytes: usize) -> Result<()> {
        let [more, length] = self.input.arbitrary::<[u8; 2]>()?;
        let head = self.some_bytes(usize::from(length))?;
        let mut payload = head;
        payload.resize(payload.len() + usize::from(more & 0xC0), 0);
        let extension = self.some_bytes(extension_bytes)?;
        let mut reth = extension;
        reth.resize(extension_bytes, 0);
        if extension_bytes == 16 {
            reth[12..].copy_from_slice(&(payload.len() as u32).to_be_bytes());
        }
        let packets = payload.len().div_ceil(MTU_BYTES).max(1);
        for at in 0..packets {
            let part = &payload[at * MTU_BYTES..payload.len().min((at + 1) * MTU_BYTES)];
            let (opcode, extension) = match (at == 0, at + 1 == packets) {
                (true, true) => (only, &reth[..]),
                (true, false) => (first, if extension_bytes == 16 { &reth[..] } else { &[] }),
                (false, false) => (middle, &[][..]),
                (false, true) => (last, if extension_bytes == 4 { &reth[..] } else { &[] }),
            };
            let psn = self.queues[index].psn;
            // One of the packets may be missing.
            if usize::from(more & 0x0F) != at + 1 {
                self.put(index, opcode, psn, extension, part);
            }
            self.queues[index].psn = psn.wrapping_add(1) & 0xFF_FFFF;
        }
        Ok(())
    }

    /// A READ request, and the first packets of its response.
    fn read(&mut self, index: usize) -> Result<()> {
        let [packets, answered] = self.input.arbitrary::<[u8; 2]>()?.map(|number| usize::from(number & 7));
        let psn = self.queues[index].psn;
        let length = (packets * MTU_BYTES) as u32;
        let mut reth = self.some_bytes(12)?;
        reth.resize(12, 0);
        reth.extend(length.to_be_bytes());
        self.queues[index].read_psn = psn;
        self.put(index, 0x0C, psn, &reth, &[]);
        self.queues[index].psn = psn.wrapping_add(packets.max(1) as u32) & 0xFF_FFFF;
        let aeth = [0x1F, 0, 0, 1];
        for at in 0..answered.min(packets) {
            let (opcode, extension) = match (at == 0, at + 1 == packets) {
                (true, true) => (0x10, &aeth[..]),
                (true, false) => (0x0D, &aeth[..]),
                (false, false) => (0x0E, &[][..]),
                (false, true) => (0x0F, &aeth[..]),
            };
            self.put(index ^ 1, opcode, psn.wrapping_add(at as u32), extension, &[7; MTU_BYTES]);
        }
        Ok(())
    }

    /// An ACK, NAK or RNR NAK for requests of the other direction, or a congestion notification.
    fn acknowledge(&mut self, index: usize, how: u8) -> Result<()> {
        let other = self.queues[index ^ 1];
        let back = u32::from(self.input.arbitrary::<u8>()? & 0x0F);
        let syndrome = [0x1F, 0x60, 0x61, 0x2A][usize::from(how & 3)];
        match how {
            4 => self.put(index, 0x12, other.read_psn, &[0x1F, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 9], &[]),
            5 => self.put(index, 0x81, 0, &[0; 16], &[]),
            _ => self.put(index, 0x11, other.psn.wrapping_sub(1 + back), &[syndrome, 0, 0, 1], &[]),
        }
        Ok(())
    }

    fn datagram(&mut self, index: usize, how: u8) -> Result<()> {
        let q_key = if how & 1 == 0 { ucx::Q_KEY } else { u32::from(how >> 1) };
        let length = self.input.arbitrary::<u8>()?;
        let payload = self.some_bytes(usize::from(length))?;
        let deth = [q_key.to_be_bytes(), (0x10 + (index as u32 ^ 1)).to_be_bytes()].concat();
        let psn = self.queues[index].psn;
        self.put(index, 0x64, psn, &deth, &payload);
        self.queues[index].psn = psn.wrapping_add(1) & 0xFF_FFFF;
        Ok(())
    }

    /// A communication management message, on queue pair 1.
    fn management(&mut self, index: usize, kind: u8) -> Result<()> {
        let length = self.input.arbitrary::<u8>()?;
        let mut mad = mad::cm_mad(kind, &self.some_bytes(usize::from(length))?);
        mad.resize(mad::MAD_BYTES, 0);
        let own = std::mem::replace(&mut self.queues[index].dest_qp, 1);
        self.put(index, 0x64, 0, &[0x80, 1, 0, 0, 0, 0, 0, 1], &mad);
        self.queues[index].dest_qp = own;
        Ok(())
    }

    /// A packet that was captured before: a retransmission or a mirror copy.
    fn retransmit(&mut self, back: u8) -> Result<()> {
        let at = self.sent.len().checked_sub(1 + usize::from(back)).ok_or(arbitrary::Error::NotEnoughData)?;
        let bytes = self.sent[at].bytes.clone();
        self.sent.push(SentPacket { time_us: self.time_us, bytes });
        Ok(())
    }

    /// A packet with any opcode and any headers.
    fn arbitrary_packet(&mut self, index: usize) -> Result<()> {
        let opcode = self.input.arbitrary::<u8>()?;
        let mut extension = self.some_bytes(usize::from(Opcode(opcode).ext_bytes()))?;
        extension.resize(usize::from(Opcode(opcode).ext_bytes()), 0);
        let length = self.input.arbitrary::<u8>()?;
        let payload = self.some_bytes(usize::from(length))?;
        let psn = self.queues[index].psn;
        self.put(index, opcode, psn, &extension, &payload);
        Ok(())
    }
}
