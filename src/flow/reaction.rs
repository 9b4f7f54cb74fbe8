//! What a notification of congestion does to the sender: how far apart its requests are before it and after.
//!
//! A notification (CNP) names the queue pair that is to slow down, which is the one that ACKs go to. So the connection of those ACKs is looked up,
//! and `pairing` tells which requests they answer; as long as that is not clear, nothing is measured.
//!
//! ```text
//! new requests   | | | | ... | |  CNP  |    |    |  ...  |
//!                |<- 16 gaps ->|<------- 16 gaps ------->|
//! ```
//! One measurement runs at a time: notifications that come while it does (and the second copies at a sink) belong to it. Requests that are sent
//! again do not count. Answers with data to READs slow down as well, and are not measured.

use super::Tracker;
use crate::model::health::Reaction;
use crate::model::{ConnectionKey, Packet, PacketRecord};

/// Gaps between requests that are averaged, before and after.
pub(super) const GAPS: u32 = 16;
/// Services with ACKs: RC and XRC.
const ACKNOWLEDGED: [u8; 2] = [0, 5];

/// A measurement that waits for the requests after the notification.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// Time of the last request before it.
    since_ns: i64,
    /// Mean gap before it.
    before_ns: u64,
    /// Requests still to come.
    left: u32,
}

impl Running {
    /// After a request at `since_ns`, the last of a row that took `before_ns` for [`GAPS`] gaps.
    pub(super) fn new(since_ns: i64, before_ns: i64) -> Self {
        Self { since_ns, before_ns: mean_ns(before_ns), left: GAPS }
    }

    /// A new request. True once it was the last that is needed, and then it is added to the sum.
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

/// Clocks may step back.
fn mean_ns(of_all_ns: i64) -> u64 {
    of_all_ns.max(0).cast_unsigned() / u64::from(GAPS)
}

impl Tracker {
    /// A notification of congestion.
    #[cold]
    pub(super) fn slow_down(&mut self, packet: Packet<'_>) {
        if packet.time_ns == PacketRecord::NO_TIME {
            return;
        }
        for service in ACKNOWLEDGED {
            let acks = ConnectionKey { service, ..*packet.key };
            let requests = self.find(&acks).and_then(|acks| self.pairing.partner(acks));
            if let Some(requests) = requests {
                self.health[requests as usize].notified(packet.time_ns);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::health::Health;
    use super::*;

    #[test]
    fn gaps_before_and_after_are_means() {
        let mut health = Health::default();
        let mut time_ns = 0;
        let mut number = 0;
        let mut send = |health: &mut Health, count: u32, gap_ns: i64| {
            for _ in 0..count {
                time_ns += gap_ns;
                number += 1;
                health.request(number, 1, 1, time_ns);
                // Sent again, a request says nothing.
                health.request(number, 1, 2, time_ns);
            }
            time_ns
        };
        // Too few before.
        let now_ns = send(&mut health, 16, 1000);
        health.notified(now_ns);
        send(&mut health, 16, 1000);
        assert_eq!(health.observed().reaction, Reaction::default());
        let now_ns = send(&mut health, 100, 500);
        health.notified(now_ns);
        let now_ns = send(&mut health, 8, 2000);
        // Belongs to the one before.
        health.notified(now_ns);
        send(&mut health, 100, 4000);
        // 16 gaps: 8 of 2000, 8 of 4000.
        assert_eq!(health.observed().reaction, Reaction { count: 1, before_ns: 500, after_ns: 3000 });
    }
}
