//! Parses the values of options.

use super::job_choice::JobChoice;
use crate::pipeline::TimePoint;

/// Seconds since the first packet, with up to nine decimals and no rounding, or an RFC 3339
/// timestamp.
pub(in crate::cli) fn moment(text: &str) -> Result<TimePoint, String> {
    if let Some(ns) = decimal_seconds_ns(text) {
        return Ok(TimePoint::SinceStart(ns));
    }
    let timestamp: jiff::Timestamp = text
        .parse()
        .map_err(|_| "expected seconds from the first packet (1.5) or RFC 3339 (2026-11-20T10:00:00Z)".to_owned())?;
    i64::try_from(timestamp.as_nanosecond())
        .map(TimePoint::Absolute)
        .map_err(|_| "expected a time in the years 1678 to 2262".to_owned())
}

fn decimal_seconds_ns(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 9 || !digits(whole) || !digits(fraction) {
        return None;
    }
    let seconds: i64 = whole.parse().ok()?;
    let nanoseconds: i64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

pub(in crate::cli) fn job(text: &str) -> Result<JobChoice, String> {
    if text == "all" {
        return Ok(JobChoice::All);
    }
    let job = text.parse().ok().filter(|job| *job > 0).map(JobChoice::Only);
    job.ok_or_else(|| "expected a job number, from 1, or `all`".to_owned())
}

pub(in crate::cli) fn bin_ns(text: &str) -> Result<i64, String> {
    let expected = || "expected a duration like 10ms, 500us or 1s".to_owned();
    let duration: jiff::SignedDuration = text.parse().map_err(|_| expected())?;
    let ns = i64::try_from(duration.as_nanos()).map_err(|_| expected())?;
    if ns > 0 { Ok(ns) } else { Err("expected a duration of at least 1ns".to_owned()) }
}

/// No machine has more cores, and each thread takes memory.
const MAX_THREADS: usize = 1024;

pub(in crate::cli) fn threads(text: &str) -> Result<usize, String> {
    let count = text.parse().ok().filter(|&count: &usize| count <= MAX_THREADS);
    count.ok_or_else(|| format!("expected a number from 0 (one per core) to {MAX_THREADS}"))
}

pub(in crate::cli) fn positive(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "expected a whole number above 0".to_owned())
}

/// A sampling rate `1/N`; returns N.
pub(in crate::cli) fn sampling_rate(text: &str) -> Result<u32, String> {
    let one_in = text.strip_prefix("1/").and_then(|number| number.parse().ok()).filter(|number: &u32| *number > 1);
    one_in.ok_or_else(|| "expected 1/N with N above 1, for example 1/1000".to_owned())
}

/// A partition key, as a number or hexadecimal.
pub(in crate::cli) fn p_key(text: &str) -> Result<u16, String> {
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let key = hexadecimal.map_or_else(|| text.parse(), |digits| u16::from_str_radix(digits, 16));
    key.map_err(|_| "expected a partition key, like 0xffff or 32767".to_owned())
}

/// A number of bytes, with or without a unit.
pub(in crate::cli) fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim_start() {
        "" | "B" => Some(0),
        "KiB" => Some(10),
        "MiB" => Some(20),
        "GiB" => Some(30),
        "TiB" => Some(40),
        _ => None,
    };
    let bytes = digits.parse().ok().zip(shift).and_then(|(number, shift): (u64, _)| number.checked_mul(1 << shift));
    bytes.filter(|bytes| *bytes > 0).ok_or_else(|| "expected a size like 512MiB or 4GiB".to_owned())
}

/// The value of `--vmax`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum ScaleEnd {
    /// A count, bytes, or bytes per second.
    Number(u64),
    /// A time.
    Nanoseconds(u64),
}

/// The end of a scale: a number, bytes with a unit, or a duration.
pub(in crate::cli) fn scale_end(text: &str) -> Result<ScaleEnd, String> {
    let number = bytes(text).map(ScaleEnd::Number);
    let time = || bin_ns(text).map(|ns| ScaleEnd::Nanoseconds(ns.unsigned_abs()));
    number.or_else(|_| time()).map_err(|_| "expected a number, a size like 64MiB, or a time like 50us".to_owned())
}

pub(in crate::cli) fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "expected a number from 0 to 100".to_owned())?;
    if (0.0..=100.0).contains(&value) { Ok(value) } else { Err("expected a number from 0 to 100".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_exact() {
        assert_eq!(moment("0"), Ok(TimePoint::SinceStart(0)));
        assert_eq!(moment("1.5"), Ok(TimePoint::SinceStart(1_500_000_000)));
        assert_eq!(moment("0.000000001"), Ok(TimePoint::SinceStart(1)));
        assert_eq!(moment("1970-01-01T00:00:01.000000002Z"), Ok(TimePoint::Absolute(1_000_000_002)));
        assert_eq!(moment("1970-01-01T02:00:00+02:00"), Ok(TimePoint::Absolute(0)));
        for text in ["", ".", "-1", "1.0000000001", "yesterday", "99999999999"] {
            assert!(moment(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_have_binary_units() {
        for (text, expected) in [("1", 1), ("700B", 700), ("64KiB", 65_536), ("512 MiB", 512 << 20), ("4GiB", 4 << 30)]
        {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for text in ["", "0", "0GiB", "MiB", "1.5GiB", "-1", "1G", "1 2", "16777216TiB", "\u{664}KiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bins_are_positive_durations() {
        assert_eq!(bin_ns("10ms"), Ok(10_000_000));
        assert_eq!(bin_ns("1s"), Ok(1_000_000_000));
        assert_eq!(bin_ns("500us"), Ok(500_000));
        for text in ["0s", "-1ms", "10", "soon"] {
            assert!(bin_ns(text).is_err(), "{text}");
        }
    }
}
