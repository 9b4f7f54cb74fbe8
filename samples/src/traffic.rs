//! Traffic schedule: reliable connections between the nodes, a few messages at a time, packets in
//! order of time.

use std::collections::BTreeMap;
use std::io;

use crate::connections::SampleConnections;
use crate::events::{EventQueue, SampleEvent};
use crate::layout::{RendezvousTemplates, SampleLayout, SamplePacket};
use crate::random::Random;
use crate::request::RequestPacket;
use crate::stack::{SampleStack, Words};
use crate::totals::PairTotals;
use crate::{SampleKind, SampleOptions};

/// Maximum number of messages in flight.
const MAX_STREAMS: usize = 32;
/// Packets of a big message per ACK.
const PACKETS_PER_ACK: u32 = 3;
/// Time of the first packets in nanoseconds since the epoch: 14 November 2023, 22:13:20 UTC.
const START_NS: u64 = 1_700_000_000_000_000_000;
/// Maximum time from an ACK to the sender's next packets in nanoseconds.
const MAX_THINK_NS: u64 = 64_000;
/// MPI tag of messages of the first length; those of the other lengths follow.
const FIRST_TAG: u32 = 100;

/// A message in flight.
#[derive(Clone, Copy, Debug)]
struct MessageInFlight {
    connection: usize,
    /// Sending end.
    end: usize,
    /// Index into [`SampleLayout::messages`].
    message: usize,
    /// Varying values of its envelope.
    words: Words,
    /// Packets sent so far.
    sent: u32,
    /// True if all packets are sent; the last ACK may still be on its way.
    complete: bool,
}

/// Generator of a capture's traffic.
pub(crate) struct TrafficGenerator<'a> {
    pub(crate) layout: &'a SampleLayout,
    pub(crate) options: &'a SampleOptions,
    pub(crate) random: Random,
    /// Random numbers of the loss.
    pub(crate) loss_random: Random,
    pub(crate) connections: SampleConnections,
    /// Senders in turn, as index of the node pair and end; empty without a pattern.
    directions: Vec<(usize, usize)>,
    /// Index of the next sender.
    next: usize,
    streams: Vec<Option<MessageInFlight>>,
    pub(crate) events: EventQueue,
    /// Number of messages started.
    started_messages: u32,
    /// Datagrams sent, by node.
    pub(crate) datagrams: Vec<u32>,
    /// Size of the files once the messages in flight are complete.
    pub(crate) reserved_bytes: u64,
}

impl<'a> TrafficGenerator<'a> {
    /// Connects the nodes.
    pub(crate) fn new(options: &'a SampleOptions, layout: &'a SampleLayout) -> io::Result<Self> {
        let mut random = Random::new(options.seed);
        let sends = options.directions()?;
        // Shuffle the senders, so that neighbors in the list do not send one after the other.
        let mut turns: Vec<usize> = (0..sends.as_ref().map_or(0, Vec::len)).collect();
        for last in (1..turns.len()).rev() {
            turns.swap(last, random.below(last as u64 + 1) as usize);
        }
        let connections = SampleConnections::new(options, sends.as_deref(), &mut random)?;
        let direction = |&(from, to): &(u16, u16)| {
            let pair = connections.pairs.binary_search_by_key(&[from.min(to), from.max(to)], |pair| pair.nodes);
            (pair.unwrap_or_default(), usize::from(from > to))
        };
        let sends: Vec<(usize, usize)> = sends.iter().flatten().map(direction).collect();
        let directions: Vec<(usize, usize)> = turns.into_iter().map(|turn| sends[turn]).collect();
        // Use at most half of all directions, so that a free one is found quickly; a rendezvous
        // takes both directions of a connection.
        let most = if directions.is_empty() { connections.len() } else { directions.len().min(connections.len()) };
        let streams = vec![None; most.min(MAX_STREAMS)];
        Ok(Self {
            layout,
            options,
            random,
            loss_random: Random::new(options.seed ^ 0x6C6F_7373),
            connections,
            directions,
            next: 0,
            streams,
            events: EventQueue::default(),
            started_messages: 0,
            datagrams: vec![0; usize::from(options.lids) + 1],
            // The file headers of 24 bytes.
            reserved_bytes: 24 * u64::from(options.sinks),
        })
    }

    /// Runs to the end and returns the totals per (source, destination).
    ///
    /// `seen` receives every observation of a packet in order of time: nanoseconds since the epoch,
    /// sink, packet.
    pub(crate) fn run(
        mut self,
        mut seen: impl FnMut(u64, u16, &SamplePacket) -> io::Result<()>,
    ) -> io::Result<BTreeMap<(u16, u16), PairTotals>> {
        for index in 0..self.streams.len() {
            let time_ns = START_NS + self.random.below(MAX_THINK_NS);
            self.events.push(time_ns, SampleEvent::Continue(index));
        }
        while let Some((time_ns, event)) = self.events.pop() {
            match event {
                SampleEvent::Observation(sink, packet) => seen(time_ns, sink, &packet)?,
                SampleEvent::Continue(index) => self.proceed(index, time_ns),
            }
        }
        Ok(self.collect())
    }

    /// Sends the stream's next packets and the ACK for them.
    fn proceed(&mut self, index: usize, mut time_ns: u64) {
        // Free the direction only now, after the last ACK has arrived: its next message must come
        // later.
        if let Some(done) = self.streams[index].take_if(|stream| stream.complete) {
            self.take(done.connection, done.end, false);
        }
        let Some(mut stream) = self.streams[index].or_else(|| self.open(&mut time_ns)) else { return };
        let rendezvous = self.layout.messages[stream.message].rendezvous;
        if let Some(RendezvousTemplates { offer, grant, .. }) = rendezvous.filter(|_| stream.sent == 0) {
            time_ns = self.send_envelope(&stream, stream.end, offer, time_ns);
            time_ns = self.send_envelope(&stream, 1 - stream.end, grant, time_ns);
        }
        // Small messages are sent in groups of up to four; the last one asks for the ACK.
        let group = match self.options.kind {
            SampleKind::Small => 1 + self.random.below(4) as u32,
            SampleKind::Big => PACKETS_PER_ACK,
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
            requests.push(RequestPacket { template, is_last, ack_req, psn, words: stream.words });
            stream.sent += 1;
            stream.complete = is_last;
        }
        let ack_is_promised = self.layout.messages[stream.message].packets >= PACKETS_PER_ACK;
        time_ns = self.deliver(stream.connection, stream.end, &requests, ack_is_promised, time_ns);
        if let Some(RendezvousTemplates { done, .. }) = rendezvous.filter(|_| stream.complete) {
            time_ns = self.send_envelope(&stream, stream.end, done, time_ns);
        }
        self.streams[index] = Some(stream);
        time_ns += self.random.below(MAX_THINK_NS);
        self.events.push(time_ns, SampleEvent::Continue(index));
    }

    /// True if the started messages reach the requested size.
    fn is_long_enough(&self) -> bool {
        self.reserved_bytes >= self.options.bytes
    }

    /// Marks a direction as busy or free, or both directions of the connection if messages use a
    /// rendezvous. Returns false if a direction to be taken is busy.
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

    /// Starts a message on a free direction, after the connection messages of its nodes. `None` if
    /// the file will be long enough.
    fn open(&mut self, time_ns: &mut u64) -> Option<MessageInFlight> {
        if self.is_long_enough() {
            return None;
        }
        // Draw the length first; reserve its bytes once the connection, and so the number of
        // observations, is known.
        let message = self.draw_message();
        let (connection, end) = loop {
            let (connection, end) = self.choose_direction();
            if self.take(connection, end, true) {
                break (connection, end);
            }
        };
        self.reserve(message, connection);
        *time_ns = self.send_connection_messages(self.connections.pair_of(connection), *time_ns).max(*time_ns);
        Some(self.begin(connection, end, message))
    }

    /// Connection and end of the next sender: in turn with a pattern, otherwise at random.
    fn choose_direction(&mut self) -> (usize, usize) {
        if let Some(&(pair, end)) = self.directions.get(self.next) {
            self.next = (self.next + 1) % self.directions.len();
            let of_pair = self.connections.of_pair(pair);
            return (of_pair.start + self.random.below(of_pair.len() as u64) as usize, end);
        }
        let choice = self.random.below(2 * self.connections.len() as u64) as usize;
        (choice / 2, choice % 2)
    }

    /// Next message of a connection, as index into the messages; `None` if the file will be long
    /// enough.
    fn choose_message(&mut self, connection: usize) -> Option<usize> {
        if self.is_long_enough() {
            return None;
        }
        let choice = self.draw_message();
        self.reserve(choice, connection);
        Some(choice)
    }

    fn draw_message(&mut self) -> usize {
        self.random.below(self.layout.messages.len() as u64) as usize
    }

    /// Reserves the bytes of a message and of its own ACKs.
    fn reserve(&mut self, message: usize, connection: usize) {
        let message = &self.layout.messages[message];
        let packets = (0..message.packets).map(|index| self.layout.record_bytes(message.packet(index).0)).sum::<u64>();
        // A shorter message shares its ACK with others; the ACK is reserved when it is sent.
        let acks = u64::from(message.packets / PACKETS_PER_ACK) * self.layout.record_bytes(self.layout.ack);
        self.reserved_bytes += (packets + acks) * self.observations(connection);
    }

    /// Starts a message.
    fn begin(&mut self, connection: usize, end: usize, message: usize) -> MessageInFlight {
        let mut words = Words::default();
        if self.options.stack != SampleStack::None {
            let rank = u32::from(self.connections.node(connection, end) - 1);
            let pair = self.connections.pair_of(connection);
            let total = &mut self.connections.pairs[pair].totals[end];
            total.mpi_messages += 1;
            total.mpi_bytes += self.layout.messages[message].mpi_bytes;
            words = [rank, FIRST_TAG + message as u32, total.mpi_messages as u32, self.started_messages];
            self.started_messages = self.started_messages.wrapping_add(1);
        }
        MessageInFlight { connection, end, message, words, sent: 0, complete: false }
    }

    /// Sends one packet of a message that carries no data.
    fn send_envelope(&mut self, stream: &MessageInFlight, end: usize, template: u16, time_ns: u64) -> u64 {
        self.send_one(stream.connection, end, template, stream.words, time_ns)
    }

    /// The totals by node numbers, without pairs that sent no packets.
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
