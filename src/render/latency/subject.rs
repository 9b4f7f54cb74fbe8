//! What a figure of times is of.

use crate::analysis::latency::Key;
use crate::model::{Histogram, Interval};
use crate::render::RenderError;
use std::collections::BTreeMap;

/// What a figure is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Name of the interval.
    pub interval: &'static str,
    /// Names of the verbs that were measured, where the interval is one of verbs.
    pub verbs: Vec<&'static str>,
}

impl Subject {
    /// What a figure of some histograms is of: of the interval that was asked for, or else of the one that tells most, how long requests wait for
    /// their answer, or else any. Where times were not measured (`times_read`), connections alone have some.
    pub fn of(
        latencies: &BTreeMap<Key, Histogram>,
        wanted: Option<&'static str>,
        times_read: bool,
    ) -> Result<Self, RenderError> {
        let is_wanted = |key: &Key| wanted.is_none_or(|name| name == key.interval);
        if !times_read && !latencies.keys().any(is_wanted) {
            return Err(RenderError::NotMeasured);
        }
        let names = || latencies.keys().map(|key| key.interval);
        let mut answers = Interval::ALL.into_iter().filter(|interval| interval.is_answer()).map(Interval::name);
        let told = || answers.find(|answer| names().any(|name| name == *answer)).or_else(|| names().next());
        let Some(interval) = wanted.or_else(told) else {
            return Err(RenderError::EmptyTimes { interval: None });
        };
        let own = latencies.keys().filter(|key| key.interval == interval && !key.verb.is_empty());
        let mut verbs: Vec<&'static str> = own.map(|key| key.verb).collect();
        verbs.dedup();
        Ok(Self { interval, verbs })
    }

    /// The error where there is nothing of it.
    pub(crate) fn nothing(&self) -> RenderError {
        RenderError::EmptyTimes { interval: Some(self.interval) }
    }
}
