//! Times as they stand in names of files: `20261121T200022Z`, which sorts and reads as what it is.

/// A time in seconds since the epoch, in UTC.
pub(crate) fn stamp(seconds: u64) -> String {
    const DAY: u64 = 86_400;
    let (year, month, day) = date(seconds / DAY);
    let second = seconds % DAY;
    format!("{year:04}{month:02}{day:02}T{:02}{:02}{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

/// Year, month and day of a day since 1970-01-01. Years are counted from March on, so that a leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468;
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + DAYS_TO_1970;
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let january = month >= 10;
    (era * 400 + year + u64::from(january), if january { month - 9 } else { month + 3 }, date)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `date -u -d @N +%Y%m%dT%H%M%SZ` writes them.
    #[test]
    fn times_read_as_dates() {
        for (seconds, expected) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_800, "20000301T000000Z"),
            (1_795_291_222, "20261121T200022Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(stamp(seconds), expected);
        }
    }
}
