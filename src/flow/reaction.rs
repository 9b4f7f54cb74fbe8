//! Measures how a sender reacts to a congestion notification: the gaps between its requests before
//! and after.
//!
//! A notification (CNP) names the queue pair that must slow down. The ACKs go to the same queue
//! pair. So the tracker looks up the connection of those ACKs, and `pairing` gives the connection
//! of the requests; nothing is measured while that connection is unknown.
//!
//! ```text
//! new requests   | | | | ... | |  CNP  |    |    |  ...  |
//!                |<- 16 gaps ->|<------- 16 gaps ------->|
//! ```
//! One measurement runs at a time: further notifications, and mirror copies of the first, belong to
//! it. Retransmitted requests do not count. READ responses slow down as well but are not measured.

use super::Tracker;
use crate::model::health::Reaction;
use crate::model::{ConnectionKey, PacketRecord, PacketRef};

/// Gaps between requests that are averaged, before and after each.
pub(super) const GAPS: u32 = 16;
/// Services with ACKs: RC and XRC.
const ACKNOWLEDGED: [u8; 2] = [0, 5];

/// A running measurement that waits for the requests after the notification.
#[derive(Clone, Debug)]
pub(super) struct ReactionMeasurement {
    /// Time of the last request before the notification.
    since_ns: i64,
    /// Mean gap before the notification.
    before_ns: u64,
    /// Number of requests to come.
    left: u32,
}

impl ReactionMeasurement {
    /// A measurement after a request at `since_ns`, the last of requests with [`GAPS`] gaps that
    /// took `before_ns` in all.
    pub(super) fn new(since_ns: i64, before_ns: i64) -> Self {
        Self { since_ns, before_ns: mean_ns(before_ns), left: GAPS }
    }

    /// Takes a new request. Returns true if it was the last one needed, and then adds the result to
    /// `sum`.
    pub(super) fn request(&mut self, time_ns: i64, sum: &mut Reaction) -> bool {
        self.left -= 1;
        let is_complete = self.left == 0;
        if is_complete {
            sum.count += 1;
            sum.before_ns = sum.before_ns.saturating_add(self.before_ns);
            sum.after_ns = sum.after_ns.saturating_add(mean_ns(time_ns.saturating_sub(self.since_ns)));
        }
        is_complete
    }
}

/// A negative time counts as 0: clocks may step back.
fn mean_ns(of_all_ns: i64) -> u64 {
    of_all_ns.max(0).cast_unsigned() / u64::from(GAPS)
}

impl Tracker {
    /// Takes a congestion notification.
    #[cold]
    pub(super) fn slow_down(&mut self, packet: PacketRef<'_>) {
        if packet.time_ns == PacketRecord::NO_TIME {
            return;
        }
        for service in ACKNOWLEDGED {
            let acks = ConnectionKey { service, ..*packet.key };
            let requests = self.find(&acks).and_then(|acks| self.pairing.partner(acks));
            if let Some(requests) = requests {
                self.health[requests as usize].congestion_notification(packet.time_ns);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::health::HealthTracker;
    use super::*;

    #[test]
    fn gaps_before_and_after_are_means() {
        let mut health = HealthTracker::default();
        let mut time_ns = 0;
        let mut number = 0;
        let mut send = |health: &mut HealthTracker, count: u32, gap_ns: i64| {
            for _ in 0..count {
                time_ns += gap_ns;
                number += 1;
                health.request(number, 1, 1, time_ns);
                // A retransmitted request does not count.
                health.request(number, 1, 2, time_ns);
            }
            time_ns
        };
        // Too few requests before it.
        let now_ns = send(&mut health, 16, 1000);
        health.congestion_notification(now_ns);
        send(&mut health, 16, 1000);
        assert_eq!(health.observed().reaction, Reaction::default());
        let now_ns = send(&mut health, 100, 500);
        health.congestion_notification(now_ns);
        let now_ns = send(&mut health, 8, 2000);
        // Belongs to the running measurement.
        health.congestion_notification(now_ns);
        send(&mut health, 100, 4000);
        // 16 gaps: 8 of 2000 ns, 8 of 4000 ns.
        assert_eq!(health.observed().reaction, Reaction { count: 1, before_ns: 500, after_ns: 3000 });
    }
}
