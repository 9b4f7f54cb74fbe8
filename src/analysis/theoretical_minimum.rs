//! Compares measured times with the theoretical minimum latency of links of a known speed.
//!
//! In: the key of a latency histogram and a [`FabricPath`]. Out: the minimum in nanoseconds. The
//! minimum counts only the bits that must pass a link and the switches that they must cross between
//! the two timestamps; adapters, memory, software and queues explain the time above the minimum.
//! Timestamps are taken at the end of a packet, and switches forward cut-through, so a packet that
//! is timestamped at two places took only the time of the switches between them. `h` is the number
//! of switches between the two ports, `s` the time of one switch, `t()` the time of packets on a
//! link:
//!
//! | interval | minimum |
//! |---|---|
//! | `acknowledged` | t(ACK) + 2 h s |
//! | `first_response` | t(first packet of the response) + 2 h s |
//! | `last_response` | t(all packets of the response) + 2 h s |
//! | `message` | t(all packets but the first) |
//! | `interval` | t(first packet of the later message) |
//! | `transit` | h s |
//! | `rendezvous_request` | t(first packet of the data) + 2 h s |
//! | `rendezvous_data` | t(all packets but the first) |
//! | `rendezvous_completion` | t(packet without payload), + 2 h s if the receiver sends it (data by READ) |
//! | `mpi_message` | t(all packets but the first) + h s |
//! | `set_up` | t(REP) + t(RTU) + 2 h s |
//! | `tear_down` | t(DREP) + 2 h s |
//!
//! The minimum is for the smallest message of a size class with the fewest headers: LRH, BTH, ICRC
//! and VCRC (26 bytes), or Ethernet, IPv4, UDP, BTH and ICRC (58 bytes; 70 for `RoCEv1` and IPv6),
//! and the extension headers of the operation. Ethernet preambles and gaps do not count. An
//! interval at the requester's port, which a sink of both ports records, includes the switches of
//! both directions. An interval at the responder's port does not: set the hops to 0 there.

use super::latency::LatencyKey;
use crate::model::link::Speed;
use crate::model::{Coverage, Histogram, Interval, Profile, TrafficKind, Verb};

/// LRH 8, BTH 12, ICRC 4, VCRC 2.
const NATIVE_BYTES: u64 = 26;
/// Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4.
const ROCE_V2_BYTES: u64 = 58;
/// Ethernet 14, GRH 40, BTH 12, ICRC 4: the fewest headers with 128-bit addresses.
const ROCE_V1_BYTES: u64 = 70;
/// Sizes of the extension headers.
const RETH_BYTES: u64 = 16;
const AETH_BYTES: u64 = 4;
const DETH_BYTES: u64 = 8;
const ATOMIC_ETH_BYTES: u64 = 28;
const ATOMIC_ACK_ETH_BYTES: u64 = 8;
/// Size of a management datagram.
const MAD_BYTES: u64 = 256;

/// The links and switches between two ports.
#[derive(Clone, Debug)]
pub struct FabricPath {
    /// Speed of the links, the same for all.
    pub speed: Speed,
    /// Number of switches.
    pub hops: u32,
    /// Latency of one switch in nanoseconds.
    pub switch_ns: u32,
    /// Path MTU.
    pub mtu_bytes: u32,
    /// Bytes of each packet other than extension headers and payload.
    pub header_bytes: u64,
    /// Largest difference between the clocks of the inputs, in nanoseconds: the error of an
    /// interval that ends in another input than it begins in.
    pub clocks_ns: u64,
}

/// The largest clock uncertainty of all inputs, in nanoseconds.
#[must_use]
pub fn clocks_ns(profile: &Profile) -> u64 {
    profile.inputs.iter().filter_map(|input| Some(input.clock.as_ref()?.uncertainty_ns)).max().unwrap_or(0)
}

/// The fewest bytes of headers and checksums around extension headers and payload in this traffic.
#[must_use]
pub fn header_bytes(profile: &Profile) -> u64 {
    let data = profile.connections.iter().filter(|connection| connection.kind == TrafficKind::Data);
    let around = data.map(|connection| match (connection.src.lid(), connection.src.ip()) {
        (Some(_), _) => NATIVE_BYTES,
        (_, Some(std::net::IpAddr::V4(_))) => ROCE_V2_BYTES,
        _ => ROCE_V1_BYTES,
    });
    around.min().unwrap_or(NATIVE_BYTES)
}

impl FabricPath {
    /// Bytes on the wire of one packet.
    const fn packet_bytes(&self, extension_bytes: u64, payload_bytes: u64) -> u64 {
        self.header_bytes + extension_bytes + payload_bytes.next_multiple_of(4)
    }

    /// Bytes on the wire of all packets of a message but the first.
    fn rest_bytes(&self, message_bytes: u64) -> u64 {
        let mtu = u64::from(self.mtu_bytes);
        match message_bytes.saturating_sub(mtu) {
            0 => 0,
            rest => (rest.div_ceil(mtu) - 1) * self.header_bytes + self.packet_bytes(0, rest),
        }
    }

    /// The theoretical minimum of the times with this key, in nanoseconds.
    #[must_use]
    pub fn minimum_ns(&self, key: &LatencyKey) -> f64 {
        let switches_ns = f64::from(self.hops) * f64::from(self.switch_ns);
        let mtu = u64::from(self.mtu_bytes);
        let least = key.from_bytes.unwrap_or(0);
        let verb = Verb::ALL.into_iter().find(|verb| verb.name() == key.verb);
        let interval = Interval::ALL.into_iter().find(|interval| interval.name() == key.interval);
        let mad = self.packet_bytes(DETH_BYTES, MAD_BYTES);
        let (bytes, ways) = match (interval, verb) {
            (Some(Interval::Acknowledged), _) => (self.packet_bytes(AETH_BYTES, 0), 2),
            (Some(Interval::FirstResponse | Interval::LastResponse), Some(Verb::Atomic)) => {
                (self.packet_bytes(AETH_BYTES + ATOMIC_ACK_ETH_BYTES, 0), 2)
            }
            (Some(Interval::FirstResponse), _) => (self.packet_bytes(AETH_BYTES, least.min(mtu)), 2),
            (Some(Interval::LastResponse), _) => {
                let packets = least.div_ceil(mtu).max(1);
                // The first and the last packet have an AETH; a single packet has one.
                let extensions = AETH_BYTES * packets.min(2);
                ((packets - 1) * self.header_bytes + self.packet_bytes(extensions, least), 2)
            }
            (Some(Interval::Message), _) => {
                // The interval exists only for messages of several packets.
                (self.rest_bytes(least.max(mtu + 1)), 0)
            }
            (Some(Interval::Interval), verb) => {
                let bytes = match verb {
                    Some(Verb::Write) => self.packet_bytes(RETH_BYTES, least.min(mtu)),
                    Some(Verb::Read) => self.packet_bytes(RETH_BYTES, 0),
                    Some(Verb::Atomic) => self.packet_bytes(ATOMIC_ETH_BYTES, 0),
                    Some(Verb::Datagram) => self.packet_bytes(DETH_BYTES, least.min(mtu)),
                    Some(Verb::Send) | None => self.packet_bytes(0, least.min(mtu)),
                };
                (bytes, 0)
            }
            (Some(Interval::Transit), _) => (0, 1),
            (Some(Interval::RendezvousRequest), _) => (self.packet_bytes(0, least.min(mtu)), 2),
            (Some(Interval::RendezvousData), _) => (self.rest_bytes(least), 0),
            (Some(Interval::RendezvousCompletion), verb) => {
                (self.packet_bytes(0, 0), if verb == Some(Verb::Read) { 2 } else { 0 })
            }
            (Some(Interval::MpiMessage), _) => (self.rest_bytes(least), 1),
            (Some(Interval::StorageCommand), _) => (self.packet_bytes(0, 0), 2),
            (None, _) if key.interval == "set_up" => (2 * mad, 2),
            (None, _) => (mad, 2),
        };
        self.speed.bytes_ns(bytes) + f64::from(ways) * switches_ns
    }

    /// The error of a time in nanoseconds: one clock tick, or the time that the largest burst of
    /// packets with one timestamp needs after its first packet; between inputs, also the clock
    /// difference.
    pub(crate) fn error_ns(&self, key: &LatencyKey, coverage: &Coverage) -> f64 {
        let goes_between =
            [Interval::Transit, Interval::MpiMessage].iter().any(|interval| interval.name() == key.interval);
        let between_ns = if goes_between { self.clocks_ns } else { 0 };
        (coverage.clock_ns.max(between_ns) as f64).max(self.burst_ns(coverage))
    }

    /// Transmission time of the largest burst of packets with one timestamp after its first packet.
    pub(crate) fn burst_ns(&self, coverage: &Coverage) -> f64 {
        self.speed.bytes_ns(coverage.same_time_longest_run_bytes)
    }

    /// The median as a multiple of the minimum; `None` if the minimum is 0.
    pub(crate) fn ratio(&self, key: &LatencyKey, times: &Histogram) -> Option<f64> {
        let minimum_ns = self.minimum_ns(key);
        (minimum_ns > 0.0).then(|| times.quantile(0.5) as f64 / minimum_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by hand at 100 Gbit/s, where a byte takes 0.08 ns.
    #[test]
    fn minimums_count_bits_and_switches() {
        let path = FabricPath {
            speed: "4x EDR".parse().expect("speed"),
            hops: 3,
            switch_ns: 100,
            mtu_bytes: 4096,
            header_bytes: NATIVE_BYTES,
            clocks_ns: 0,
        };
        let cases = [
            // 26 + 4; there and back through 3 switches.
            ("acknowledged", "SEND", Some(0), 30.0 * 0.08 + 600.0),
            ("acknowledged", "WRITE", Some(65536), 30.0 * 0.08 + 600.0),
            // 26 + 4 + 64, and 26 + 4 + 4096.
            ("first_response", "READ", Some(64), 94.0 * 0.08 + 600.0),
            ("first_response", "READ", Some(65536), 4126.0 * 0.08 + 600.0),
            // 16 packets: 16 * (26 + 4096) + 2 * 4.
            ("last_response", "READ", Some(65536), 65960.0 * 0.08 + 600.0),
            // 2 is padded to 4.
            ("last_response", "READ", Some(2), 34.0 * 0.08 + 600.0),
            ("last_response", "ATOMIC", Some(8), 38.0 * 0.08 + 600.0),
            // 15 of the 16 packets; one byte more than a packet: 26 + 4.
            ("message", "WRITE", Some(65536), 15.0 * 4122.0 * 0.08),
            ("message", "SEND", Some(4096), 30.0 * 0.08),
            ("interval", "SEND", Some(64), 90.0 * 0.08),
            ("interval", "WRITE", Some(4096), 4138.0 * 0.08),
            ("interval", "READ", Some(1 << 20), 42.0 * 0.08),
            ("interval", "ATOMIC", Some(8), 54.0 * 0.08),
            ("interval", "DATAGRAM", Some(1024), 1058.0 * 0.08),
            ("transit", "SEND", Some(1024), 300.0),
            // 26 + 8 + 256.
            ("set_up", "", None, 580.0 * 0.08 + 600.0),
            ("tear_down", "", None, 290.0 * 0.08 + 600.0),
        ];
        for (interval, verb, from_bytes, expected) in cases {
            let key = LatencyKey { interval, verb, from_bytes, pair: None };
            let minimum_ns = path.minimum_ns(&key);
            assert!((minimum_ns - expected).abs() < 1e-6, "{key:?}: {minimum_ns}, not {expected}");
        }
        // A clock tick of a microsecond, and clocks known to 3 us: an interval that ends at another
        // port may end in another input.
        let path = FabricPath { clocks_ns: 3000, ..path };
        let coverage = Coverage { clock_ns: 1000, ..Coverage::default() };
        for interval in super::super::latency::INTERVALS {
            let key = LatencyKey { interval, verb: "SEND", from_bytes: Some(64), pair: None };
            let expected = if ["transit", "mpi_message"].contains(&interval) { 3000.0 } else { 1000.0 };
            assert!((path.error_ns(&key, &coverage) - expected).abs() < 1e-6, "{interval}");
        }
    }
}
