//! Timestamps in file names: `20261121T200022Z`, which sorts by time and is readable.

use jiff::Timestamp;
use std::time::SystemTime;

/// The current time in seconds since the epoch.
pub(crate) fn now_s() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs())
}

/// Formats a time in seconds since the epoch, in UTC. Times after 9999-12-30 are formatted as the
/// last time that `jiff` supports, which is on that day.
pub(crate) fn timestamp(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).strftime("%Y%m%dT%H%M%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values from `date -u -d @N +%Y%m%dT%H%M%SZ`.
    #[test]
    fn times_are_formatted_like_date_does() {
        for (seconds, expected) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_800, "20000301T000000Z"),
            (1_795_291_222, "20261121T200022Z"),
            (4_107_542_400, "21000301T000000Z"),
            (253_402_207_200, "99991230T220000Z"),
        ] {
            assert_eq!(timestamp(seconds), expected);
        }
    }

    #[test]
    fn times_beyond_the_calendar_are_formatted_as_its_end() {
        for seconds in [253_402_207_201, u64::MAX] {
            assert_eq!(timestamp(seconds), "99991230T220000Z");
        }
    }
}
