//! Times of individual messages by stream, up to a limit.

use crate::model::HashMap;
use std::hash::Hash;

/// Limit of the number of times, 8 bytes each. Longer runs keep only the first and the last time of
/// each stream.
const MAX_TIMES: usize = 1 << 21;

/// Times by stream.
#[derive(Clone, Debug)]
pub(super) struct MessageTimes<K> {
    /// `None` after the limit was exceeded.
    streams: Option<HashMap<K, Vec<i64>>>,
    count: usize,
}

impl<K> Default for MessageTimes<K> {
    fn default() -> Self {
        Self { streams: Some(HashMap::default()), count: 0 }
    }
}

impl<K: Eq + Hash> MessageTimes<K> {
    /// Adds the time of a message.
    pub(super) fn add(&mut self, key: K, time_ns: i64) {
        self.count += 1;
        if self.count > MAX_TIMES {
            self.streams = None;
        }
        if let Some(streams) = &mut self.streams {
            streams.entry(key).or_default().push(time_ns);
        }
    }

    /// Sorts the times of each stream.
    pub(super) fn sort(&mut self) {
        self.streams.iter_mut().flat_map(HashMap::values_mut).for_each(|times| times.sort_unstable());
    }

    /// The times of a stream; `None` if they were not kept.
    pub(super) fn of(&self, key: &K) -> Option<&[i64]> {
        self.streams.as_ref()?.get(key).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_kept_up_to_the_limit() {
        let mut moments = MessageTimes::default();
        [5, 3, 4].into_iter().for_each(|time_ns| moments.add('a', time_ns));
        moments.sort();
        assert_eq!((moments.of(&'a'), moments.of(&'b')), (Some(&[3, 4, 5][..]), None));
        (0..MAX_TIMES as i64).for_each(|time_ns| moments.add('b', time_ns));
        assert_eq!((moments.of(&'a'), moments.of(&'b')), (None, None));
    }
}
