//! Chooses the inputs that count for a connection that several inputs observed.
//!
//! In: one [`ObservationPoint`] per input. Out: the inputs that count, and the packets that the
//! others miss. Invariant: inputs that count do not overlap in time.
//!
//! Inputs that overlap in time observed the same packets at different places (the sender's and the
//! receiver's port, two sinks), so only one of them may count. Inputs that follow each other (a
//! rotated capture) observed different packets, so all of them count. Of all sets of inputs that do
//! not overlap, the one with the most packets counts; on a tie the one with the fewest packets whose
//! headers are truncated, then the one that observed both ports, then the one that observed the
//! connection first (the sender's port), then the one given first.

use std::cmp::Reverse;

/// A connection as one input observed it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservationPoint {
    /// Index of the input.
    pub(super) input: usize,
    /// Time of the first and last record of the whole input, nanoseconds since the epoch.
    pub(super) input_times_ns: (i64, i64),
    /// Transmissions of the connection in this input.
    pub(super) packets: u64,
    /// Packets that may belong to a message, and were captured too short to show it.
    pub(super) truncated_packets: u64,
    /// True if the input holds both mirror copies of each packet.
    pub(super) observed_twice: bool,
    /// Time of the connection's first packet in this input.
    pub(super) first_time_ns: i64,
    /// It is the union of several inputs.
    pub(super) is_union: bool,
}

/// A set of inputs that may count together: their packets, and the first time of any.
#[derive(Clone, Debug)]
struct PointSet {
    packets: u64,
    truncated_packets: u64,
    /// Of `packets`, those observed twice.
    observed_twice_packets: u64,
    first_time_ns: i64,
    inputs: Vec<usize>,
}

impl PointSet {
    fn with(&self, point: &ObservationPoint) -> Self {
        let mut inputs = self.inputs.clone();
        inputs.push(point.input);
        Self {
            packets: self.packets + point.packets,
            truncated_packets: self.truncated_packets + point.truncated_packets,
            observed_twice_packets: self.observed_twice_packets + if point.observed_twice { point.packets } else { 0 },
            first_time_ns: self.first_time_ns.min(point.first_time_ns),
            inputs,
        }
    }

    fn preference(&self) -> impl Ord + use<> {
        let Self { packets, truncated_packets, observed_twice_packets, first_time_ns, ref inputs } = *self;
        (packets, Reverse(truncated_packets), observed_twice_packets, Reverse(first_time_ns), Reverse(inputs.clone()))
    }
}

/// The inputs that count, in the order of time.
pub(super) fn choose(mut points: Vec<ObservationPoint>) -> Vec<usize> {
    points.sort_by_key(|point| (point.input_times_ns.1, point.input_times_ns.0, point.input));
    // best[n]: the best set among the first n points.
    let mut best = vec![PointSet {
        packets: 0,
        truncated_packets: 0,
        observed_twice_packets: 0,
        first_time_ns: i64::MAX,
        inputs: Vec::new(),
    }];
    for (index, point) in points.iter().enumerate() {
        let before = points[..index].partition_point(|other| other.input_times_ns.1 <= point.input_times_ns.0);
        let with = best[before].with(point);
        let without = &best[index];
        let next = if with.preference() > without.preference() { with } else { without.clone() };
        best.push(next);
    }
    best.pop().map(|set| set.inputs).unwrap_or_default()
}

/// True if two spans of time overlap; spans that touch follow each other.
pub(super) const fn overlap(one: (i64, i64), other: (i64, i64)) -> bool {
    one.0 < other.1 && other.0 < one.1
}

/// True if two captures hold a connection at the same time, so each is that of another port. A union is none.
pub(super) fn captures_overlap(points: &[ObservationPoint]) -> bool {
    let captures = || points.iter().filter(|point| !point.is_union);
    let overlaps = |(index, point): (usize, &ObservationPoint)| {
        captures().skip(index + 1).any(|other| overlap(point.input_times_ns, other.input_times_ns))
    };
    captures().enumerate().any(overlaps)
}

/// For each input that does not count, the packets of overlapping inputs that count and that it
/// misses, including those before it began or after it ended.
pub(super) fn missing_packets(points: &[ObservationPoint], chosen: &[usize]) -> Vec<(usize, u64)> {
    let counts = |point: &&ObservationPoint| chosen.contains(&point.input);
    let overlap = |one: &ObservationPoint, other: &ObservationPoint| overlap(one.input_times_ns, other.input_times_ns);
    let missing = |point: &ObservationPoint| {
        let counted: u64 =
            points.iter().filter(counts).filter(|other| overlap(point, other)).map(|other| other.packets).sum();
        (point.input, counted.saturating_sub(point.packets))
    };
    points.iter().filter(|point| !counts(point)).map(missing).filter(|(_, packets)| *packets > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(input: usize, times: (i64, i64), packets: u64, first_time_ns: i64) -> ObservationPoint {
        ObservationPoint {
            input,
            input_times_ns: times,
            packets,
            truncated_packets: 0,
            observed_twice: false,
            first_time_ns,
            is_union: false,
        }
    }

    #[test]
    fn of_two_ports_the_more_complete_counts() {
        assert_eq!(choose(vec![point(0, (0, 100), 9, 10), point(1, (5, 95), 10, 11)]), [1]);
        assert_eq!(choose(vec![point(0, (0, 100), 10, 10), point(1, (5, 95), 9, 11)]), [0]);
    }

    #[test]
    fn on_a_tie_the_port_that_saw_it_first_counts() {
        assert_eq!(choose(vec![point(0, (0, 100), 10, 12), point(1, (5, 105), 10, 11)]), [1]);
        assert_eq!(choose(vec![point(1, (0, 100), 10, 11), point(0, (0, 100), 10, 11)]), [0]);
    }

    #[test]
    fn on_a_tie_the_sink_of_both_ports_counts() {
        let sink = ObservationPoint { observed_twice: true, ..point(1, (0, 100), 10, 12) };
        assert_eq!(choose(vec![point(0, (0, 100), 10, 11), sink]), [1]);
        assert_eq!(choose(vec![point(0, (0, 100), 11, 11), sink]), [0]);
    }

    #[test]
    fn on_a_tie_the_input_with_whole_headers_counts() {
        let truncated = ObservationPoint { truncated_packets: 3, ..point(0, (0, 100), 10, 10) };
        assert_eq!(choose(vec![truncated, point(1, (0, 100), 10, 11)]), [1]);
        assert_eq!(choose(vec![truncated, point(1, (0, 100), 9, 11)]), [0]);
    }

    #[test]
    fn the_less_complete_input_misses_the_difference() {
        let views = [point(0, (0, 100), 9, 10), point(1, (5, 95), 10, 11), point(2, (200, 300), 1, 200)];
        assert_eq!(choose(views.to_vec()), [1, 2]);
        assert_eq!(missing_packets(&views, &[1, 2]), [(0, 1)]);
    }

    #[test]
    fn captures_of_two_ports_overlap_and_parts_of_one_do_not() {
        let (first, later, second) =
            (point(0, (0, 100), 9, 1), point(1, (100, 200), 9, 101), point(2, (50, 150), 9, 51));
        let union = ObservationPoint { is_union: true, ..second };
        assert!(
            !captures_overlap(&[first]) && !captures_overlap(&[first, later]) && !captures_overlap(&[first, union])
        );
        assert!(captures_overlap(&[first, later, second]) && captures_overlap(&[union, second, later]));
    }

    #[test]
    fn rotated_files_add_up() {
        let points = vec![point(2, (200, 300), 3, 200), point(0, (0, 100), 5, 0), point(1, (100, 200), 4, 100)];
        assert_eq!(choose(points), [0, 1, 2]);
    }

    #[test]
    fn rotated_files_of_two_sinks_count_once() {
        let first = [point(0, (0, 100), 5, 1), point(1, (100, 200), 5, 101)];
        let second = [point(2, (0, 110), 5, 2), point(3, (110, 200), 4, 111)];
        assert_eq!(choose([first, second].concat()), [0, 1]);
    }

    #[test]
    fn a_packet_at_a_file_s_only_instant_is_no_overlap_with_itself() {
        assert_eq!(choose(vec![point(0, (7, 7), 1, 7)]), [0]);
    }
}
