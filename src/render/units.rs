//! Numbers for people.

use crate::analysis::matrix::Unit;
use crate::model::SizeSums;
pub(crate) use crate::model::duration;

/// Binary units of bytes.
const BYTES: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/// One unit for a whole table, chosen by its largest value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    bytes: bool,
    power: u32,
}

impl Scale {
    /// The unit in which the largest value has one to four digits before the point.
    pub(crate) fn for_table(unit: Unit, largest: u64) -> Self {
        let power = if unit.is_bytes() { largest.max(1).ilog2() / 10 } else { 0 };
        Self { bytes: unit.is_bytes(), power: power.min(BYTES.len() as u32 - 1) }
    }

    /// A value in this unit, without it.
    pub(crate) fn show(self, value: u64) -> String {
        if self.power == 0 {
            return group(value);
        }
        let scaled = value as f64 / (1u64 << (10 * self.power)) as f64;
        if value == 0 {
            "0".to_owned()
        } else if scaled >= 100.0 {
            format!("{scaled:.0}")
        } else if scaled >= 0.1 {
            format!("{scaled:.1}")
        } else {
            "<0.1".to_owned()
        }
    }

    /// A value in the unit that fits it best, with the unit.
    pub(crate) fn with_unit(self, value: u64) -> String {
        if self.bytes { bytes(value) } else { group(value) }
    }

    /// The unit's name.
    pub(crate) fn unit(self) -> &'static str {
        BYTES[self.power as usize]
    }

    /// ` in MiB`, or nothing where values are shown as they are.
    pub(crate) fn suffix(self) -> String {
        if self.power == 0 { String::new() } else { format!(" in {}", self.unit()) }
    }
}

/// Bytes in the unit that fits them best.
pub(crate) fn bytes(value: u64) -> String {
    let scale = Scale::for_table(Unit::WireBytes, value);
    format!("{} {}", scale.show(value), scale.unit())
}

/// Digits in groups of three.
pub(crate) fn group(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A count per second.
pub(crate) fn per_second(rate: f64) -> String {
    if rate > 0.0 && rate < 10.0 { format!("{rate:.1} /s") } else { format!("{} /s", group(rate.round() as u64)) }
}

/// Bytes per second, in the unit that fits them best.
pub(crate) fn bytes_per_second(rate: f64) -> String {
    format!("{}/s", bytes(rate.round() as u64))
}

/// The sizes of a class that there are.
pub(crate) fn size_range(sums: &SizeSums) -> String {
    if sums.smallest_bytes == sums.largest_bytes {
        group(sums.smallest_bytes)
    } else {
        format!("{} - {}", group(sums.smallest_bytes), group(sums.largest_bytes))
    }
}

/// A count and what it is of, with an `s` where it is not one.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{} {what}{}", group(count), if count == 1 { "" } else { "s" })
}

/// A sentence in lines that fit a terminal; words that are longer stay whole.
pub(crate) fn wrapped(sentence: &str, width: usize) -> String {
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

/// A measured duration, to three digits behind the point.
pub(crate) fn span(ns: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")];
    let fits = units.into_iter().find(|(unit_ns, _)| ns >= *unit_ns);
    fits.map_or_else(|| format!("{ns} ns"), |(unit_ns, name)| format!("{:.3} {name}", ns as f64 / unit_ns as f64))
}

/// Seconds from a moment, as `--from` and `--to` take them: exactly, and not below 0, as the first bin may start before the first packet.
pub(crate) fn seconds_since(origin_ns: i64, time_ns: i64) -> String {
    let ns = (i128::from(time_ns) - i128::from(origin_ns)).max(0);
    let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    if rest % 1000 == 0 { format!("{whole}.{:06}", rest / 1000) } else { format!("{whole}.{rest:09}") }
}

/// A time as RFC 3339 in UTC.
pub(crate) fn utc(time_ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(time_ns))
        .map_or_else(|_| format!("{time_ns} ns"), |time| format!("{time:.6}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(group(0), "0");
        assert_eq!(group(1_234_567), "1 234 567");
        assert_eq!(bytes(1023), "1 023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 30), "5.0 GiB");
        assert_eq!(duration(10_000_000), "10 ms");
        assert_eq!(duration(1_500_000_000), "1.5 s");
        assert_eq!(duration(7), "7 ns");
        assert_eq!(duration(1_000_001), "1000.001 us");
        assert_eq!([counted(1, "NAK"), counted(0, "NAK"), counted(2000, "NAK")], ["1 NAK", "0 NAKs", "2 000 NAKs"]);
        assert_eq!([999, 1_500, 491_520_000].map(span), ["999 ns", "1.500 us", "491.520 ms"]);
        assert_eq!(seconds_since(-500, 1_500_000_000), "1.500000500");
        assert_eq!([seconds_since(1_000, 61_000), seconds_since(7, 3)], ["0.000060", "0.000000"]);
        assert_eq!(wrapped("one two three", 7), "one two\nthree");
        assert_eq!(wrapped("unbroken", 3), "unbroken");
        assert_eq!(utc(0), "1970-01-01T00:00:00.000000Z");
    }
}
