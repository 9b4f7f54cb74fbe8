//! Formats numbers, sizes, times and rates for a terminal.

use crate::analysis::matrix::TrafficUnit;
use crate::model::SizeSums;
pub(crate) use crate::model::show::group;
pub(crate) use crate::model::{count_either, count_of, duration};

/// Binary multiples of bytes, for tables and figures.
pub(crate) const BYTES: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// A value that is not 0, but would be shown as 0.
pub(crate) const TOO_LITTLE: &str = "<0.1";

/// The unit of all values of a table, chosen by the largest value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    bytes: bool,
    power: u32,
}

impl Scale {
    /// Chooses the unit in which `largest` has one to four digits before the decimal point.
    pub(crate) fn for_table(unit: TrafficUnit, largest: u64) -> Self {
        let power = if unit.is_bytes() { largest.max(1).ilog2() / 10 } else { 0 };
        Self { bytes: unit.is_bytes(), power: power.min(BYTES.len() as u32 - 1) }
    }

    /// Formats a value in this unit, without the unit name.
    pub(crate) fn show(self, value: u64) -> String {
        if self.power == 0 {
            return group(value);
        }
        let scaled = value as f64 / self.one();
        if value == 0 {
            "0".to_owned()
        } else if scaled >= 100.0 {
            format!("{scaled:.0}")
        } else if scaled >= 0.1 {
            format!("{scaled:.1}")
        } else {
            TOO_LITTLE.to_owned()
        }
    }

    /// Formats a value in its own best unit, with the unit name.
    pub(crate) fn with_unit(self, value: u64) -> String {
        if self.bytes { bytes(value) } else { group(value) }
    }

    /// The unit's size.
    pub(crate) fn one(self) -> f64 {
        (1_u64 << (10 * self.power)) as f64
    }

    /// The unit's name.
    pub(crate) fn unit(self) -> &'static str {
        BYTES[self.power as usize]
    }

    /// ` in MiB`, or an empty string for unscaled values.
    pub(crate) fn suffix(self) -> String {
        if self.power == 0 { String::new() } else { format!(" in {}", self.unit()) }
    }
}

/// Formats bytes in their best unit, such as `1.5 KiB`.
pub(crate) fn bytes(value: u64) -> String {
    let scale = Scale::for_table(TrafficUnit::WireBytes, value);
    format!("{} {}", scale.show(value), scale.unit())
}

/// Formats a count per second.
pub(crate) fn per_second(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1} /s") } else { format!("{} /s", group(rate.round() as u64)) }
}

/// Formats bytes per second in their best unit.
pub(crate) fn bytes_per_second(rate: f64) -> String {
    format!("{}/s", bytes(rate.round() as u64))
}

/// Formats a rate in decimal bits per second, the unit of link speeds.
pub(crate) fn bits_per_second(rate: f64) -> String {
    let bits = rate * 8.0;
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    let (one, unit) = units.into_iter().find(|(one, _)| bits >= *one).unwrap_or((1.0, "bit/s"));
    let value = bits / one;
    let decimals = if value >= 100.0 { 0 } else { usize::from(value < 10.0) + 1 };
    format!("{value:.decimals$} {unit}")
}

/// Formats the smallest and largest size that occur in a size class.
pub(crate) fn size_range(sums: &SizeSums) -> String {
    if sums.smallest_bytes == sums.largest_bytes {
        group(sums.smallest_bytes)
    } else {
        format!("{} - {}", group(sums.smallest_bytes), group(sums.largest_bytes))
    }
}

/// Wraps a sentence at `width` columns; longer words are not split.
pub(crate) fn wrap(sentence: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

/// Formats a measured duration with three decimal places.
pub(crate) fn span(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    let fits = units.into_iter().find(|(unit_ns, _)| ns >= *unit_ns);
    fits.map_or_else(|| format!("{ns} ns"), |(unit_ns, name)| format!("{:.3} {name}", ns as f64 / unit_ns as f64))
}

/// Formats the seconds since `origin_ns` exactly, in the form of `--from` and `--to`. Never below
/// 0: the first bin may start before the first packet.
pub(crate) fn seconds_since(origin_ns: i64, time_ns: i64) -> String {
    let ns = (i128::from(time_ns) - i128::from(origin_ns)).max(0);
    let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    if rest % 1000 == 0 { format!("{whole}.{:06}", rest / 1000) } else { format!("{whole}.{rest:09}") }
}

/// Formats a time as RFC 3339 in UTC.
pub(crate) fn utc(time_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time_ns))
        .map_or_else(|_| format!("{time_ns} ns"), |time| format!("{time:.6}"))
}

/// Formats a duration with three significant digits and a unit.
pub(crate) fn time(ns: f64) -> String {
    if ns == 0.0 {
        return "0".to_owned();
    }
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let decimals = if value >= 100.0 { 0 } else { usize::from(value >= 10.0).abs_diff(2) };
    format!("{value:.decimals$} {unit}")
}

/// Formats the size class that starts at `from_bytes`; `-` for all sizes.
pub(crate) fn size(from_bytes: Option<u64>) -> String {
    match from_bytes {
        None => "-".to_owned(),
        Some(from) if from < 2 => format!("{from} B"),
        Some(from) => format!("{}-{} B", from, from * 2 - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SizeClass;

    #[test]
    fn numbers_read_well() {
        assert_eq!(bytes(1023), "1 023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
        assert_eq!(duration(10_000_000), "10 ms");
        assert_eq!(duration(1_500_000_000), "1.5 s");
        assert_eq!(duration(7), "7 ns");
        assert_eq!(duration(1_000_001), "1000.001 µs");
        assert_eq!([999, 1_500, 491_520_000].map(span), ["999 ns", "1.500 µs", "491.520 ms"]);
        assert_eq!(seconds_since(-500, 1_500_000_000), "1.500000500");
        assert_eq!([seconds_since(1_000, 61_000), seconds_since(7, 3)], ["0.000060", "0.000000"]);
        assert_eq!(wrap("one two three", 7), "one two\nthree");
        assert_eq!(wrap("unbroken", 3), "unbroken");
        assert_eq!(utc(0), "1970-01-01T00:00:00.000000Z");
    }

    #[test]
    fn times_have_three_digits_and_a_unit() {
        for (ns, text) in
            [(0.0, "0"), (7.0, "7.00 ns"), (423_000.0, "423 µs"), (1_500_000.0, "1.50 ms"), (12.34e9, "12.3 s")]
        {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn size_classes_end_before_the_next_begins() {
        let text = |bytes| size(Some(SizeClass::of(bytes).from_bytes()));
        assert_eq!(
            [text(0), text(1), text(2), text(3), text(64), text(127)],
            ["0 B", "1 B", "2-3 B", "2-3 B", "64-127 B", "64-127 B"]
        );
    }
}
