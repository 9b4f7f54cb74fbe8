//! Generated traffic with injected incidents: six ports exchange messages with their neighbors, and
//! a sink holds each packet at both ports.

use crate::wire::{WireBuilder, WireQueuePair};
use ibscope_samples::Random;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Speed of the links.
pub(super) const LINK: &str = "1Gb/s";
const CAPACITY_BYTES_PER_S: u64 = 125_000_000;
const PORTS: u16 = 6;
/// Exchanges of each port with each neighbor.
const ROUNDS: u64 = 150;
const ROUND_NS: u64 = 1_000_000;
/// SENDs of an exchange; the ACK covers them all.
const MESSAGES: u32 = 3;
const PAYLOAD_BYTES: usize = 256;
/// RC SEND Only with 4096 bytes: LRH 8, BTH 12, payload, ICRC 4, VCRC 2.
const FULL_PACKET_BYTES: u64 = 4122;
const TRANSIT_NS: u64 = 1_000;
const START_NS: u64 = 1_700_000_000_000_000_000;
/// NAK with a PSN sequence error, and RNR NAK with timer 14 (0.64 ms) in its syndrome.
const SEQUENCE_ERROR: u8 = 0x60;
const NOT_READY: u8 = 0x20 | 0x0E;
const RNR_WAIT_NS: u64 = 640_000;

/// What goes wrong.
#[derive(Clone, Copy, Debug)]
pub(super) enum Incident {
    /// The link to the port loses this share of the SENDs.
    Loss { port: u16, percent: u64 },
    /// The port has no receive buffer for this share of the exchanges.
    NotReady { port: u16, percent: u64 },
    /// Switches mark this share of the packets to the port with FECN.
    Marks { port: u16, percent: u64 },
    /// One port sends to this port at 95 % of the capacity, for this share of the time.
    FullLink { port: u16, percent: u64 },
    /// The same at 50 %.
    HalfFullLink { port: u16, percent: u64 },
    /// All other ports send to this port at 95 % of its capacity together.
    Incast { port: u16, percent: u64 },
    /// The mirror drops this share of its records.
    CaptureLoss { percent: u64 },
}

/// One packet at one observation point.
#[derive(Clone, Copy, Debug)]
struct Packet {
    src: u16,
    dst: u16,
    psn: u32,
    kind: PacketKind,
}

#[derive(Clone, Copy, Debug)]
enum PacketKind {
    Send {
        bytes: usize,
        is_marked: bool,
    },
    /// The number of messages that are complete, and the PSN of the last one.
    Ack {
        completed: u32,
    },
    Refusal {
        syndrome: u8,
    },
}

/// A capture with incidents.
pub(super) struct Scene {
    wire: WireBuilder,
}

/// The packets before they are written, by time; of equal times in order of creation.
struct Traffic {
    random: Random,
    incidents: Vec<Incident>,
    packets: BTreeMap<(u64, usize), Packet>,
    /// Next PSN of each sender and receiver; also the number of its messages.
    psns: BTreeMap<(u16, u16), u32>,
}

impl Scene {
    pub(super) fn new(incidents: &[Incident], seed: u64) -> Self {
        let mut traffic = Traffic {
            random: Random::new(seed),
            incidents: incidents.to_vec(),
            packets: BTreeMap::new(),
            psns: BTreeMap::new(),
        };
        traffic.exchanges();
        for incident in incidents {
            match *incident {
                Incident::FullLink { port, percent } => traffic.stream(port, 1, (percent, 95)),
                Incident::HalfFullLink { port, percent } => traffic.stream(port, 1, (percent, 50)),
                Incident::Incast { port, percent } => traffic.stream(port, PORTS - 1, (percent, 95)),
                _ => {}
            }
        }
        Self { wire: traffic.write() }
    }

    pub(super) fn file(&mut self) -> PathBuf {
        self.wire.file()
    }
}

impl Traffic {
    /// True in this share of the calls.
    fn happens(&mut self, percent: u64) -> bool {
        self.random.below(1_000_000) < percent * 10_000
    }

    fn percent(&self, of: impl Fn(&Incident) -> Option<u64>) -> u64 {
        self.incidents.iter().find_map(of).unwrap_or(0)
    }

    /// Adds a packet at the port of its sender and, unless it is lost, at that of its receiver.
    fn add(&mut self, time_ns: u64, packet: Packet, is_lost: bool) {
        let times = [time_ns, time_ns + TRANSIT_NS];
        for time_ns in times.into_iter().take(if is_lost { 1 } else { 2 }) {
            self.packets.insert((time_ns, self.packets.len()), packet);
        }
    }

    /// Each port sends to both neighbors in each round, at a random time.
    fn exchanges(&mut self) {
        for round in 0..ROUNDS {
            for src in 1..=PORTS {
                for dst in [src % PORTS + 1, (src + PORTS - 2) % PORTS + 1] {
                    let start_ns = START_NS + round * ROUND_NS + self.random.below(ROUND_NS / 10);
                    self.exchange(src, dst, start_ns);
                }
            }
        }
    }

    /// Three SENDs and their ACK; after a loss a NAK and go-back-N, without a buffer an RNR NAK.
    fn exchange(&mut self, src: u16, dst: u16, mut time_ns: u64) {
        let first = *self.psns.entry((src, dst)).or_insert(0);
        self.psns.insert((src, dst), first + MESSAGES);
        let loss = self.percent(|incident| match *incident {
            Incident::Loss { port, percent } if port == dst => Some(percent),
            _ => None,
        });
        let not_ready = self.percent(|incident| match *incident {
            Incident::NotReady { port, percent } if port == dst => Some(percent),
            _ => None,
        });
        let marks = self.percent(|incident| match *incident {
            Incident::Marks { port, percent } if port == dst => Some(percent),
            _ => None,
        });
        if self.happens(not_ready) {
            self.send(src, dst, first, time_ns, (marks, false));
            let refusal = Packet { src: dst, dst: src, psn: first, kind: PacketKind::Refusal { syndrome: NOT_READY } };
            self.add(time_ns + 3 * TRANSIT_NS, refusal, false);
            time_ns += RNR_WAIT_NS / 8;
        }
        let mut next = first;
        while next < first + MESSAGES {
            let mut lost = None;
            for psn in next..first + MESSAGES {
                // The last one is never lost: its loss would be noticed after a timeout only.
                let is_lost = lost.is_none() && psn + 1 < first + MESSAGES && self.happens(loss);
                self.send(src, dst, psn, time_ns, (marks, is_lost));
                lost = lost.or(is_lost.then_some(psn));
                time_ns += 5_000;
            }
            next = lost.unwrap_or(first + MESSAGES);
            if let Some(psn) = lost {
                let refusal =
                    Packet { src: dst, dst: src, psn, kind: PacketKind::Refusal { syndrome: SEQUENCE_ERROR } };
                self.add(time_ns + 2 * TRANSIT_NS, refusal, false);
                time_ns += 10 * TRANSIT_NS;
            }
        }
        let kind = PacketKind::Ack { completed: first + MESSAGES };
        let ack = Packet { src: dst, dst: src, psn: first + MESSAGES - 1, kind };
        let turnaround_ns = 2 * TRANSIT_NS + self.random.below(5_000);
        self.add(time_ns + turnaround_ns, ack, false);
    }

    fn send(&mut self, src: u16, dst: u16, psn: u32, time_ns: u64, (marks, is_lost): (u64, bool)) {
        let is_marked = self.happens(marks);
        let packet = Packet { src, dst, psn, kind: PacketKind::Send { bytes: PAYLOAD_BYTES, is_marked } };
        self.add(time_ns, packet, is_lost);
    }

    /// Full packets to a port at `rate_percent` of its capacity, for a share of the time.
    fn stream(&mut self, port: u16, senders: u16, (time_percent, rate_percent): (u64, u64)) {
        let step_ns = FULL_PACKET_BYTES * 1_000_000_000 * 100 / (CAPACITY_BYTES_PER_S * rate_percent);
        let length_ns = ROUNDS * ROUND_NS * time_percent / 100;
        // Opposite ports first: they are no neighbors.
        let others: Vec<u16> =
            (0..PORTS - 1).map(|index| (port + 2 + index) % PORTS + 1).filter(|other| *other != port).collect();
        let others = &others[..usize::from(senders).min(others.len())];
        for step in 0..length_ns / step_ns {
            let time_ns = START_NS + step * step_ns;
            let src = others[step as usize % others.len()];
            let psn = self.psns.entry((src + STREAM, port)).or_insert(0);
            *psn += 1;
            let psn = *psn - 1;
            let packet = |src, dst, kind| Packet { src, dst, psn, kind };
            self.add(time_ns, packet(src + STREAM, port, PacketKind::Send { bytes: 4096, is_marked: false }), false);
            let ack = packet(port, src + STREAM, PacketKind::Ack { completed: psn + 1 });
            self.add(time_ns + 3 * TRANSIT_NS, ack, false);
        }
    }

    fn write(mut self) -> WireBuilder {
        let capture_loss = self.percent(|incident| match *incident {
            Incident::CaptureLoss { percent } => Some(percent),
            _ => None,
        });
        let mut wire = WireBuilder::new();
        for ((time_ns, _), packet) in std::mem::take(&mut self.packets) {
            if capture_loss > 0 && self.happens(capture_loss) {
                continue;
            }
            packet.write(wire.at(time_ns as i64));
        }
        wire
    }
}

/// Added to the number of a port for its queue pairs of streams; the port itself is the rest.
const STREAM: u16 = 1000;

impl Packet {
    /// Each peer and each kind of traffic has a queue pair of its own.
    fn write(&self, wire: &mut WireBuilder) {
        let lid = |number: u16| number % STREAM;
        let is_stream = self.src >= STREAM || self.dst >= STREAM;
        let qpn =
            |own: u16, peer: u16| 0x100 + u32::from(own) * 0x20 + u32::from(peer) + if is_stream { 0x1000 } else { 0 };
        let (src, dst) = (lid(self.src), lid(self.dst));
        let mut queue = WireQueuePair::new(src, dst, qpn(dst, src));
        queue.psn = self.psn;
        match self.kind {
            PacketKind::Send { bytes, is_marked: false } => queue.send(wire, &vec![7; bytes]),
            PacketKind::Send { bytes, is_marked: true } => queue.send_marked(wire, &vec![7; bytes], (true, false)),
            PacketKind::Ack { completed } => queue.ack(wire, &WireQueuePair::completed_up_to(self.psn, completed)),
            PacketKind::Refusal { syndrome } => queue.refuse(wire, self.psn, syndrome),
        }
    }
}
