//! Delivery of packets: ACKs, loss and retransmission, connection messages, and the sinks that
//! observe them.

use crate::events::SampleEvent;
use crate::layout::SamplePacket;
use crate::request::RequestPacket;
use crate::stack::{DATAGRAM_QPN, SampleStack, Words};
use crate::traffic::TrafficGenerator;

/// Gap after each packet in nanoseconds.
const PACKET_GAP_NS: u64 = 20;
/// Time from the last packet to the ACK in nanoseconds: this, plus up to as much again at random.
const TURNAROUND_NS: u64 = 400;
/// Retransmission timeout of the requester in nanoseconds.
const TIMEOUT_NS: u64 = 1_000_000;

/// A packet to send, without its sender.
#[derive(Clone, Copy, Debug)]
struct OutgoingPacket {
    request: RequestPacket,
    msn: u32,
    dest_qp: u32,
    /// True if the packet was sent before.
    is_retransmission: bool,
    /// True if `reserved_bytes` already includes the packet.
    is_reserved: bool,
}

impl TrafficGenerator<'_> {
    /// Sends `requests`, which are reserved already, until the other end has received them all, and
    /// then its ACK. Returns the arrival time of the ACK.
    pub(crate) fn deliver(
        &mut self,
        connection: usize,
        end: usize,
        requests: &[RequestPacket],
        ack_is_promised: bool,
        mut time_ns: u64,
    ) -> u64 {
        let transit_ns = self.connections.transit_ns(connection);
        let dest_qp = self.connections.qpn(connection, 1 - end);
        // Requests before `arrived` were received; requests before `sent_before` were sent at least
        // once.
        let (mut arrived, mut sent_before) = (0, 0);
        while arrived < requests.len() {
            // The first lost request, and whether the receiver notices the gap by a later request.
            let (mut lost, mut is_noticed) = (None, false);
            for (index, &request) in requests.iter().enumerate().skip(arrived) {
                let is_retransmission = index < sent_before;
                let out =
                    OutgoingPacket { request, msn: 0, dest_qp, is_retransmission, is_reserved: !is_retransmission };
                self.emit(connection, end, time_ns, out);
                time_ns += PACKET_GAP_NS + self.layout.link_ns(request.template);
                let is_lost =
                    self.options.loss_ppm > 0 && self.loss_random.below(1_000_000) < u64::from(self.options.loss_ppm);
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
                time_ns =
                    self.send_response(connection, 1 - end, (self.layout.nak, requests[lost].psn), false, time_ns);
            } else if lost.is_some() {
                time_ns += TIMEOUT_NS + transit_ns;
            }
        }
        let psn = requests.last().map_or(0, |request| request.psn);
        self.send_response(connection, 1 - end, (self.layout.ack, psn), ack_is_promised, time_ns)
    }

    /// Sends an ACK or NAK of `end`, given as template and PSN, in response to requests sent before
    /// `time_ns`. Returns its arrival time.
    fn send_response(
        &mut self,
        connection: usize,
        end: usize,
        (template, psn): (u16, u32),
        is_promised: bool,
        mut time_ns: u64,
    ) -> u64 {
        let transit_ns = self.connections.transit_ns(connection);
        time_ns += transit_ns + TURNAROUND_NS + self.random.below(TURNAROUND_NS);
        let request = RequestPacket { template, is_last: false, ack_req: false, psn, words: Words::default() };
        let (msn, dest_qp) = (self.connections.msn(connection, end), self.connections.qpn(connection, 1 - end));
        self.emit(
            connection,
            end,
            time_ns,
            OutgoingPacket { request, msn, dest_qp, is_retransmission: false, is_reserved: is_promised },
        );
        time_ns + transit_ns
    }

    /// Sends a message of one packet that is not reserved yet. Returns the arrival time of its ACK.
    pub(crate) fn send_one(&mut self, connection: usize, end: usize, template: u16, words: Words, time_ns: u64) -> u64 {
        self.reserved_bytes += self.layout.record_bytes(template) * self.observations(connection);
        let psn = self.connections.request(connection, end);
        let request = RequestPacket { template, is_last: true, ack_req: true, psn, words };
        self.deliver(connection, end, &[request], false, time_ns)
    }

    /// Exchanges the connection messages of two nodes, connection by connection, unless they are
    /// sent already. Returns the time at which both nodes know each other.
    pub(crate) fn send_connection_messages(&mut self, pair: usize, mut time_ns: u64) -> u64 {
        let Some(template) = self.layout.connection_message.filter(|_| self.connections.pairs[pair].ready_ns == 0)
        else {
            return self.connections.pairs[pair].ready_ns;
        };
        for end in [0, 1] {
            for connection in self.connections.of_pair(pair) {
                let ranks = [end, 1 - end].map(|end| u32::from(self.connections.node(connection, end) - 1));
                let qpn = self.connections.qpn(connection, end);
                if self.options.stack == SampleStack::Ucx {
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

    /// Sends a connection datagram, which is not acknowledged. Returns its arrival time.
    fn send_datagram(&mut self, connection: usize, end: usize, template: u16, words: Words, time_ns: u64) -> u64 {
        let sent = &mut self.datagrams[usize::from(self.connections.node(connection, end))];
        let psn = *sent & 0xFF_FFFF;
        *sent = sent.wrapping_add(1);
        let request = RequestPacket { template, is_last: true, ack_req: false, psn, words };
        let out =
            OutgoingPacket { request, msn: 0, dest_qp: DATAGRAM_QPN, is_retransmission: false, is_reserved: false };
        self.emit(connection, end, time_ns, out);
        time_ns + self.connections.transit_ns(connection) + TURNAROUND_NS
    }

    /// Records per packet of a connection, over all files.
    pub(crate) fn observations(&self, connection: usize) -> u64 {
        let [from, to] = [0, 1].map(|end| self.options.sink(self.connections.node(connection, end)));
        if self.options.mirror == 2 || from != to { 2 } else { 1 }
    }

    /// Sends a packet of `end` past the mirrored ports and counts it.
    fn emit(&mut self, connection: usize, end: usize, time_ns: u64, out: OutgoingPacket) {
        let OutgoingPacket { request, msn, dest_qp, is_retransmission, is_reserved: is_promised } = out;
        let RequestPacket { template, is_last, ack_req, psn, words } = request;
        let observations = self.observations(connection);
        if !is_promised {
            self.reserved_bytes += self.layout.record_bytes(template) * observations;
        }
        let pair = self.connections.pair_of(connection);
        let total = &mut self.connections.pairs[pair].totals[end];
        total.packets += 1;
        total.wire_bytes += u64::from(self.layout.template(template).wire_bytes);
        total.retransmissions += u64::from(is_retransmission);
        if !is_retransmission {
            total.payload_bytes += u64::from(self.layout.template(template).payload_bytes);
            total.messages += u64::from(is_last);
        }
        let ip_id = self.connections.next_ip_id(connection, end);
        let udp_source = self.connections.udp_source(connection);
        let [src, dst] = [end, 1 - end].map(|end| self.connections.node(connection, end));
        let packet = SamplePacket { template, src, dst, dest_qp, psn, ack_req, msn, ip_id, udp_source, words };
        self.events.push(time_ns, SampleEvent::Observation(self.options.sink(src), packet));
        if observations == 2 {
            let transit_ns = self.connections.transit_ns(connection);
            self.events.push(time_ns + transit_ns, SampleEvent::Observation(self.options.sink(dst), packet));
        }
    }
}
