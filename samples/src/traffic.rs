//! Who sends what when: reliable connections between the nodes, a few messages at a time, packets in order of time.

use std::collections::BTreeMap;
use std::io;

use crate::connections::Connections;
use crate::events::{Event, Events};
use crate::layout::{Layout, Packet, Rendezvous};
use crate::random::Random;
use crate::request::Request;
use crate::stack::{Stack, Words};
use crate::totals::PairTotals;
use crate::{Kind, Options};

/// Messages under way at the same time, at most.
const MAX_STREAMS: usize = 32;
/// Packets that one ACK answers in a big message.
const PACKETS_PER_ACK: u32 = 3;
/// Time of the first packets: 14 November 2023, 22:13:20 UTC.
const START_NS: u64 = 1_700_000_000_000_000_000;
/// From the ACK to the sender's next packets, at most.
const MAX_THINK_NS: u64 = 64_000;
/// MPI tag of the messages of the first length; those of the others follow.
const FIRST_TAG: u32 = 100;

/// A message under way.
#[derive(Clone, Copy, Debug)]
struct Stream {
    connection: usize,
    /// Which end sends.
    end: usize,
    /// Index of the message's sort.
    message: usize,
    /// What its envelope says.
    words: Words,
    /// Packets sent so far.
    sent: u32,
    /// All packets are sent; the last ACK may still be on its way.
    complete: bool,
}

/// The traffic of a capture, packet by packet.
pub(crate) struct Traffic<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) options: &'a Options,
    pub(crate) random: Random,
    /// Decides what is lost.
    pub(crate) fate: Random,
    pub(crate) connections: Connections,
    /// What sends in turn, as two nodes and which end; without a pattern any end of any connection does.
    directions: Vec<(usize, usize)>,
    /// The next of them.
    next: usize,
    streams: Vec<Option<Stream>>,
    pub(crate) events: Events,
    /// Messages that were begun.
    begun: u32,
    /// Datagrams that each node has sent.
    pub(crate) datagrams: Vec<u32>,
    /// What the files will have once the messages under way are complete.
    pub(crate) promised_bytes: u64,
}

impl<'a> Traffic<'a> {
    /// Connects the nodes.
    pub(crate) fn new(options: &'a Options, layout: &'a Layout) -> io::Result<Self> {
        let mut random = Random::new(options.seed);
        let sends = options.directions()?;
        // In turn, but not one node after the other: neighbours in the list should not be neighbours in time.
        let mut turns: Vec<usize> = (0..sends.as_ref().map_or(0, Vec::len)).collect();
        for last in (1..turns.len()).rev() {
            turns.swap(last, random.below(last as u64 + 1) as usize);
        }
        let connections = Connections::new(options, sends.as_deref(), &mut random)?;
        let direction = |&(from, to): &(u16, u16)| {
            let pair = connections.pairs.binary_search_by_key(&[from.min(to), from.max(to)], |pair| pair.nodes);
            (pair.unwrap_or_default(), usize::from(from > to))
        };
        let sends: Vec<(usize, usize)> = sends.iter().flatten().map(direction).collect();
        let directions: Vec<(usize, usize)> = turns.into_iter().map(|turn| sends[turn]).collect();
        // At most half of all directions are in use, so that a free one is soon found; what is asked for first takes both of a connection.
        let most = if directions.is_empty() { connections.len() } else { directions.len().min(connections.len()) };
        let streams = vec![None; most.min(MAX_STREAMS)];
        Ok(Self {
            layout,
            options,
            random,
            fate: Random::new(options.seed ^ 0x6C6F_7373),
            connections,
            directions,
            next: 0,
            streams,
            events: Events::default(),
            begun: 0,
            datagrams: vec![0; usize::from(options.lids) + 1],
            // The files' own headers of 24 bytes.
            promised_bytes: 24 * u64::from(options.sinks),
        })
    }

    /// Runs to the end; `seen` gets every packet at every mirrored port with the sink that mirrors it, in order of time (nanoseconds since
    /// the epoch). Returns the totals per (source, destination).
    pub(crate) fn run(
        mut self,
        mut seen: impl FnMut(u64, u16, &Packet) -> io::Result<()>,
    ) -> io::Result<BTreeMap<(u16, u16), PairTotals>> {
        for index in 0..self.streams.len() {
            let time_ns = START_NS + self.random.below(MAX_THINK_NS);
            self.events.push(time_ns, Event::Continue(index));
        }
        while let Some((time_ns, event)) = self.events.pop() {
            match event {
                Event::Seen(sink, packet) => seen(time_ns, sink, &packet)?,
                Event::Continue(index) => self.proceed(index, time_ns),
            }
        }
        Ok(self.collect())
    }

    /// The stream's next packets and the ACK for them.
    fn proceed(&mut self, index: usize, mut time_ns: u64) {
        // The direction is free again only now, when the last ACK has arrived: what came next on it must come later.
        if let Some(done) = self.streams[index].take_if(|stream| stream.complete) {
            self.take(done.connection, done.end, false);
        }
        let Some(mut stream) = self.streams[index].or_else(|| self.open(&mut time_ns)) else { return };
        let rendezvous = self.layout.messages[stream.message].rendezvous;
        if let Some(Rendezvous { offer, grant, .. }) = rendezvous.filter(|_| stream.sent == 0) {
            time_ns = self.say(&stream, stream.end, offer, time_ns);
            time_ns = self.say(&stream, 1 - stream.end, grant, time_ns);
        }
        // Small messages go in groups of up to four, of which the last asks for the ACK.
        let group = match self.options.kind {
            Kind::Small => 1 + self.random.below(4) as u32,
            Kind::Big => PACKETS_PER_ACK,
        };
        let mut requests = Vec::with_capacity(group as usize);
        for number in 1..=group {
            if stream.complete {
                let Some(message) = self.choose_message(stream.connection) else { break };
                stream = self.begin(stream.connection, stream.end, message);
            }
            let (template, is_last) = self.layout.messages[stream.message].packet(stream.sent);
            let ack_req = number == group || (is_last && self.is_long_enough());
            let psn = self.connections.request(stream.connection, stream.end);
            requests.push(Request { template, is_last, ack_req, psn, words: stream.words });
            stream.sent += 1;
            stream.complete = is_last;
        }
        let ack_is_promised = self.layout.messages[stream.message].packets >= PACKETS_PER_ACK;
        time_ns = self.deliver(stream.connection, stream.end, &requests, ack_is_promised, time_ns);
        if let Some(Rendezvous { done, .. }) = rendezvous.filter(|_| stream.complete) {
            time_ns = self.say(&stream, stream.end, done, time_ns);
        }
        self.streams[index] = Some(stream);
        time_ns += self.random.below(MAX_THINK_NS);
        self.events.push(time_ns, Event::Continue(index));
    }

    /// The messages that were begun are enough for the size that was asked for.
    fn is_long_enough(&self) -> bool {
        self.promised_bytes >= self.options.bytes
    }

    /// Takes or frees a direction for a message, or both of the connection where the receiver answers the message; false where it is taken.
    fn take(&mut self, connection: usize, end: usize, busy: bool) -> bool {
        let takes_both = self.layout.messages.iter().any(|message| message.rendezvous.is_some());
        let ends = self.connections.busy(connection);
        let is_free = ends.iter().enumerate().all(|(other, is_busy)| !(**is_busy && (takes_both || other == end)));
        if is_free || !busy {
            ends.into_iter()
                .enumerate()
                .filter(|(other, _)| takes_both || *other == end)
                .for_each(|(_, is_busy)| *is_busy = busy);
        }
        is_free
    }

    /// A new message on a direction that is free, not before its nodes have introduced themselves; nothing when the file will be long
    /// enough.
    fn open(&mut self, time_ns: &mut u64) -> Option<Stream> {
        if self.is_long_enough() {
            return None;
        }
        // The length is drawn first, and promised when it is known how often the packets will be seen.
        let message = self.draw_message();
        let (connection, end) = loop {
            let (connection, end) = self.choose_direction();
            if self.take(connection, end, true) {
                break (connection, end);
            }
        };
        self.promise(message, connection);
        *time_ns = self.introduce(self.connections.pair_of(connection), *time_ns).max(*time_ns);
        Some(self.begin(connection, end, message))
    }

    /// One end of a connection: in turn where there is a pattern, else any.
    fn choose_direction(&mut self) -> (usize, usize) {
        if let Some(&(pair, end)) = self.directions.get(self.next) {
            self.next = (self.next + 1) % self.directions.len();
            let of_pair = self.connections.of_pair(pair);
            return (of_pair.start + self.random.below(of_pair.len() as u64) as usize, end);
        }
        let choice = self.random.below(2 * self.connections.len() as u64) as usize;
        (choice / 2, choice % 2)
    }

    /// The sort of the next message of a connection; nothing when the file will be long enough.
    fn choose_message(&mut self, connection: usize) -> Option<usize> {
        if self.is_long_enough() {
            return None;
        }
        let choice = self.draw_message();
        self.promise(choice, connection);
        Some(choice)
    }

    fn draw_message(&mut self) -> usize {
        self.random.below(self.layout.messages.len() as u64) as usize
    }

    /// The bytes of a message, with the ACKs that are its own.
    fn promise(&mut self, message: usize, connection: usize) {
        let message = &self.layout.messages[message];
        let packets = (0..message.packets).map(|index| self.layout.record_bytes(message.packet(index).0)).sum::<u64>();
        // A message shorter than that shares its ACK with others: it is promised when it is sent.
        let acks = u64::from(message.packets / PACKETS_PER_ACK) * self.layout.record_bytes(self.layout.ack);
        self.promised_bytes += (packets + acks) * self.sights(connection);
    }

    /// A message begins.
    fn begin(&mut self, connection: usize, end: usize, message: usize) -> Stream {
        let mut words = Words::default();
        if self.options.stack != Stack::None {
            let rank = u32::from(self.connections.node(connection, end) - 1);
            let pair = self.connections.pair_of(connection);
            let total = &mut self.connections.pairs[pair].totals[end];
            total.mpi_messages += 1;
            total.mpi_bytes += self.layout.messages[message].mpi_bytes;
            words = [rank, FIRST_TAG + message as u32, total.mpi_messages as u32, self.begun];
            self.begun = self.begun.wrapping_add(1);
        }
        Stream { connection, end, message, words, sent: 0, complete: false }
    }

    /// One packet that belongs to a message and has no data of it.
    fn say(&mut self, stream: &Stream, end: usize, template: u16, time_ns: u64) -> u64 {
        self.send_one(stream.connection, end, template, stream.words, time_ns)
    }

    /// The totals by node numbers, without the pairs that exchanged nothing.
    fn collect(&self) -> BTreeMap<(u16, u16), PairTotals> {
        let mut totals = BTreeMap::new();
        for pair in &self.connections.pairs {
            let ([first, second], [there, back]) = (pair.nodes, pair.totals);
            for (key, total) in [((first, second), there), ((second, first), back)] {
                if total.packets > 0 {
                    totals.insert(key, total);
                }
            }
        }
        totals
    }
}
