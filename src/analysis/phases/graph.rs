//! The traffic of a phase -> the graph of the pairs that carry a significant share of it.
//!
//! In: the windows of the phase. Out: nodes (ranks or endpoints), edges and the properties by which
//! `pattern.rs` recognizes patterns, including the pairs that the captures cannot observe.

use super::pairs::PairIndex;
use super::windows::{MessageCategory, Window};
use crate::analysis::endpoint_label::{Jobs, Label};
use crate::analysis::observed_ports::sees_all_ports;
use crate::model::{JobRank, Profile};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A pair is significant if it carries at least this share of the average.
const MIN_PAIR_SHARE: f64 = 0.1;

/// The communication that the captures can observe, for all phases.
pub(super) struct PortVisibility {
    /// Endpoints of each rank, as sorted numbers.
    places: BTreeMap<JobRank, Vec<u32>>,
    /// Ranks that share their endpoint with other ranks.
    crowded: BTreeSet<JobRank>,
    /// True if both ports of each packet were captured.
    sees_all_ports: bool,
}

impl PortVisibility {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut ranks: BTreeMap<&str, BTreeSet<JobRank>> = BTreeMap::new();
        for row in &profile.ranks {
            ranks.entry(&row.endpoint).or_default().insert(JobRank { job: row.job, rank: row.rank });
        }
        let mut places: BTreeMap<JobRank, Vec<u32>> = BTreeMap::new();
        for (ranks, endpoint) in ranks.values().zip(0..) {
            ranks.iter().for_each(|rank| places.entry(*rank).or_default().push(endpoint));
        }
        let sees_all_ports = sees_all_ports(profile);
        let crowded = ranks.into_values().filter(|ranks| ranks.len() > 1).flatten().collect();
        Self { places, crowded, sees_all_ports }
    }

    /// The endpoints of a rank, as sorted numbers; empty for labels other than ranks.
    fn endpoints(&self, label: &Label) -> &[u32] {
        let Label::Rank(rank, _) = label else { return &[] };
        self.places.get(rank).map_or(&[], Vec::as_slice)
    }

    /// The number of nodes, if their numbering has no gaps.
    fn numbered(&self, labels: &[&Label]) -> Option<u32> {
        let is_in_place = |(label, place): (&&Label, u32)| match label {
            Label::Rank(rank, Jobs::One) => rank.rank == place && labels.len() >= self.places.len(),
            Label::Endpoint(..) => true,
            Label::Rank(_, Jobs::Several) | Label::Unknown(..) | Label::NoJob | Label::Group(..) => false,
        };
        labels.iter().zip(0..).all(is_in_place).then_some(labels.len() as u32)
    }
}

/// The communication graph of a phase.
pub(super) struct Graph<'a> {
    labels: Vec<&'a Label>,
    /// Traffic from one node to another, for significant pairs.
    weights: BTreeMap<(u32, u32), f64>,
    /// Significant pairs, the lower number first.
    pub(super) pairs: BTreeSet<(u32, u32)>,
    /// Share of collective messages in the traffic.
    pub(super) collective_share: f64,
    /// Share of the traffic that the significant pairs carry.
    pub(super) explained: f64,
    /// Partners of each node, sorted.
    partners: Vec<Vec<u32>>,
    /// Endpoints of each node, as sorted numbers.
    endpoints: Vec<&'a [u32]>,
    /// True if some nodes share their endpoint with other ranks, so they may also communicate
    /// unobserved.
    pub(super) is_crowded: bool,
    /// True if both ports of each packet were captured.
    pub(super) sees_all_ports: bool,
    /// Number of nodes if they are all ranks from 0 on, or endpoints; `None` if the numbering has
    /// gaps.
    pub(super) numbered: Option<u32>,
}

impl<'a> Graph<'a> {
    pub(super) fn new(view: &'a PortVisibility, pairs: &'a PairIndex, windows: &[Window]) -> Self {
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        let mut collective = 0.0;
        for (pair, service, weight) in windows.iter().flat_map(|window| &window.parts) {
            *sums.entry(*pair).or_default() += weight;
            collective += if *service == MessageCategory::Collective { *weight } else { 0.0 };
        }
        let total: f64 = sums.values().sum();
        let mut both: BTreeMap<(&Label, &Label), [f64; 2]> = BTreeMap::new();
        for (pair, weight) in &sums {
            let (src, dst) = pairs.labels(*pair);
            if src.is_unknown() || dst.is_unknown() || src == dst {
                continue;
            }
            let (ends, way) = if src < dst { ((src, dst), 0) } else { ((dst, src), 1) };
            both.entry(ends).or_default()[way] += weight;
        }
        let square: f64 = both.values().map(|[there, back]| (there + back).powi(2)).sum();
        let average = square / both.values().map(|[there, back]| there + back).sum::<f64>().max(f64::MIN_POSITIVE);
        both.retain(|_, [there, back]| *there + *back >= MIN_PAIR_SHARE * average);
        let labels: BTreeSet<&Label> = both.keys().flat_map(|(a, b)| [*a, *b]).collect();
        let labels: Vec<&Label> = labels.into_iter().collect();
        let number = |label: &Label| labels.binary_search(&label).unwrap_or_default() as u32;
        let mut weights = BTreeMap::new();
        let mut significant = BTreeSet::new();
        for ((a, b), [there, back]) in &both {
            let (a, b) = (number(a), number(b));
            significant.insert((a, b));
            weights.insert((a, b), *there);
            weights.insert((b, a), *back);
        }
        weights.retain(|_, weight| *weight > 0.0);
        let collective_share = collective / total.max(f64::MIN_POSITIVE);
        let explained = weights.values().sum::<f64>() / total.max(f64::MIN_POSITIVE);
        let mut partners = vec![Vec::new(); labels.len()];
        for (a, b) in &significant {
            partners[*a as usize].push(*b);
            partners[*b as usize].push(*a);
        }
        partners.iter_mut().for_each(|own| own.sort_unstable());
        let endpoints = labels.iter().map(|label| view.endpoints(label)).collect();
        let numbered = view.numbered(&labels);
        let is_crowded =
            labels.iter().any(|label| matches!(label, Label::Rank(rank, _) if view.crowded.contains(rank)));
        let sees_all_ports = view.sees_all_ports;
        Self {
            labels,
            weights,
            pairs: significant,
            collective_share,
            explained,
            partners,
            endpoints,
            is_crowded,
            sees_all_ports,
            numbered,
        }
    }

    /// Number of nodes.
    pub(super) fn nodes(&self) -> usize {
        self.labels.len()
    }

    /// True if two nodes communicate.
    pub(super) fn talk(&self, a: u32, b: u32) -> bool {
        self.partners[a as usize].binary_search(&b).is_ok()
    }

    /// True if two nodes share an endpoint, so the capture cannot show whether they communicate.
    /// There may be many more such pairs than traffic, so they are never listed.
    pub(super) fn is_hidden(&self, a: u32, b: u32) -> bool {
        let (mut own, mut others) = (self.endpoints[a as usize], self.endpoints[b as usize]);
        while let ([first, ..], [other, ..]) = (own, others) {
            match first.cmp(other) {
                Ordering::Equal => return true,
                Ordering::Less => own = &own[1..],
                Ordering::Greater => others = &others[1..],
            }
        }
        false
    }

    /// Number of partners of each node.
    pub(super) fn degrees(&self) -> Vec<usize> {
        self.partners.iter().map(Vec::len).collect()
    }

    /// Number of receivers and of senders that each node communicates with.
    pub(super) fn directed_degrees(&self) -> Vec<(usize, usize)> {
        let mut degrees = vec![(0, 0); self.nodes()];
        for (from, to) in self.weights.keys() {
            degrees[*from as usize].0 += 1;
            degrees[*to as usize].1 += 1;
        }
        degrees
    }

    /// Share of the traffic that is balanced by traffic in the opposite direction, 0 to 1.
    pub(super) fn symmetry(&self) -> f64 {
        let weight = |a: u32, b: u32| self.weights.get(&(a, b)).copied().unwrap_or_default();
        let back: f64 = self.pairs.iter().map(|&(a, b)| 2.0 * weight(a, b).min(weight(b, a))).sum();
        back / self.weights.values().sum::<f64>().max(f64::MIN_POSITIVE)
    }

    /// True if all significant pairs communicate in both directions.
    pub(super) fn is_mutual(&self) -> bool {
        self.weights.len() == 2 * self.pairs.len()
    }

    /// The share of observable ordered pairs that communicate, and their unevenness: the standard
    /// deviation of their weights divided by the mean. `None` if most pairs cannot be observed.
    pub(super) fn evenness(&self) -> Option<(f64, f64)> {
        let nodes = self.nodes() as u64;
        let all = nodes * (nodes - 1);
        // Too few pairs for all-to-all: skip the search for hidden pairs, which is quadratic in the
        // nodes.
        if (self.weights.len() as u64) < all / 3 {
            return None;
        }
        let nodes = self.nodes() as u32;
        let hidden =
            (0..nodes).flat_map(|b| (0..b).map(move |a| (a, b))).filter(|(a, b)| self.is_hidden(*a, *b)).count();
        let visible = (all - 2 * hidden as u64) as f64;
        let sum: f64 = self.weights.values().sum();
        let mean = sum / visible;
        // Silent pairs count as well.
        let squares: f64 = self.weights.values().map(|weight| (weight - mean).powi(2)).sum();
        let silent = (visible - self.weights.len() as f64).max(0.0);
        let deviation = ((squares + silent * mean * mean) / visible).sqrt() / mean;
        (visible * 2.0 >= all as f64).then_some((self.weights.len() as f64 / visible, deviation))
    }

    /// True if every node is reachable from every other node.
    pub(super) fn is_connected(&self) -> bool {
        let mut is_reached = vec![false; self.nodes()];
        let mut next = vec![0_u32];
        while let Some(node) = next.pop() {
            if !std::mem::replace(&mut is_reached[node as usize], true) {
                next.extend(&self.partners[node as usize]);
            }
        }
        is_reached.into_iter().all(|is_reached| is_reached)
    }
}
