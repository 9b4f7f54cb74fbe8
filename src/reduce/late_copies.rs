//! Connections whose second observations are late, because the clocks of their two ports differ or a
//! device delays the copies.

use super::MeasurementKey;
use crate::model::{ConnectionKey, Histogram, Interval, Recorder};

/// A connection whose requests were observed again after their ACKs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateCopies {
    /// The connection.
    pub key: ConnectionKey,
    /// Median time from the first observation of a packet to the second in nanoseconds, `None` if it was
    /// not measured.
    pub delay_ns: Option<u64>,
}

/// Median time between the two observations of a packet in nanoseconds.
pub(super) fn median_delay_ns(recorders: &[(MeasurementKey, Recorder)]) -> Option<u64> {
    let mut all = Histogram::default();
    let transits = recorders.iter().filter(|((.., key), _)| key.interval == Interval::Transit);
    transits.for_each(|(_, recorder)| all.merge(&recorder.clone().into()));
    (all.samples() > 0).then(|| all.quantile(0.5))
}
