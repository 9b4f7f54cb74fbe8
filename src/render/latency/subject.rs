//! The interval and the verbs that a figure of times shows.

use crate::analysis::latency::LatencyKey;
use crate::model::{Histogram, Interval};
use crate::render::RenderError;
use std::collections::BTreeMap;

/// The subject of a figure of times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Name of the interval.
    pub interval: &'static str,
    /// Names of the measured verbs; empty for intervals without verbs.
    pub verbs: Vec<&'static str>,
}

impl Subject {
    /// Chooses the interval: `wanted`, or else the first response time that was measured, or else
    /// any.
    ///
    /// Without `times_read`, only connection set-up and tear-down have times, and any other
    /// interval is an error.
    pub fn of(
        latencies: &BTreeMap<LatencyKey, Histogram>,
        wanted: Option<&'static str>,
        times_read: bool,
    ) -> Result<Self, RenderError> {
        let is_wanted = |key: &LatencyKey| wanted.is_none_or(|name| name == key.interval);
        if !times_read && !latencies.keys().any(is_wanted) {
            return Err(RenderError::NotMeasured);
        }
        let names = || latencies.keys().map(|key| key.interval);
        let mut responses =
            Interval::ALL.into_iter().filter(|interval| interval.is_response_time()).map(Interval::name);
        let measured = || responses.find(|own| names().any(|name| name == *own)).or_else(|| names().next());
        let Some(interval) = wanted.or_else(measured) else {
            return Err(RenderError::EmptyTimes { interval: None });
        };
        let own = latencies.keys().filter(|key| key.interval == interval && !key.verb.is_empty());
        let mut verbs: Vec<&'static str> = own.map(|key| key.verb).collect();
        verbs.dedup();
        Ok(Self { interval, verbs })
    }

    /// The error for a subject without times.
    pub(crate) fn nothing(&self) -> RenderError {
        RenderError::EmptyTimes { interval: Some(self.interval) }
    }
}
