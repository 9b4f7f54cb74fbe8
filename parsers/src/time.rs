//! Converts ticks of a capture clock to nanoseconds since the epoch.
//!
//! In: a tick count in any unit that pcapng can express (`if_tsresol`, pcapng specification section
//! 4.2) and an offset in whole seconds. Out: `i64` nanoseconds, rounded toward minus infinity and
//! saturated to the range of `i64`.

use crate::error::ParseError;
use crate::layer::Layer;

const NS_PER_S: i128 = 1_000_000_000;

/// Length of one tick of a capture clock: 10^-0 to 10^-19 s or 2^-0 to 2^-63 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resolution(Tick);

/// Conversion of ticks to nanoseconds. No variant divides 128 bits by a variable, which would be
/// slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Tick {
    /// One tick is this many whole nanoseconds.
    Nanoseconds(u64),
    /// This many ticks are one nanosecond.
    PerNanosecond(u64),
    /// Two to this power ticks are one second.
    Binary(u8),
}

impl Resolution {
    /// Ticks of 10^-6 s: classic pcap, and pcapng without `if_tsresol`.
    pub const MICROSECONDS: Self = Self(Tick::Nanoseconds(1_000));
    /// Ticks of 10^-9 s.
    pub const NANOSECONDS: Self = Self(Tick::Nanoseconds(1));
    /// Ticks of 2^-32 s: ERF.
    pub const ERF: Self = Self(Tick::Binary(32));

    /// Decodes the byte of the pcapng option `if_tsresol`: 10^-n s, or 2^-n s if its top bit is
    /// set.
    ///
    /// # Errors
    /// `Invalid` for powers of ten above 19, whose ticks per second do not fit in 64 bits, and for
    /// powers of two above 63.
    pub const fn from_tsresol(byte: u8) -> Result<Self, ParseError> {
        let exponent = byte & 0x7F;
        let tick = match (byte & 0x80 != 0, exponent) {
            (false, 0..=9) => Tick::Nanoseconds(10_u64.pow(9 - exponent as u32)),
            (false, 10..=19) => Tick::PerNanosecond(10_u64.pow(exponent as u32 - 9)),
            (true, 0..=63) => Tick::Binary(exponent),
            _ => return Err(ParseError::invalid(Layer::PcapngBlock, "if_tsresol", byte as u64)),
        };
        Ok(Self(tick))
    }

    /// Length of a tick in nanoseconds, rounded up: the resolution of the times that
    /// [`Resolution::to_ns`] returns.
    #[must_use]
    pub const fn step_ns(self) -> u64 {
        match self.0 {
            Tick::Nanoseconds(length_ns) => length_ns,
            Tick::PerNanosecond(_) => 1,
            Tick::Binary(exponent) => 1_000_000_000_u64.div_ceil(1 << exponent),
        }
    }

    /// Converts `ticks` of this unit plus `offset_s` seconds to nanoseconds, rounded toward minus
    /// infinity.
    ///
    /// The result is exact for every input; a time outside the range of `i64` (years 1677 to 2262)
    /// becomes the nearest value in range.
    #[must_use]
    pub fn to_ns(self, ticks: u64, offset_s: i64) -> i64 {
        // `ticks` is not negative and the offset is whole nanoseconds, so truncating the fraction
        // of `ticks` rounds toward minus infinity.
        let ticks_ns: i128 = match self.0 {
            Tick::Nanoseconds(length_ns) => i128::from(ticks) * i128::from(length_ns),
            Tick::PerNanosecond(ticks_per_ns) => i128::from(ticks / ticks_per_ns),
            Tick::Binary(exponent) => (i128::from(ticks) * NS_PER_S) >> exponent,
        };
        let time_ns = ticks_ns + i128::from(offset_s) * NS_PER_S;
        time_ns.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 1.5 s (7 s if the unit is a second) in ticks of every decimal unit.
    #[test]
    fn every_power_of_ten() {
        for n in 1..=19_u8 {
            let resolution = Resolution::from_tsresol(n).unwrap();
            let second = 10_u64.pow(u32::from(n));
            let half = second / 2;
            // 1.5 s are at most 1.5 * 10^19 ticks, which fits in u64.
            assert_eq!(resolution.to_ns(second + half, 0), 1_500_000_000, "10^-{n}");
            assert_eq!(resolution.to_ns(second - 1, 0), 1_000_000_000 - 10_i64.pow(9_u32.saturating_sub(n.into())));
        }
        assert_eq!(Resolution::from_tsresol(0).unwrap().to_ns(7, 0), 7_000_000_000);
    }

    #[test]
    fn every_power_of_two() {
        for n in 1..=63_u8 {
            let resolution = Resolution::from_tsresol(0x80 | n).unwrap();
            assert_eq!(resolution.to_ns((1 << n) + (1 << (n - 1)), 0), 1_500_000_000, "2^-{n}");
            // One tick before the second: 10^9 - 10^9/2^n, rounded down.
            let below_ns = 1_000_000_000 - 1_000_000_000_i64.checked_shr(n.into()).unwrap_or(0);
            let exact = i128::from(1_000_000_000) % (1_i128 << n) == 0;
            assert_eq!(resolution.to_ns((1 << n) - 1, 0), below_ns - i64::from(!exact), "2^-{n}");
        }
        assert_eq!(Resolution::from_tsresol(0x80).unwrap().to_ns(7, 0), 7_000_000_000);
    }

    #[test]
    fn a_step_is_a_tick_rounded_up() {
        let step_ns = |byte| Resolution::from_tsresol(byte).unwrap().step_ns();
        assert_eq!(
            [0, 6, 9, 12, 0x80, 0x8A, 0xA0, 0xBF].map(step_ns),
            [1_000_000_000, 1_000, 1, 1, 1_000_000_000, 976_563, 1, 1]
        );
    }

    #[test]
    fn units_that_do_not_exist() {
        for byte in 0..=u8::MAX {
            let accepted = if byte < 0x80 { byte <= 19 } else { byte - 0x80 <= 63 };
            assert_eq!(Resolution::from_tsresol(byte).is_ok(), accepted, "{byte:#x}");
        }
        let error = Resolution::from_tsresol(20).unwrap_err();
        assert_eq!(error, ParseError::invalid(Layer::PcapngBlock, "if_tsresol", 20));
    }

    #[test]
    fn named_units() {
        assert_eq!(Resolution::from_tsresol(6), Ok(Resolution::MICROSECONDS));
        assert_eq!(Resolution::from_tsresol(9), Ok(Resolution::NANOSECONDS));
        assert_eq!(Resolution::from_tsresol(0xA0), Ok(Resolution::ERF));
    }

    #[test]
    fn offset_is_signed_seconds() {
        assert_eq!(Resolution::MICROSECONDS.to_ns(1_500_000, -2), -500_000_000);
        assert_eq!(Resolution::NANOSECONDS.to_ns(1, 1_700_000_000), 1_700_000_000_000_000_001);
    }

    #[test]
    fn rounds_toward_minus_infinity() {
        // -1 s + 0.9 ns is -999999999.1 ns, and -1 s + 1.9 ns is -999999998.1 ns.
        let tenths = Resolution::from_tsresol(10).unwrap();
        assert_eq!(tenths.to_ns(9, -1), -1_000_000_000);
        assert_eq!(tenths.to_ns(19, -1), -999_999_999);
    }

    #[test]
    fn saturates() {
        let seconds = Resolution::from_tsresol(0).unwrap();
        assert_eq!(seconds.to_ns(u64::MAX, i64::MAX), i64::MAX);
        assert_eq!(seconds.to_ns(0, i64::MIN), i64::MIN);
        assert_eq!(seconds.to_ns(9_223_372_036, 0), 9_223_372_036_000_000_000);
        assert_eq!(seconds.to_ns(9_223_372_037, 0), i64::MAX);
        // Out of range before the offset is added, in range after it: 2^63 + 5 ticks less 2^63
        // seconds.
        assert_eq!(seconds.to_ns((1 << 63) + 5, i64::MIN), 5_000_000_000);
    }

    proptest! {
        /// By definition, the result is the largest n with n * ticks_per_second <= ticks * 10^9.
        #[test]
        fn floor_of_the_exact_quotient(byte in prop_oneof![0..=19_u8, 0x80..=0xBF_u8], ticks: u64) {
            let per_second = if byte < 0x80 { 10_u128.pow(byte.into()) } else { 1 << (byte - 0x80) };
            let scaled = u128::from(ticks) * 1_000_000_000;
            let ns = Resolution::from_tsresol(byte).unwrap().to_ns(ticks, 0);
            let exact = u128::try_from(ns).unwrap();
            prop_assert!(ns == i64::MAX || scaled - exact * per_second < per_second);
            prop_assert_eq!(ns == i64::MAX, scaled / per_second >= i64::MAX as u128);
        }

        #[test]
        fn never_panics(byte: u8, ticks: u64, offset_s: i64) {
            if let Ok(resolution) = Resolution::from_tsresol(byte) {
                let later = resolution.to_ns(ticks, offset_s);
                prop_assert!(later >= resolution.to_ns(0, offset_s));
            }
        }
    }
}
