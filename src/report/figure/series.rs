//! Timeline -> rates per sender in bins without gaps.

use crate::report::ReportError;
use crate::report::timeline::Timeline;
use crate::report::who::Label;
use std::collections::BTreeMap;

/// More bins than this are added up: narrower ones than two pixels would flicker.
const MOST_BINS: i128 = 750;
/// Senders with a colour of their own.
const MOST_SENDERS: usize = 7;

/// Rates over time. All vectors of values have one element per bin, 0 where there is no traffic.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Series {
    /// Width of a bin in seconds.
    pub(super) bin_s: f64,
    /// From the start of the first to the end of the last bin, in seconds. Where bins are added up, the last of the
    /// sums may be narrower than the others.
    pub(super) span_s: f64,
    /// Bytes on the wire per second, by sender, the busiest first, the sum of the less busy ones last.
    pub(super) wire: Vec<(String, Vec<f64>)>,
    /// Messages per second of all senders.
    pub(super) messages: Vec<f64>,
}

impl Series {
    pub(super) fn new(timeline: &Timeline) -> Result<Self, ReportError> {
        let (Some((start, end)), 1..) = (timeline.span_ns(), timeline.bin_ns) else { return Err(ReportError::Empty) };
        let (start, bin_ns) = (i128::from(start), i128::from(timeline.bin_ns));
        let span_ns = i128::from(end) - start;
        // Both are positive, as are the other terms here.
        let width_ns = bin_ns * ((span_ns / bin_ns + MOST_BINS - 1) / MOST_BINS).max(1);
        let bins = usize::try_from((span_ns + width_ns - 1) / width_ns).unwrap_or_default();

        let mut sums: BTreeMap<&Label, u64> = BTreeMap::new();
        for bin in &timeline.bins {
            *sums.entry(&bin.src).or_default() += bin.cell.wire_bytes;
        }
        let mut senders: Vec<(&Label, u64)> = sums.into_iter().collect();
        senders.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        let places: BTreeMap<&Label, usize> =
            senders.iter().enumerate().map(|(place, &(label, _))| (label, place.min(MOST_SENDERS))).collect();
        let mut wire: Vec<(String, Vec<f64>)> =
            senders.iter().take(MOST_SENDERS).map(|(label, _)| (label.name(), vec![0.0; bins])).collect();
        let others = senders.len().saturating_sub(MOST_SENDERS);
        if others > 0 {
            wire.push((format!("{others} others"), vec![0.0; bins]));
        }

        let mut messages = vec![0.0; bins];
        for bin in &timeline.bins {
            let index = (i128::from(bin.time_ns) - start) / width_ns;
            let begin_ns = index * width_ns;
            let seconds = width_ns.min(span_ns - begin_ns) as f64 / 1e9;
            let index = usize::try_from(index).unwrap_or_default();
            if let Some(rate) = messages.get_mut(index) {
                *rate += bin.cell.messages as f64 / seconds;
            }
            let place = places.get(&bin.src).and_then(|&place| wire.get_mut(place));
            if let Some(rate) = place.and_then(|(_, rates)| rates.get_mut(index)) {
                *rate += bin.cell.wire_bytes as f64 / seconds;
            }
        }
        Ok(Self { bin_s: width_ns as f64 / 1e9, span_s: span_ns as f64 / 1e9, wire, messages })
    }

    /// The rates of the first senders added up: one more sender in each, the last is the sum of all.
    pub(super) fn stacked(&self) -> Vec<Vec<f64>> {
        let mut sum = vec![0.0; self.messages.len()];
        let mut add = |rates: &Vec<f64>| {
            for (sum, rate) in sum.iter_mut().zip(rates) {
                *sum += rate;
            }
            sum.clone()
        };
        self.wire.iter().map(|(_, rates)| add(rates)).collect()
    }
}
