//! The bin widths of the profile's two time series of traffic: that of connections, and that of
//! senders.
//!
//! In: the combined sums in the bins that they were kept in. Out: the width of each series. A capture
//! of a thousand endpoints has so many connections that their rows fit only in wide bins, while its
//! senders fit in narrow ones. Invariant: the widths depend on the sums alone, so a merge chooses those
//! of one analysis.

use crate::model::profile::{TimelineRow, Traffic};
use crate::model::{ConnectionClass, ConnectionTotals, Profile, QueuePair, RankIndex, TrafficKind, duration};
use crate::ranks::{QueuePairPartners, ResolvedRanks};
use ibscope_parsers::Endpoint;
use rayon::prelude::*;
use std::collections::BTreeMap;

/// Doublings of the bin width that are considered.
const SHIFTS: u32 = 63;

/// Connections that the series of senders adds up.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SenderGroup {
    endpoint: Endpoint,
    rank: Option<u32>,
    job: Option<u32>,
    class: ConnectionClass,
    has_mpi: bool,
}

/// The widths of both series, as doublings of the width in which the sums were kept.
pub(super) struct SeriesPlan {
    pub(super) connections: u32,
    /// `None` if the series of connections has bins as narrow.
    pub(super) senders: Option<u32>,
    /// By connection: the first connection of its group; `None` if it has no data.
    pub(super) group_of: Vec<Option<u32>>,
    /// Rows of the series of connections.
    pub(super) rows: usize,
    has_fitted: bool,
}

impl SeriesPlan {
    /// Chooses the narrowest bins with which each series has at most `max_rows` rows. `profile` has
    /// its jobs and ranks.
    pub(super) fn new(
        profile: &Profile,
        connections: &[Box<ConnectionTotals>],
        (identified, paired): (&ResolvedRanks, &QueuePairPartners),
        max_rows: usize,
    ) -> Self {
        let [mut pairs, mut senders] = [RowCounts::default(), RowCounts::default()];
        let mut group_of = Vec::new();
        if profile.bin_ns > 0 {
            let grouping = Grouping { ranks: RankIndex::of(profile), identified, paired };
            let numbered: Vec<(usize, &ConnectionTotals)> = connections.iter().map(|own| &**own).enumerate().collect();
            // Connections are sorted by sender, so each group lies within one part.
            let parts: Vec<&[(usize, &ConnectionTotals)]> =
                numbered.chunk_by(|(_, a), (_, b)| a.key.src == b.key.src).collect();
            let grouped = |part: &[(usize, &ConnectionTotals)]| {
                let groups = grouping.groups(part);
                (count(part, &groups), groups)
            };
            let counts: Vec<([RowCounts; 2], Vec<Option<u32>>)> = parts.into_par_iter().map(grouped).collect();
            for ([own_pairs, own_senders], mut groups) in counts {
                pairs.add(&own_pairs);
                senders.add(&own_senders);
                group_of.append(&mut groups);
            }
        }
        let (connections, has_fitted) = pairs.shift(max_rows);
        let (of_senders, _) = senders.shift(max_rows);
        let rows = pairs.rows(connections) as usize;
        Self { connections, senders: (of_senders < connections).then_some(of_senders), group_of, rows, has_fitted }
    }

    /// The note on wider bins and on more rows than `max_rows`; `first_ns` is the requested
    /// width.
    pub(super) fn note(&self, profile: &Profile, first_ns: Option<i64>, max_rows: usize) -> Option<String> {
        let (bin_ns, first_ns) = (profile.bin_ns, first_ns?);
        let senders = match profile.sender_bin_ns {
            0 => String::new(),
            width_ns => format!("; totals, classes and senders have bins of {}", duration(width_ns)),
        };
        let bin = duration(bin_ns);
        if !self.has_fitted {
            return Some(format!(
                "the timeline has {} rows, more than the {max_rows} of --max-cells: bins wider than {bin} would not have fewer{senders}",
                self.rows
            ));
        }
        (bin_ns > first_ns).then(|| {
            format!("the timeline's bins of pairs were widened to {bin} to keep them within {max_rows} rows{senders}")
        })
    }
}

/// What assigns connections to the groups of senders.
struct Grouping<'a> {
    ranks: RankIndex,
    identified: &'a ResolvedRanks,
    paired: &'a QueuePairPartners,
}

impl Grouping<'_> {
    /// By connection of one sender: the first connection of its group.
    fn groups(&self, part: &[(usize, &ConnectionTotals)]) -> Vec<Option<u32>> {
        let mut first: BTreeMap<SenderGroup, u32> = BTreeMap::new();
        let group = |(index, connection): &(usize, &ConnectionTotals)| {
            let own = self.group(*index, connection)?;
            Some(*first.entry(own).or_insert(*index as u32))
        };
        part.iter().map(group).collect()
    }

    /// The group of a connection; `None` without data.
    fn group(&self, index: usize, connection: &ConnectionTotals) -> Option<SenderGroup> {
        let Self { ranks, identified, paired } = self;
        let key = &connection.key;
        if key.kind != TrafficKind::Data {
            return None;
        }
        let src_qp = if key.is_datagram() {
            Some(key.src_qp)
        } else {
            paired.partner(QueuePair { endpoint: key.dst, qpn: key.dest_qp }).map(|(end, _)| end.qpn)
        };
        let job = identified.job_of.get(index).copied().flatten();
        Some(SenderGroup {
            endpoint: key.src,
            rank: job.and_then(|job| ranks.rank_in(job, key.src, src_qp)),
            job,
            class: identified.classes.get(index).copied().unwrap_or_default(),
            has_mpi: identified.detection.stack(key).is_some(),
        })
    }
}

/// Rows of a time series by the width of its bins.
struct RowCounts {
    /// Pairs of neighboring bins, by the largest number of doublings that leaves them apart.
    apart: [u64; SHIFTS as usize + 1],
    /// Connections or senders with bins.
    series: u64,
}

impl Default for RowCounts {
    fn default() -> Self {
        Self { apart: [0; SHIFTS as usize + 1], series: 0 }
    }
}

impl RowCounts {
    /// Adds a connection or a sender, whose bins come without equal neighbors.
    fn add_series(&mut self, bins: &[i64]) {
        self.series += u64::from(!bins.is_empty());
        for pair in bins.windows(2) {
            self.apart[(pair[0] ^ pair[1]).leading_zeros().abs_diff(SHIFTS) as usize] += 1;
        }
    }

    fn add(&mut self, other: &Self) {
        self.series += other.series;
        self.apart.iter_mut().zip(&other.apart).for_each(|(sum, own)| *sum += own);
    }

    /// Rows after this many doublings of the width.
    fn rows(&self, shift: u32) -> u64 {
        self.series + self.apart[shift as usize..].iter().sum::<u64>()
    }

    /// The fewest doublings after which there are at most `max_rows` rows, and true. If no width leads
    /// to so few rows, the fewest doublings that lead to the smallest number of rows, and false.
    fn shift(&self, max_rows: usize) -> (u32, bool) {
        // Times before and after 1970 never share a bin.
        let fewest = self.rows(SHIFTS);
        let shift = (0..SHIFTS).find(|shift| {
            let rows = self.rows(*shift);
            rows <= max_rows as u64 || rows == fewest
        });
        let shift = shift.unwrap_or(SHIFTS - 1);
        (shift, self.rows(shift) <= max_rows as u64)
    }
}

/// Counts the rows of the connections of one sender, and those of its groups.
fn count(part: &[(usize, &ConnectionTotals)], group_of: &[Option<u32>]) -> [RowCounts; 2] {
    let [mut pairs, mut senders] = [RowCounts::default(), RowCounts::default()];
    let mut groups: BTreeMap<u32, Vec<i64>> = BTreeMap::new();
    for ((_, connection), group) in part.iter().zip(group_of) {
        let mut bins: Vec<i64> = connection.bins.iter().map(|(bin, _)| bin).collect();
        bins.dedup();
        pairs.add_series(&bins);
        if let Some(group) = group {
            groups.entry(*group).or_default().append(&mut bins);
        }
    }
    for all in groups.values_mut() {
        all.sort_unstable();
        all.dedup();
    }
    groups.values().for_each(|bins| senders.add_series(bins));
    [pairs, senders]
}

/// Sorts the rows by time and connection, and adds up those of the same time and connection.
pub(super) fn join(rows: &mut Vec<TimelineRow>) {
    rows.par_sort_unstable_by_key(|row| (row.time_ns, row.connection));
    rows.dedup_by(|row, kept| {
        let is_same = (row.time_ns, row.connection) == (kept.time_ns, kept.connection);
        if is_same {
            kept.traffic += std::mem::take::<Traffic>(&mut row.traffic);
            kept.retransmissions += row.retransmissions;
            kept.congestion += row.congestion;
        }
        is_same
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bins 0 to 7 of two series: after one doubling four rows each, after three one each.
    #[test]
    fn the_narrowest_bins_that_fit_are_chosen() {
        let mut counts = RowCounts::default();
        counts.add_series(&[0, 1, 2, 3, 4, 5, 6, 7]);
        counts.add_series(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!([0, 1, 2, 3, 4].map(|shift| counts.rows(shift)), [16, 8, 4, 2, 2]);
        for (max_rows, expected) in [(16, (0, true)), (15, (1, true)), (7, (2, true)), (2, (3, true)), (1, (3, false))]
        {
            assert_eq!(counts.shift(max_rows), expected, "{max_rows}");
        }
    }

    #[test]
    fn bins_before_and_after_time_0_never_join() {
        let mut counts = RowCounts::default();
        counts.add_series(&[-2, -1, 0, 1]);
        assert_eq!([0, 1, 2, SHIFTS].map(|shift| counts.rows(shift)), [4, 2, 2, 2]);
        assert_eq!(counts.shift(1), (1, false));
    }
}
