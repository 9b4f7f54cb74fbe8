//! Colors, tick values and number formats of the figures.

pub(super) use crate::render::scale::ColorScale;

use crate::analysis::matrix::TrafficUnit;
use crate::analysis::round_numbers::steps;
use crate::render::scale;
use crate::render::units::{BYTES, Scale};
use plotters::style::RGBColor;

/// Color of cells without traffic.
pub(super) const NONE: RGBColor = RGBColor(scale::NONE_LIGHT.0, scale::NONE_LIGHT.1, scale::NONE_LIGHT.2);

/// Color of cells whose traffic is not on this wire, between white lines.
pub(super) const HIDDEN: RGBColor = RGBColor(172, 172, 172);

/// Okabe and Ito's palette without black: distinguishable with any kind of color vision.
pub(super) const OKABE_ITO: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(240, 228, 66),
];

/// A lighter variant of the first color of [`OKABE_ITO`], for areas behind it.
pub(super) const LIGHT: RGBColor = RGBColor(178, 213, 232);

impl ColorScale {
    /// Values of the labeled ticks.
    pub(super) fn ticks(&self, is_bytes: bool) -> Vec<u64> {
        match (self.log, is_bytes) {
            (true, true) => powers(2, self.min, self.max),
            (true, false) => powers(10, self.min, self.max),
            (false, true) => {
                // Powers of two are round numbers in KiB and MiB.
                let step = self.max.div_ceil(6).checked_next_power_of_two().unwrap_or(self.max);
                (0..=self.max / step).map(|n| n * step).collect()
            }
            (false, false) => {
                let step =
                    steps().map(|step| step as u64).find(|step| step.saturating_mul(6) >= self.max).unwrap_or(self.max);
                (0..=self.max / step).map(|n| n * step).collect()
            }
        }
    }
}

/// At most 7 powers of a base between two values, with equal steps between the exponents.
fn powers(base: u64, min: u64, max: u64) -> Vec<u64> {
    let all: Vec<(u32, u64)> = (0..u64::BITS)
        .map_while(|exponent| Some((exponent, base.checked_pow(exponent)?)))
        .filter(|&(_, value)| (min..=max).contains(&value))
        .collect();
    let step = [1, 2, 5, 10].into_iter().find(|&step| all.len() <= step as usize * 7).unwrap_or(10);
    all.into_iter().filter(|&(exponent, _)| exponent.is_multiple_of(step)).map(|(_, value)| value).collect()
}

/// The smallest step of 1, 2 or 5 times a power of ten that divides `span` into at most `most`
/// parts.
pub(super) fn step(span: f64, most: u32) -> f64 {
    let least = span / f64::from(most);
    let power = 10_f64.powf(least.log10().floor());
    // The tolerance keeps a span of exactly 5 steps at 5 steps.
    [1.0, 2.0, 5.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|&step| step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}

/// The color of a value at a position from 0 to 1.
pub(super) fn shade(share: f64) -> RGBColor {
    let (red, green, blue) = scale::shade(share);
    RGBColor(red, green, blue)
}

/// Whether black text is easier to read on this color than white text.
pub(super) fn is_light(RGBColor(red, green, blue): RGBColor) -> bool {
    scale::is_light((red, green, blue))
}

/// A value in three digits with a unit: bytes in powers of 1024, counts from 10 000 on in powers of
/// 1000.
pub(super) fn human(value: u64, is_bytes: bool) -> String {
    let (units, base, gap): (&[&str], f64, &str) =
        if is_bytes { (&BYTES, 1024.0, " ") } else { (&["", "k", "M", "G", "T", "P", "E"], 1000.0, "") };
    if !is_bytes && value < 10_000 {
        return value.to_string();
    }
    let mut scaled = value as f64;
    let mut units = units.iter();
    let mut unit = units.next();
    // A value that rounds to 1024 (bytes) or 1000 (counts) of a unit is 1 of the next unit.
    while scaled >= base - 0.5 {
        let Some(next) = units.next() else { break };
        (scaled, unit) = (scaled / base, Some(next));
    }
    format!("{}{gap}{}", three_digits(scaled), unit.copied().unwrap_or_default())
}

/// A value in three digits, or fewer where these are exact.
fn three_digits(value: f64) -> String {
    let decimals = match value {
        _ if value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    let short = if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if short.parse() == Ok(value) { short.to_owned() } else { text }
}

/// Factor and name of the SI prefix for values up to `max`.
pub(super) fn prefix_of(max: f64) -> (f64, &'static str) {
    [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")].into_iter().find(|&(one, _)| max >= one).unwrap_or((1.0, ""))
}

/// Size and name of the binary unit for bytes up to `max`.
pub(super) fn byte_unit(max: f64) -> (f64, &'static str) {
    let scale = Scale::for_table(TrafficUnit::WireBytes, max as u64);
    (scale.one(), scale.unit())
}

/// A rate of bytes in three digits, with its unit.
pub(super) fn human_rate(bytes_per_s: f64) -> String {
    format!("{}/s", human(bytes_per_s.round() as u64, true))
}

/// Ticks from 0 to `max` in round steps, at most about `most`, with their texts.
pub(super) fn axis(max: f64, most: u32) -> Vec<(f64, String)> {
    ticks_between((0.0, max), step(max, most))
}

/// Multiples of a step within a range, with their texts.
pub(super) fn ticks_between((from, to): (f64, f64), step: f64) -> Vec<(f64, String)> {
    let decimals = usize::try_from(-step.log10().floor() as i32).unwrap_or_default();
    let first = (from / step - 1e-9).ceil();
    let count = ((to - from) / step) as u32 + 1;
    // Adding 0.0 turns -0 into 0, so that 0 has no sign.
    let values = (0..=count).map(|n| (first + f64::from(n)) * step + 0.0).filter(|&value| value <= to + step * 1e-9);
    values.map(|value| (value, format!("{value:.decimals$}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_in_human_units() {
        assert_eq!(human(0, true), "0 B");
        assert_eq!(human(1023, true), "1023 B");
        assert_eq!(human(1024, true), "1 KiB");
        assert_eq!(human(3 * 512, true), "1.5 KiB");
        // 1025 / 1024 = 1.00098: the zeros show that the value is rounded.
        assert_eq!(human(1025, true), "1.00 KiB");
        // 123 456 / 1024 = 120.56.
        assert_eq!(human(123_456, true), "121 KiB");
        // One below 1 MiB is 1023.999 KiB.
        assert_eq!(human((1 << 20) - 1, true), "1.00 MiB");
        assert_eq!(human(5 << 30, true), "5 GiB");
        assert_eq!(human(u64::MAX, true), "16 EiB");
        assert_eq!(human(9999, false), "9999");
        assert_eq!(human(12_345, false), "12.3k");
        assert_eq!(human(2_000_000, false), "2M");
        assert_eq!(human(999_999, false), "1.00M");
    }

    #[test]
    fn ticks_are_round() {
        let linear = ColorScale { min: 1, max: 3 << 20, log: false };
        // 3 MiB / 6 = 512 KiB.
        assert_eq!(linear.ticks(true), (0..=6).map(|n| n << 19).collect::<Vec<_>>());
        assert_eq!(ColorScale { min: 1, max: 90, log: false }.ticks(false), [0, 20, 40, 60, 80]);
        assert_eq!(ColorScale { min: 5, max: 20_000, log: true }.ticks(false), [10, 100, 1000, 10_000]);
        // 31 powers of 2: every fifth makes 7.
        let wide = ColorScale { min: 1, max: 1 << 30, log: true };
        assert_eq!(wide.ticks(true), (0..=6).map(|n| 1 << (5 * n)).collect::<Vec<u64>>());
        assert_eq!(ColorScale { min: 1, max: 1, log: false }.ticks(false), [0, 1]);
        assert_eq!(
            axis(1.0, 5).iter().map(|(_, text)| &text[..]).collect::<Vec<_>>(),
            ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]
        );
        assert_eq!(steps().take(7).collect::<Vec<_>>(), [1, 2, 5, 10, 20, 50, 100]);
    }
}
