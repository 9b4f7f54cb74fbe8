//! Loss and retransmission, checked by a walk that keeps the state of each connection.

use std::collections::HashMap;

use super::{WalkedPacket, be24, options, sums, walk, write};
use crate::{SampleFraming, SampleKind, SampleOptions, SampleStack};

/// Packets per million that the receiver loses.
const LOSS_PPM: u32 = 20_000;

fn lossy() -> impl Iterator<Item = SampleOptions> {
    let of_framing = |framing| {
        let kinds = [
            (SampleKind::Small, SampleStack::None),
            (SampleKind::Small, SampleStack::Ob1),
            (SampleKind::Big, SampleStack::None),
            (SampleKind::Big, SampleStack::Ucx),
        ];
        kinds.map(|(kind, stack)| SampleOptions {
            loss_ppm: LOSS_PPM,
            stack,
            bytes: 4 << 20,
            ..options(framing, kind, 1)
        })
    };
    [SampleFraming::Native, SampleFraming::Roce].into_iter().flat_map(of_framing)
}

/// True if the 24-bit `psn` comes after `other`.
fn after(psn: u32, other: u32) -> bool {
    (1..1 << 23).contains(&(psn.wrapping_sub(other) & 0xFF_FFFF))
}

/// Go-back-N: the PSNs of a queue pair rise by one, or step back and then rise by one again to the
/// highest and beyond. Packets that were sent before are retransmissions and add to packets and
/// wire bytes only.
#[test]
fn totals_count_retransmissions() {
    for options in lossy() {
        let (file, totals) = write(&options);
        let seen = walk(options.framing, &file);
        // Per queue pair: the last PSN and the highest one.
        let mut sent: HashMap<(u16, u16, u32), (u32, u32)> = HashMap::new();
        let (mut once, mut retransmitted, mut steps_back, mut requests) =
            (Vec::<WalkedPacket>::new(), Vec::<WalkedPacket>::new(), 0, 0);
        for packet in &seen {
            if matches!(packet.opcode(), 0x11 | 0x64) {
                once.push(packet.clone());
                continue;
            }
            requests += 1;
            let psn = packet.psn();
            let (last, highest) =
                sent.entry(packet.flow()).or_insert((psn.wrapping_sub(1) & 0xFF_FFFF, psn.wrapping_sub(1) & 0xFF_FFFF));
            if psn != (*last + 1) & 0xFF_FFFF {
                assert!(!after(psn, *highest), "a gap");
                steps_back += 1;
            } else if *last == *highest {
                *highest = psn;
                once.push(packet.clone());
                *last = psn;
                continue;
            }
            retransmitted.push(packet.clone());
            *last = psn;
        }
        assert!(sent.values().all(|(last, highest)| last == highest), "a tail was not retransmitted");
        let mut expected = sums(&once);
        for (key, pair) in sums(&retransmitted) {
            let total = expected.entry(key).or_default();
            total.packets += pair.packets;
            total.wire_bytes += pair.wire_bytes;
            total.retransmissions += pair.packets;
        }
        let mut known = totals.pairs.clone();
        known.values_mut().for_each(|pair| (pair.mpi_messages, pair.mpi_bytes) = (0, 0));
        assert_eq!(expected, known, "{options:?}");
        // One request in fifty is lost. Each loss causes one step back, unless another loss in the
        // same window hides it.
        let due = f64::from(requests) * f64::from(LOSS_PPM) / 1e6;
        assert!((0.6..1.2).contains(&(f64::from(steps_back) / due)), "{steps_back} of {due} for {options:?}");
    }
}

/// A NAK carries the PSN that some queue pair sends next towards its sender, and the MSN of the
/// ACKs around it.
#[test]
fn naks_carry_the_psn_that_is_sent_next() {
    for options in lossy() {
        let seen = walk(options.framing, &write(&options).0);
        let mut naks = 0;
        for (index, nak) in
            seen.iter().enumerate().filter(|(_, packet)| packet.opcode() == 0x11 && packet.transport[12] == 0x60)
        {
            naks += 1;
            let is_answer =
                |packet: &&WalkedPacket| (packet.src, packet.dst, packet.psn()) == (nak.dst, nak.src, nak.psn());
            let sent_before = seen[..index].iter().rev().filter(|packet| packet.opcode() != 0x11).find(is_answer);
            let sent_again = seen[index..].iter().filter(|packet| packet.opcode() != 0x11).find(is_answer);
            let (before, again) =
                (sent_before.expect("a NAK for a PSN that was not sent"), sent_again.expect("never retransmitted"));
            assert_eq!((before.flow(), before.payload()), (again.flow(), again.payload()));
            // Later ACKs to the same queue pair count at least as many messages.
            let msn = be24(&nak.transport[13..]);
            let next = seen[index + 1..].iter().find(|packet| packet.opcode() == 0x11 && packet.flow() == nak.flow());
            assert!(!after(msn, be24(&next.expect("never acknowledged").transport[13..])));
        }
        assert!(naks > 0, "{naks} for {options:?}");
    }
}

#[test]
fn without_loss_nothing_is_retransmitted_and_half_may_be_lost() {
    let good = options(SampleFraming::Native, SampleKind::Small, 1);
    assert!(write(&good).1.pairs.values().all(|pair| pair.retransmissions == 0));
    let (_, totals) = write(&SampleOptions { loss_ppm: SampleOptions::MAX_LOSS_PPM, ..good });
    let sum = |of: fn(&crate::PairTotals) -> u64| totals.pairs.values().map(of).sum::<u64>();
    // Each packet is lost every second time, and those after it are retransmitted with it.
    assert!(sum(|pair| pair.retransmissions) > sum(|pair| pair.messages));
}
