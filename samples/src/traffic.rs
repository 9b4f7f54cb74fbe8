//! Who sends what when: reliable connections between the nodes, a few messages at a time, packets in order of time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::io;

use crate::layout::{Layout, Packet};
use crate::pattern;
use crate::random::Random;
use crate::totals::PairTotals;
use crate::{Kind, Options};

/// Queue pairs that each two nodes connect.
const QPS_PER_PAIR: usize = 3;
/// Messages under way at the same time, at most.
const MAX_STREAMS: usize = 32;
/// Packets that one ACK answers in a big message.
const PACKETS_PER_ACK: u32 = 3;
/// Time of the first packets: 14 November 2023, 22:13:20 UTC.
const START_NS: u64 = 1_700_000_000_000_000_000;
/// 100 Gbit/s: 12.5 bytes per nanosecond, and a pause after each packet.
const PACKET_GAP_NS: u64 = 20;
/// From the last packet to the ACK's departure: this much, and as much again at random.
const TURNAROUND_NS: u64 = 400;
/// From the ACK to the sender's next packets, at most.
const MAX_THINK_NS: u64 = 64_000;

/// One end of a connection.
#[derive(Clone, Debug)]
struct End {
    node: u16,
    qpn: u32,
    /// PSN of the next request this end sends.
    psn: u32,
    /// Messages from the other end that are complete here.
    msn: u32,
    ip_id: u16,
    /// A message from this end is under way.
    busy: bool,
}

/// Two connected queue pairs.
#[derive(Clone, Debug)]
struct Connection {
    ends: [End; 2],
    udp_source: u16,
    /// From the sender's port to the receiver's: fixed, so that packets never overtake each other.
    transit_ns: u64,
}

/// A message under way.
#[derive(Clone, Copy, Debug)]
struct Stream {
    connection: usize,
    /// Which end sends.
    end: usize,
    /// Index of the message's sort.
    message: usize,
    /// Packets sent so far.
    sent: u32,
    /// All packets are sent; the last ACK may still be on its way.
    complete: bool,
}

/// What one packet says, apart from who sends it.
#[derive(Clone, Copy, Debug)]
struct Content {
    template: u16,
    /// A message ends with it.
    is_last: bool,
    ack_req: bool,
    psn: u32,
    msn: u32,
}

/// What happens at a point in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A packet passes a port that is mirrored.
    Seen(Packet),
    /// The stream of this index goes on.
    Continue(usize),
}

/// An event in the queue: earliest first, and of the same time the one that was queued first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Queued {
    time_ns: u64,
    number: u64,
    event: Event,
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.time_ns, self.number).cmp(&(other.time_ns, other.number))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The traffic of a capture, packet by packet.
pub(crate) struct Traffic<'a> {
    layout: &'a Layout,
    options: &'a Options,
    random: Random,
    connections: Vec<Connection>,
    /// What sends in turn, as two nodes and which end; without a pattern any end of any connection does.
    directions: Vec<(usize, usize)>,
    /// The next of them.
    next: usize,
    streams: Vec<Option<Stream>>,
    queue: BinaryHeap<Reverse<Queued>>,
    queued: u64,
    /// Totals of both directions per two nodes.
    totals: Vec<[PairTotals; 2]>,
    /// What the file will have once the messages under way are complete.
    promised_bytes: u64,
}

impl<'a> Traffic<'a> {
    /// Connects the nodes.
    pub(crate) fn new(options: &'a Options, layout: &'a Layout) -> io::Result<Self> {
        let mut random = Random::new(options.seed);
        let mut next_qpn = vec![0x80_u32; usize::from(options.lids) + 1];
        let mut end = |node: u16, random: &mut Random| {
            let qpn = &mut next_qpn[usize::from(node)];
            *qpn += 1;
            End { node, qpn: *qpn, psn: random.below(1 << 24) as u32, msn: 0, ip_id: random.next() as u16, busy: false }
        };
        let sends = options.directions()?;
        let pairs: Vec<(u16, u16)> = match &sends {
            Some(sends) => sends
                .iter()
                .map(|(from, to)| (*from.min(to), *from.max(to)))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect(),
            None => pattern::anyone(options.lids).collect(),
        };
        let direction = |(from, to): &(u16, u16)| {
            let pair = pairs.binary_search(&(*from.min(to), *from.max(to))).unwrap_or_default();
            (pair, usize::from(from > to))
        };
        let mut directions: Vec<(usize, usize)> = sends.iter().flatten().map(direction).collect();
        // In turn, but not one node after the other: neighbours in the list should not be neighbours in time.
        for last in (1..directions.len()).rev() {
            directions.swap(last, random.below(last as u64 + 1) as usize);
        }
        let mut connections = Vec::new();
        for &(first, second) in &pairs {
            for _ in 0..QPS_PER_PAIR {
                connections.push(Connection {
                    ends: [end(first, &mut random), end(second, &mut random)],
                    udp_source: 0xC000 | random.below(1 << 14) as u16,
                    transit_ns: 800 + random.below(800),
                });
            }
        }
        // At most half of all directions are in use, so that a free one is soon found.
        let most = if sends.is_some() { directions.len() } else { connections.len() };
        let streams = vec![None; most.min(MAX_STREAMS)];
        let totals = vec![[PairTotals::default(); 2]; connections.len() / QPS_PER_PAIR];
        // The file's own header of 24 bytes.
        let promised_bytes = 24;
        let queue = BinaryHeap::new();
        let next = 0;
        Ok(Self {
            layout,
            options,
            random,
            connections,
            directions,
            next,
            streams,
            queue,
            queued: 0,
            totals,
            promised_bytes,
        })
    }

    /// Runs to the end; `seen` gets every packet at every mirrored port, in order of time (nanoseconds since the
    /// epoch). Returns the totals per (source, destination).
    pub(crate) fn run(
        mut self,
        mut seen: impl FnMut(u64, &Packet) -> io::Result<()>,
    ) -> io::Result<BTreeMap<(u16, u16), PairTotals>> {
        for index in 0..self.streams.len() {
            let time_ns = START_NS + self.random.below(MAX_THINK_NS);
            self.push(time_ns, Event::Continue(index));
        }
        while let Some(Reverse(Queued { time_ns, event, .. })) = self.queue.pop() {
            match event {
                Event::Seen(packet) => seen(time_ns, &packet)?,
                Event::Continue(index) => self.proceed(index, time_ns),
            }
        }
        Ok(self.collect())
    }

    fn push(&mut self, time_ns: u64, event: Event) {
        self.queue.push(Reverse(Queued { time_ns, number: self.queued, event }));
        self.queued += 1;
    }

    /// The stream's next packets and the ACK for them.
    fn proceed(&mut self, index: usize, mut time_ns: u64) {
        // The direction is free again only now, when the last ACK has arrived: what came next on it must come later.
        if let Some(done) = self.streams[index].take_if(|stream| stream.complete) {
            self.connections[done.connection].ends[done.end].busy = false;
        }
        let Some(mut stream) = self.streams[index].or_else(|| self.open()) else { return };
        // Small messages go in groups of up to four, of which the last asks for the ACK.
        let group = match self.options.kind {
            Kind::Small => 1 + self.random.below(4) as u32,
            Kind::Big => PACKETS_PER_ACK,
        };
        for number in 1..=group {
            if stream.complete {
                let Some(message) = self.choose_message() else { break };
                stream = Stream { message, sent: 0, complete: false, ..stream };
            }
            let (template, is_last) = self.layout.messages[stream.message].packet(stream.sent);
            let ack_req = number == group || (is_last && self.is_long_enough());
            self.send(&stream, Content { template, is_last, ack_req, psn: 0, msn: 0 }, &mut time_ns);
            stream.sent += 1;
            stream.complete = is_last;
        }
        let transit_ns = self.connections[stream.connection].transit_ns;
        time_ns += transit_ns + TURNAROUND_NS + self.random.below(TURNAROUND_NS);
        self.acknowledge(&stream, time_ns);
        self.streams[index] = Some(stream);
        time_ns += transit_ns + self.random.below(MAX_THINK_NS);
        self.push(time_ns, Event::Continue(index));
    }

    /// The messages that were begun are enough for the size that was asked for.
    fn is_long_enough(&self) -> bool {
        self.promised_bytes >= self.options.bytes
    }

    /// A new message on a direction that is free; nothing when the file will be long enough.
    fn open(&mut self) -> Option<Stream> {
        let message = self.choose_message()?;
        loop {
            let (connection, end) = self.choose_direction();
            let busy = &mut self.connections[connection].ends[end].busy;
            if !*busy {
                *busy = true;
                return Some(Stream { connection, end, message, sent: 0, complete: false });
            }
        }
    }

    /// One end of a connection: in turn where there is a pattern, else any.
    fn choose_direction(&mut self) -> (usize, usize) {
        if let Some(&(pair, end)) = self.directions.get(self.next) {
            self.next = (self.next + 1) % self.directions.len();
            return (pair * QPS_PER_PAIR + self.random.below(QPS_PER_PAIR as u64) as usize, end);
        }
        let choice = self.random.below(2 * self.connections.len() as u64) as usize;
        (choice / 2, choice % 2)
    }

    /// The sort of the next message, whose bytes are promised now; nothing when the file will be long enough.
    fn choose_message(&mut self) -> Option<usize> {
        if self.is_long_enough() {
            return None;
        }
        let choice = self.random.below(self.layout.messages.len() as u64) as usize;
        let message = &self.layout.messages[choice];
        let packets = (0..message.packets).map(|index| self.layout.record_bytes(message.packet(index).0)).sum::<u64>();
        // A message shorter than that shares its ACK with others: it is promised when it is sent.
        let acks = u64::from(message.packets / PACKETS_PER_ACK) * self.layout.record_bytes(self.layout.ack);
        self.promised_bytes += (packets + acks) * u64::from(self.options.mirror);
        Some(choice)
    }

    /// One packet of a message; takes the PSN from the connection.
    fn send(&mut self, stream: &Stream, content: Content, time_ns: &mut u64) {
        let [src, dst] = ends(&mut self.connections[stream.connection], stream.end);
        let psn = src.psn;
        src.psn = (psn + 1) & 0xFF_FFFF;
        if content.is_last {
            dst.msn = (dst.msn + 1) & 0xFF_FFFF;
        }
        self.emit(stream.connection, stream.end, *time_ns, Content { psn, ..content });
        *time_ns += PACKET_GAP_NS + self.layout.record_bytes(content.template) * 2 / 25;
    }

    /// The receiver's ACK for everything it has got.
    fn acknowledge(&mut self, stream: &Stream, time_ns: u64) {
        let [src, dst] = ends(&mut self.connections[stream.connection], stream.end);
        let (psn, msn) = (src.psn.wrapping_sub(1) & 0xFF_FFFF, dst.msn);
        if self.layout.messages[stream.message].packets < PACKETS_PER_ACK {
            self.promised_bytes += self.layout.record_bytes(self.layout.ack) * u64::from(self.options.mirror);
        }
        let content = Content { template: self.layout.ack, is_last: false, ack_req: false, psn, msn };
        self.emit(stream.connection, 1 - stream.end, time_ns, content);
    }

    /// Lets a packet of `end` pass the mirrored ports, and counts it.
    fn emit(&mut self, connection: usize, end: usize, time_ns: u64, content: Content) {
        let Content { template, is_last, ack_req, psn, msn } = content;
        let pair = &mut self.totals[connection / QPS_PER_PAIR][end];
        pair.packets += 1;
        pair.wire_bytes += u64::from(self.layout.template(template).wire_bytes);
        pair.payload_bytes += u64::from(self.layout.template(template).payload_bytes);
        pair.messages += u64::from(is_last);

        let Connection { udp_source, transit_ns, .. } = self.connections[connection];
        let [src, dst] = ends(&mut self.connections[connection], end);
        src.ip_id = src.ip_id.wrapping_add(1);
        let (dest_qp, ip_id) = (dst.qpn, src.ip_id);
        let (src, dst) = (src.node, dst.node);
        let packet = Packet { template, src, dst, dest_qp, psn, ack_req, msn, ip_id, udp_source };
        self.push(time_ns, Event::Seen(packet));
        if self.options.mirror == 2 {
            self.push(time_ns + transit_ns, Event::Seen(packet));
        }
    }

    /// The totals by node numbers, without the pairs that exchanged nothing.
    fn collect(&self) -> BTreeMap<(u16, u16), PairTotals> {
        let mut pairs = BTreeMap::new();
        for (connection, [there, back]) in self.connections.iter().step_by(QPS_PER_PAIR).zip(&self.totals) {
            let [first, second] = connection.ends.each_ref().map(|end| end.node);
            for (key, total) in [((first, second), there), ((second, first), back)] {
                if total.packets > 0 {
                    pairs.insert(key, *total);
                }
            }
        }
        pairs
    }
}

/// The sending end and the receiving end.
fn ends(connection: &mut Connection, sender: usize) -> [&mut End; 2] {
    let [first, second] = &mut connection.ends;
    if sender == 0 { [first, second] } else { [second, first] }
}
