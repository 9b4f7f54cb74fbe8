//! Adds a connection to the record series of the inputs that should hold it.
//!
//! In: a connection in all inputs. Out: by input and bin, the records that its observation points
//! should have, by the input or union that has all packets, and those that they have.

use super::bins::{BinCell, TrafficSlot, TrafficSums};
use super::observation_points::{ObservationPoint, overlap};
use super::point_sums::AbsentPoints;
use crate::model::{BinClass, ConnectionTotals, RecordCount, RecordSeries};

/// A connection in one input.
pub(super) struct InputRecords<'a> {
    pub(super) point: ObservationPoint,
    pub(super) totals: &'a ConnectionTotals,
    /// Records by bin, and all of them, mirror copies included.
    pub(super) by_bin: &'a [(i64, u64)],
    pub(super) all: u64,
}

/// Records by bin, in the order of time.
pub(super) fn by_bin(cells: &[BinCell<TrafficSlot, TrafficSums>]) -> Vec<(i64, u64)> {
    let mut records: Vec<(i64, u64)> = Vec::new();
    for cell in cells.iter().filter(|cell| matches!(cell.slot, TrafficSlot::Occurrence(_))) {
        match records.last_mut().filter(|(bin, _)| *bin == cell.bin) {
            Some((_, packets)) => *packets += cell.value.sums.packets,
            None => records.push((cell.bin, cell.value.sums.packets)),
        }
    }
    records
}

/// Adds a connection to the series by input. `counted` is the input that has all packets.
pub(super) fn add(
    series: &mut [RecordSeries],
    observed: &[InputRecords<'_>],
    absent: &[AbsentPoints],
    counted: Option<usize>,
) {
    let Some(whole) = observed.iter().find(|own| Some(own.point.input) == counted) else { return };
    let sent = || {
        let packets =
            whole.totals.bins.iter().filter(|(_, sums)| matches!(sums.class, BinClass::Sent | BinClass::Retransmitted));
        packets.map(|(bin, sums)| (bin, sums.sums.packets))
    };
    let expect = |own: &mut RecordSeries, points: u64| {
        sent().for_each(|(bin, packets)| {
            own.add_bin(bin, RecordCount { expected: packets * points, observed: 0 });
        });
        own.add_total(RecordCount { expected: whole.totals.traffic.packets * points, observed: 0 });
    };
    for InputRecords { point, totals, by_bin, all } in observed.iter().filter(|own| !own.point.is_union) {
        let Some(own) = series.get_mut(point.input) else { continue };
        expect(own, if point.observed_twice { 2 } else { 1 });
        for (bin, records) in *by_bin {
            own.add_bin(*bin, RecordCount { expected: 0, observed: *records });
        }
        own.add_total(RecordCount { expected: 0, observed: *all });
        own.steps.join(totals.continuity.psn_steps);
    }
    let is_present = |lost: &&AbsentPoints| overlap(lost.input_times_ns, whole.totals.times_ns);
    for lost in absent.iter().filter(is_present) {
        series.get_mut(lost.input).into_iter().for_each(|own| expect(own, lost.points));
    }
}
