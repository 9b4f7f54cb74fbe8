//! What of a capture was understood, and what was not: goes with every result.

use super::Stamps;
use ibscope_parsers::Layer;
use ibscope_parsers::frame::Statistics;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Counts over the records of one input or of all. `records = infiniband + other_frames + undecoded`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Coverage {
    /// Packet records read.
    pub records: u64,
    /// InfiniBand packets among them: a BTH was read.
    pub infiniband: u64,
    /// Frames that are no InfiniBand, by what they are (`TCP`, `ARP`, `UDP port 53` ...).
    pub other_frames: BTreeMap<String, u64>,
    /// Records that could not be decoded, by layer and reason.
    pub undecoded: BTreeMap<String, u64>,
    /// Records outside `--from` and `--to`; they are in none of the sums above but `records`.
    pub outside_window: u64,
    /// InfiniBand packets of which not all bytes were captured.
    pub truncated: u64,
    /// Packets with an opcode that the specification does not define.
    pub unknown_opcode: u64,
    /// Records whose time lies before that of the record before them.
    pub time_backwards: u64,
    /// Records without a time (pcapng simple packets): in the matrix, not in the timeline.
    pub without_time: u64,
    /// Packets whose ICRC was computed and fits.
    pub icrc_ok: u64,
    /// Packets whose ICRC was computed and does not fit.
    pub icrc_bad: u64,
    /// Native packets whose VCRC was computed and fits. 0 of both where an input does not keep it: most do not fit then.
    #[serde(default)]
    pub vcrc_ok: u64,
    /// Native packets whose VCRC was computed and does not fit.
    #[serde(default)]
    pub vcrc_bad: u64,
    /// Packets that the capturing interfaces say they dropped (pcapng interface statistics).
    pub interface_drops: u64,
    /// Second copies of packets that passed two observation points of one file.
    pub mirror_copies: u64,
    /// Connections whose window of sequence numbers overflowed: repeats older than the window were not recognised.
    pub window_overflows: u64,
    /// MPI messages whose start was seen and whose end was not.
    pub mpi_incomplete: u64,
    /// MPI messages of which the capture holds the sender's rank and not the tag or the length (snap length): in no MPI column.
    #[serde(default)]
    pub mpi_cut: u64,
    /// Transport messages of which packets are missing: they were never captured, or the capture began or ended in between.
    #[serde(default)]
    pub messages_with_gaps: u64,
    /// Those of them whose first packet is missing: an envelope that stood in it was not seen.
    #[serde(default)]
    pub messages_without_start: u64,
    /// Messages that were given up before their end because too many were open at a time.
    #[serde(default)]
    pub messages_evicted: u64,
    /// Pause and PFC frames by the sender's MAC address and kind (`02:00:00:00:00:01 PFC`); in `other_frames` they are flow control.
    #[serde(default)]
    pub pause_frames: BTreeMap<String, u64>,
    /// What they ask for, by sender, kind and, for PFC, class (`02:00:00:00:00:01 PFC class 3`).
    #[serde(default)]
    pub pauses: BTreeMap<String, Pauses>,
    /// Packets of connections that came when an input had as many as are followed: in no table. `--max-connections` says how many.
    #[serde(default)]
    pub not_followed: u64,
    /// Wire-up messages and introductions of processes that were counted and not kept: ranks may be unknown for want of them.
    #[serde(default)]
    pub introductions_left_out: u64,
    /// Pause frames of senders beyond those that are told apart: in neither of the two tables of pause frames.
    #[serde(default)]
    pub pause_frames_left_out: u64,
    /// Interface statistics of interfaces beyond those that are told apart: what these have dropped is not counted.
    #[serde(default)]
    pub statistics_left_out: u64,
    /// Packets that a file before this one in the same stream holds as well, with the same time: they count there alone.
    #[serde(default)]
    pub shared_packets: u64,
    /// Packets that a later file of the same stream may hold as well, and that were not remembered: they may count twice.
    #[serde(default)]
    pub seam_left_out: u64,
    /// Packets of connections seen here that this input lacks and another one, which overlaps it in time and counts instead, has.
    #[serde(default)]
    pub missing_packets: u64,
    /// Packets to queue pairs 0 and 1.
    pub management: u64,
    /// Packets from or to multicast and permissive addresses.
    pub multicast: u64,
    /// Tick of the capture's clock in nanoseconds, the longest of all interfaces.
    #[serde(default)]
    pub clock_ns: u64,
    /// Records with the same time as the one before them: the clock is coarse, or packets are stamped when they are polled for.
    #[serde(default)]
    pub same_time: u64,
    /// Most records in a row with one time.
    #[serde(default)]
    pub same_time_most: u64,
    /// Most bytes that records in a row with one time have behind the first of them.
    #[serde(default)]
    pub same_time_most_bytes: u64,
    /// Smallest record time in nanoseconds since the epoch.
    pub first_time_ns: Option<i64>,
    /// Largest record time in nanoseconds since the epoch.
    pub last_time_ns: Option<i64>,
}

/// What one sender of pause frames asks for, of all its traffic or of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pauses {
    /// Frames that ask for a pause.
    pub pauses: u64,
    /// Frames that end one (0 quanta).
    pub resumes: u64,
    /// The longest pause asked for, in quanta: the time of 512 bits on the link.
    pub longest_quanta: u64,
    /// Sum of the pauses asked for. A frame renews the pause before it, so it is an upper bound of the time that was paused.
    pub quanta: u64,
}

impl Pauses {
    /// Bits that a link sends in one quantum.
    pub const QUANTUM_BITS: u64 = 512;

    /// Adds a frame.
    pub fn add(&mut self, quanta: u16) {
        let quanta = u64::from(quanta);
        self.pauses += u64::from(quanta > 0);
        self.resumes += u64::from(quanta == 0);
        self.longest_quanta = self.longest_quanta.max(quanta);
        self.quanta += quanta;
    }

    fn merge(&mut self, other: &Self) {
        self.pauses += other.pauses;
        self.resumes += other.resumes;
        self.longest_quanta = self.longest_quanta.max(other.longest_quanta);
        self.quanta = self.quanta.saturating_add(other.quanta);
    }
}

/// Senders of pause frames that are told apart: those whose names come first, so that it does not depend on the order in
/// which they are met. A link has two.
const MAX_PAUSE_SENDERS: usize = 1 << 10;

impl Coverage {
    /// Leaves out senders of pause frames beyond those that are told apart, and counts their frames. A broken capture may have any number of them.
    pub fn bound_pauses(&mut self) {
        while self.pause_frames.len() > MAX_PAUSE_SENDERS {
            let Some((sender, frames)) = self.pause_frames.pop_last() else { return };
            self.pause_frames_left_out += frames;
            // Its classes stand behind its name, and no other name begins with that.
            let next = |pauses: &BTreeMap<String, Pauses>| Some(pauses.range(sender.clone()..).next()?.0.clone());
            while let Some(class) = next(&self.pauses).filter(|class| class.starts_with(&sender)) {
                self.pauses.remove(&class);
            }
        }
    }

    /// Adds the counts of another part of the same input, or of another input.
    pub fn merge(&mut self, other: &Self) {
        self.records += other.records;
        self.infiniband += other.infiniband;
        for (into, from) in [
            (&mut self.other_frames, &other.other_frames),
            (&mut self.undecoded, &other.undecoded),
            (&mut self.pause_frames, &other.pause_frames),
        ] {
            for (name, count) in from {
                *into.entry(name.clone()).or_default() += count;
            }
        }
        for (what, pauses) in &other.pauses {
            self.pauses.entry(what.clone()).or_default().merge(pauses);
        }
        self.pause_frames_left_out += other.pause_frames_left_out;
        self.bound_pauses();
        self.outside_window += other.outside_window;
        self.truncated += other.truncated;
        self.unknown_opcode += other.unknown_opcode;
        self.time_backwards += other.time_backwards;
        self.without_time += other.without_time;
        self.icrc_ok += other.icrc_ok;
        self.icrc_bad += other.icrc_bad;
        self.vcrc_ok += other.vcrc_ok;
        self.vcrc_bad += other.vcrc_bad;
        self.interface_drops += other.interface_drops;
        self.mirror_copies += other.mirror_copies;
        self.window_overflows += other.window_overflows;
        self.mpi_incomplete += other.mpi_incomplete;
        self.mpi_cut += other.mpi_cut;
        self.messages_with_gaps += other.messages_with_gaps;
        self.messages_without_start += other.messages_without_start;
        self.messages_evicted += other.messages_evicted;
        self.not_followed += other.not_followed;
        self.introductions_left_out += other.introductions_left_out;
        self.statistics_left_out += other.statistics_left_out;
        self.shared_packets += other.shared_packets;
        self.seam_left_out += other.seam_left_out;
        self.missing_packets += other.missing_packets;
        self.management += other.management;
        self.multicast += other.multicast;
        self.clock_ns = self.clock_ns.max(other.clock_ns);
        self.same_time += other.same_time;
        self.same_time_most = self.same_time_most.max(other.same_time_most);
        self.same_time_most_bytes = self.same_time_most_bytes.max(other.same_time_most_bytes);
        self.first_time_ns = [self.first_time_ns, other.first_time_ns].into_iter().flatten().min();
        self.last_time_ns = [self.last_time_ns, other.last_time_ns].into_iter().flatten().max();
    }

    /// Records that are no InfiniBand.
    #[must_use]
    pub fn other(&self) -> u64 {
        self.other_frames.values().sum()
    }

    /// Records that could not be decoded.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.undecoded.values().sum()
    }

    /// Share of the records that were understood (InfiniBand or known to be something else), in percent.
    #[must_use]
    pub fn decoded_percent(&self) -> f64 {
        if self.records == 0 {
            return 100.0;
        }
        (self.records - self.failed()) as f64 * 100.0 / self.records as f64
    }
}

/// Counts of one batch, cheap to add to; becomes [`Coverage`] when the batch is done.
#[derive(Clone, Debug, Default)]
pub struct BatchCounts {
    /// The counts that need no name.
    pub counts: Coverage,
    /// Other frames by kind.
    pub other: BTreeMap<ibscope_parsers::link::NotInfiniband, u64>,
    /// Undecoded records by layer and whether they were cut short.
    pub failed: BTreeMap<(Layer, bool), u64>,
    /// Interface statistics met, in order.
    pub statistics: Vec<Statistics>,
    /// Time of the first and of the last record that has one.
    pub times_ns: Option<(i64, i64)>,
    /// Records with the same time.
    pub stamps: Stamps,
}

impl BatchCounts {
    /// The counts with names.
    #[must_use]
    pub fn into_coverage(self) -> Coverage {
        let mut coverage = self.counts;
        for (what, count) in self.other {
            *coverage.other_frames.entry(what.to_string()).or_default() += count;
        }
        for ((layer, cut), count) in self.failed {
            let why = if cut { "cut short" } else { "not valid" };
            *coverage.undecoded.entry(format!("{layer} {why}")).or_default() += count;
        }
        coverage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sender may pause so many classes.
    const CLASSES: usize = 8;

    /// Of a sender that is left out no class is left in the other table.
    #[test]
    fn both_tables_of_pauses_leave_out_the_same_senders() {
        for senders in [MAX_PAUSE_SENDERS, MAX_PAUSE_SENDERS + 1] {
            let mut coverage = Coverage::default();
            for sender in 0..senders {
                coverage.pause_frames.insert(format!("{sender:05} PFC"), 3);
                coverage.pauses.entry(format!("{sender:05} PFC class 0")).or_default().add(7);
            }
            coverage.bound_pauses();
            assert_eq!((coverage.pause_frames.len(), coverage.pauses.len()), (MAX_PAUSE_SENDERS, MAX_PAUSE_SENDERS));
            assert_eq!(coverage.pause_frames_left_out, 3 * (senders - MAX_PAUSE_SENDERS) as u64);
        }
    }

    #[test]
    fn senders_of_pauses_are_bounded_in_any_order() {
        let of = |senders: &mut dyn Iterator<Item = usize>| {
            let mut sum = Coverage::default();
            for sender in senders {
                let mut one = Coverage::default();
                one.pause_frames.insert(format!("{sender:05} PFC"), 1);
                (0..CLASSES)
                    .for_each(|class| one.pauses.entry(format!("{sender:05} PFC class {class}")).or_default().add(7));
                sum.merge(&one);
            }
            sum
        };
        let forwards = of(&mut (0..3000).chain(0..10));
        assert_eq!(
            (forwards.pause_frames.len(), forwards.pauses.len()),
            (MAX_PAUSE_SENDERS, MAX_PAUSE_SENDERS * CLASSES)
        );
        assert_eq!((forwards.pause_frames["00003 PFC"], forwards.pauses["00003 PFC class 0"].pauses), (2, 2));
        assert_eq!(of(&mut (0..10).chain((0..3000).rev())), forwards);
    }
}
