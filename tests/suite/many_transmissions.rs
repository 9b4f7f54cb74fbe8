//! One PSN that is sent very often, as to a receiver that is not ready (RNR) or gone: the expected
//! numbers are those of the constructed packets.

use crate::health::total;
use crate::wire::{WireBuilder, WireQueuePair, data_connections, profile};
use ibscope::model::Profile;
use ibscope::model::profile::CoverageState;

/// Transmissions of the PSN: 255 and 256 are beside the limit of a byte.
const TRANSMISSIONS: [u64; 3] = [255, 256, 1000];
/// SENDs of a capture, each with one PSN and one ACK.
const SENDS: u64 = 200;
/// The SEND that is retransmitted.
const REPEATED: u64 = 100;
/// Of this many SENDs, one is missing in each of two captures.
const LOSS_DISTANCE: u64 = 40;
const START_NS: i64 = 1_700_000_000_000_000_000;
/// Time from a transmission to the next, and from a packet to the next observation.
const TIMEOUT_NS: i64 = 500_000;
const STEP_NS: i64 = 1000;
/// AETH syndrome of an RNR NAK.
const NOT_READY: u8 = 0x25;

/// A capture that observes each packet `points` times.
struct RepeatedCapture {
    wire: WireBuilder,
    /// The packets that the capture misses.
    missed: WireBuilder,
    points: usize,
    time_ns: i64,
}

impl RepeatedCapture {
    fn new(points: usize, start_ns: i64) -> Self {
        Self { wire: WireBuilder::new(), missed: WireBuilder::new(), points, time_ns: start_ns }
    }

    /// Writes a packet at each point.
    fn packet(&mut self, is_lost: bool, mut write: impl FnMut(&mut WireBuilder)) {
        let wire = if is_lost { &mut self.missed } else { &mut self.wire };
        for _ in 0..self.points {
            write(wire.at(self.time_ns));
            self.time_ns += STEP_NS;
        }
    }

    /// A SEND and its ACK.
    fn send(&mut self, (one, other): &mut (WireQueuePair, WireQueuePair), is_lost: bool) {
        let mut sent = one.clone();
        self.packet(is_lost, |wire| {
            sent = one.clone();
            sent.send(wire, &[0; 64]);
        });
        *one = sent;
        self.packet(false, |wire| other.ack(wire, one));
    }

    /// A SEND without an ACK, or with an RNR NAK.
    fn send_in_vain(&mut self, (one, other): &(WireQueuePair, WireQueuePair), is_refused: bool) {
        self.packet(false, |wire| one.clone().send(wire, &[0; 64]));
        if is_refused {
            self.packet(false, |wire| other.refuse(wire, one.psn, NOT_READY));
        }
        self.time_ns += TIMEOUT_NS;
    }
}

/// SENDs, one of which is sent `transmissions` times. Of every 40, the SEND with the number `lost` is
/// missing.
fn not_ready(points: usize, transmissions: u64, lost: Option<u64>, start_ns: i64) -> RepeatedCapture {
    let mut capture = RepeatedCapture::new(points, start_ns);
    let mut pair = WireQueuePair::pair((1, 16), (2, 17));
    for number in 0..SENDS {
        if number == REPEATED {
            (1..transmissions).for_each(|_| capture.send_in_vain(&pair, true));
        }
        capture.send(&mut pair, lost == Some(number % LOSS_DISTANCE));
    }
    capture
}

/// Checks that each direction has as many packets as were sent: the other SENDs, each once, and the
/// transmissions of the repeated one; and one ACK or RNR NAK for each of them.
fn check(profile: &Profile, transmissions: u64, case: &str) {
    let packets: Vec<u64> = data_connections(profile).map(|row| row.traffic.packets).collect();
    assert_eq!(packets, [SENDS - 1 + transmissions; 2], "{case}");
    let (_, retransmissions) = total(profile);
    assert_eq!(retransmissions.request_packets, transmissions - 1, "{case}");
    assert_eq!(retransmissions.acknowledge_packets, transmissions - 1, "{case}");
}

#[test]
fn a_request_that_is_sent_very_often_counts_each_time() {
    for transmissions in TRANSMISSIONS {
        for points in [1, 2] {
            let mut capture = not_ready(points, transmissions, None, START_NS);
            check(&profile(&[capture.wire.file()]), transmissions, &format!("{transmissions}, {points} points"));
        }
    }
}

/// Two captures, each of which misses five other SENDs.
#[test]
fn the_union_of_inputs_has_all_transmissions_of_a_request() {
    for transmissions in TRANSMISSIONS {
        for points in [1, 2] {
            let mut one = not_ready(points, transmissions, Some(7), START_NS);
            let mut other = not_ready(points, transmissions, Some(23), START_NS + 2 * STEP_NS);
            let found = profile(&[one.wire.file(), other.wire.file()]);
            check(&found, transmissions, &format!("{transmissions}, {points} points"));
        }
    }
}

#[test]
fn a_request_without_an_answer_shows_all_its_transmissions() {
    for transmissions in TRANSMISSIONS {
        for points in [1, 2] {
            let mut capture = RepeatedCapture::new(points, START_NS);
            let mut pair = WireQueuePair::pair((1, 16), (2, 17));
            (0..10).for_each(|_| capture.send(&mut pair, false));
            (0..transmissions).for_each(|_| capture.send_in_vain(&pair, false));
            let (health, retransmissions) = total(&profile(&[capture.wire.file()]));
            let found = (health.stalled_transmissions, retransmissions.request_packets);
            assert_eq!(found, (transmissions, transmissions - 1), "{transmissions}, {points} points");
        }
    }
}

/// Connections between two ports, each with a READ of 4 packets before the path MTU is known, so
/// that it counts as one packet, and a second READ after its responses.
#[test]
fn reads_before_the_path_mtu_is_known_are_explained_by_their_responses() {
    const CONNECTIONS: u32 = 3000;
    const BYTES: usize = 4096;
    let mut wire = WireBuilder::new();
    let mut pairs: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let (mut one, mut other) = WireQueuePair::pair((1, 100 + number), (2, 10_000 + number));
            (one.psn, one.mtu_bytes, other.mtu_bytes) = (number * 16, 1024, 1024);
            (one, other)
        })
        .collect();
    for round in 0..2 {
        for (one, _) in &mut pairs {
            one.read(&mut wire, 0, 1, BYTES);
        }
        for (one, other) in &mut pairs {
            other.read_response(&mut wire, one, &[round; BYTES]);
        }
    }
    let found = profile(&[wire.file()]);
    let packets: u64 = data_connections(&found).map(|row| row.traffic.packets).sum();
    assert_eq!(packets, u64::from(CONNECTIONS) * 2 * (1 + 4));
    let (health, _) = total(&found);
    assert_eq!((health.lost(), health.unobserved_psns), (0, 0));
    assert!(data_connections(&found).all(|row| row.coverage.state == CoverageState::Complete));
}
