//! How packets get to the other end: ACKs, what is lost and sent again, introductions, and which sinks see all that.

use crate::events::Event;
use crate::layout::Packet;
use crate::request::Request;
use crate::stack::{DATAGRAM_QPN, Stack, Words};
use crate::traffic::Traffic;

/// A pause after each packet.
const PACKET_GAP_NS: u64 = 20;
/// From the last packet to the ACK's departure: this much, and as much again at random.
const TURNAROUND_NS: u64 = 400;
/// After this the requester sends again what was not answered.
const TIMEOUT_NS: u64 = 1_000_000;

/// A packet on its way, apart from who sends it.
#[derive(Clone, Copy, Debug)]
struct Outgoing {
    request: Request,
    msn: u32,
    dest_qp: u32,
    /// Sent before.
    is_repeat: bool,
    /// Its bytes are promised already.
    is_promised: bool,
}

impl Traffic<'_> {
    /// Sends requests until the other end has them all, and its ACK; `requests` are promised already. Returns when the ACK has arrived.
    pub(crate) fn deliver(
        &mut self,
        connection: usize,
        end: usize,
        requests: &[Request],
        ack_is_promised: bool,
        mut time_ns: u64,
    ) -> u64 {
        let transit_ns = self.connections.transit_ns(connection);
        let dest_qp = self.connections.qpn(connection, 1 - end);
        // All before this have arrived; all before that have been sent before.
        let (mut arrived, mut sent_before) = (0, 0);
        while arrived < requests.len() {
            // The first that is lost, and whether the receiver gets one after it, which it cannot take.
            let (mut lost, mut is_noticed) = (None, false);
            for (index, &request) in requests.iter().enumerate().skip(arrived) {
                let is_repeat = index < sent_before;
                let out = Outgoing { request, msn: 0, dest_qp, is_repeat, is_promised: !is_repeat };
                self.emit(connection, end, time_ns, out);
                time_ns += PACKET_GAP_NS + self.layout.link_ns(request.template);
                let is_lost =
                    self.options.loss_ppm > 0 && self.fate.below(1_000_000) < u64::from(self.options.loss_ppm);
                match lost {
                    None if is_lost => lost = Some(index),
                    None if request.is_last => self.connections.complete(connection, 1 - end),
                    None => {}
                    Some(_) => is_noticed |= !is_lost,
                }
            }
            sent_before = requests.len();
            arrived = lost.unwrap_or(requests.len());
            if let Some(lost) = lost.filter(|_| is_noticed) {
                time_ns = self.answer(connection, 1 - end, (self.layout.nak, requests[lost].psn), false, time_ns);
            } else if lost.is_some() {
                time_ns += TIMEOUT_NS + transit_ns;
            }
        }
        let psn = requests.last().map_or(0, |request| request.psn);
        self.answer(connection, 1 - end, (self.layout.ack, psn), ack_is_promised, time_ns)
    }

    /// An ACK or NAK of `end`, by its template and PSN, to what was sent before `time_ns`. Returns when it has arrived.
    fn answer(
        &mut self,
        connection: usize,
        end: usize,
        (template, psn): (u16, u32),
        is_promised: bool,
        mut time_ns: u64,
    ) -> u64 {
        let transit_ns = self.connections.transit_ns(connection);
        time_ns += transit_ns + TURNAROUND_NS + self.random.below(TURNAROUND_NS);
        let request = Request { template, is_last: false, ack_req: false, psn, words: Words::default() };
        let (msn, dest_qp) = (self.connections.msn(connection, end), self.connections.qpn(connection, 1 - end));
        self.emit(connection, end, time_ns, Outgoing { request, msn, dest_qp, is_repeat: false, is_promised });
        time_ns + transit_ns
    }

    /// A message of one packet that nothing was promised of.
    pub(crate) fn send_one(&mut self, connection: usize, end: usize, template: u16, words: Words, time_ns: u64) -> u64 {
        self.promised_bytes += self.layout.record_bytes(template) * self.sights(connection);
        let psn = self.connections.request(connection, end);
        let request = Request { template, is_last: true, ack_req: true, psn, words };
        self.deliver(connection, end, &[request], false, time_ns)
    }

    /// The two nodes introduce themselves to each other, if they have not begun to, connection by connection. Returns when they know each
    /// other.
    pub(crate) fn introduce(&mut self, pair: usize, mut time_ns: u64) -> u64 {
        let Some(template) = self.layout.introduction.filter(|_| self.connections.pairs[pair].ready_ns == 0) else {
            return self.connections.pairs[pair].ready_ns;
        };
        for end in [0, 1] {
            for connection in self.connections.of_pair(pair) {
                let ranks = [end, 1 - end].map(|end| u32::from(self.connections.node(connection, end) - 1));
                let qpn = self.connections.qpn(connection, end);
                if self.options.stack == Stack::Ucx {
                    let words = [ranks[0], connection as u32, (end | (1 - end) << 8) as u32, qpn];
                    time_ns = self.send_one(connection, end, template, words, time_ns);
                } else {
                    let words = [ranks[0], ranks[1], qpn, self.connections.psn(connection, end)];
                    time_ns = self.send_datagram(connection, end, template, words, time_ns);
                }
            }
        }
        self.connections.pairs[pair].ready_ns = time_ns;
        time_ns
    }

    /// A datagram about a connection, which is not answered. Returns when it has arrived.
    fn send_datagram(&mut self, connection: usize, end: usize, template: u16, words: Words, time_ns: u64) -> u64 {
        let sent = &mut self.datagrams[usize::from(self.connections.node(connection, end))];
        let psn = *sent & 0xFF_FFFF;
        *sent = sent.wrapping_add(1);
        let request = Request { template, is_last: true, ack_req: false, psn, words };
        let out = Outgoing { request, msn: 0, dest_qp: DATAGRAM_QPN, is_repeat: false, is_promised: false };
        self.emit(connection, end, time_ns, out);
        time_ns + self.connections.transit_ns(connection) + TURNAROUND_NS
    }

    /// How often packets of a connection stand in the files.
    pub(crate) fn sights(&self, connection: usize) -> u64 {
        let [from, to] = [0, 1].map(|end| self.options.sink(self.connections.node(connection, end)));
        if self.options.mirror == 2 || from != to { 2 } else { 1 }
    }

    /// Lets a packet of `end` pass the mirrored ports, and counts it.
    fn emit(&mut self, connection: usize, end: usize, time_ns: u64, out: Outgoing) {
        let Outgoing { request, msn, dest_qp, is_repeat, is_promised } = out;
        let Request { template, is_last, ack_req, psn, words } = request;
        let sights = self.sights(connection);
        if !is_promised {
            self.promised_bytes += self.layout.record_bytes(template) * sights;
        }
        let pair = self.connections.pair_of(connection);
        let total = &mut self.connections.pairs[pair].totals[end];
        total.packets += 1;
        total.wire_bytes += u64::from(self.layout.template(template).wire_bytes);
        total.repeats += u64::from(is_repeat);
        if !is_repeat {
            total.payload_bytes += u64::from(self.layout.template(template).payload_bytes);
            total.messages += u64::from(is_last);
        }
        let ip_id = self.connections.next_ip_id(connection, end);
        let udp_source = self.connections.udp_source(connection);
        let [src, dst] = [end, 1 - end].map(|end| self.connections.node(connection, end));
        let packet = Packet { template, src, dst, dest_qp, psn, ack_req, msn, ip_id, udp_source, words };
        self.events.push(time_ns, Event::Seen(self.options.sink(src), packet));
        if sights == 2 {
            let transit_ns = self.connections.transit_ns(connection);
            self.events.push(time_ns + transit_ns, Event::Seen(self.options.sink(dst), packet));
        }
    }
}
