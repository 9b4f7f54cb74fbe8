//! The speed of a link, and the time that packets take on it.

use std::str::FromStr;

/// Data rate of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    /// Width and rate in their usual spelling; empty for a plain data rate.
    name: String,
    /// Data rate after line coding, in Gbit/s.
    gbit_per_s: f64,
}

/// Signaling rate of one lane in Gbit/s, and the fraction of its bits that are data.
///
/// InfiniBand Architecture, volume 2: SDR to QDR encode 8 bits in 10, FDR10 to EDR 64 in 66. From
/// HDR on the code is 256 in 257 with a forward error correction that sends 544 symbols for 514,
/// together 16 in 17. The data rate of 4 lanes is 8, 16, 32, 40, 54.5, 100, 200, 400 and 800
/// Gbit/s.
const LANES: [(&str, f64, f64); 9] = [
    ("SDR", 2.5, 8.0 / 10.0),
    ("DDR", 5.0, 8.0 / 10.0),
    ("QDR", 10.0, 8.0 / 10.0),
    ("FDR10", 10.3125, 64.0 / 66.0),
    ("FDR", 14.0625, 64.0 / 66.0),
    ("EDR", 25.78125, 64.0 / 66.0),
    ("HDR", 53.125, 16.0 / 17.0),
    ("NDR", 106.25, 16.0 / 17.0),
    ("XDR", 212.5, 16.0 / 17.0),
];
/// Widths that InfiniBand defines.
const WIDTHS: [u32; 5] = [1, 2, 4, 8, 12];
/// Default width.
const USUAL_WIDTH: u32 = 4;
/// Accepted data rates in Gbit/s.
const POSSIBLE_GBIT_PER_S: std::ops::RangeInclusive<f64> = 1e-3..=1e5;

/// A text that is not a link speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a width and a rate like `4x EDR` (1x, 2x, 4x, 8x, 12x; SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR, XDR), or a data rate \
     like `100Gb/s`"
)]
pub struct UnknownSpeed;

impl Speed {
    /// The speed of a port for which `ibstat` prints this rate in Gbit/s; `None` if the rate does not
    /// show the data rate. Up to DDR, the printed rate includes the line code, and that of FDR is
    /// rounded; 40 may be QDR (32 Gbit/s) or FDR10 (40 Gbit/s).
    #[must_use]
    pub fn of_port_rate(gbits: f64) -> Option<Self> {
        let gbit_per_s = match (gbits * 10.0).round() as u32 {
            25 | 50 | 100 | 200 => gbits * 0.8,
            140 | 560 => gbits / 14.0 * 14.0625 * 64.0 / 66.0,
            250 | 500 | 1000 | 2000 | 4000 | 8000 => gbits,
            _ => return None,
        };
        Some(Self { name: String::new(), gbit_per_s })
    }

    /// Data rate in Gbit/s, which is also data bits per nanosecond.
    #[must_use]
    pub const fn gbit_per_s(&self) -> f64 {
        self.gbit_per_s
    }

    /// Time for `bits` bits in nanoseconds.
    #[must_use]
    pub fn bits_ns(&self, bits: u64) -> f64 {
        bits as f64 / self.gbit_per_s
    }

    /// Time for `bytes` bytes in nanoseconds.
    #[must_use]
    pub fn bytes_ns(&self, bytes: u64) -> f64 {
        self.bits_ns(bytes.saturating_mul(8))
    }

    /// Text form: `4x EDR (100 Gbit/s)`.
    #[must_use]
    pub fn describe(&self) -> String {
        let rate = format!("{:.2}", self.gbit_per_s);
        let rate = rate.trim_end_matches('0').trim_end_matches('.');
        if self.name.is_empty() { format!("{rate} Gbit/s") } else { format!("{} ({rate} Gbit/s)", self.name) }
    }
}

impl FromStr for Speed {
    type Err = UnknownSpeed;

    fn from_str(text: &str) -> Result<Self, UnknownSpeed> {
        // Bytes, not bits.
        if text.contains("GB") {
            return Err(UnknownSpeed);
        }
        let text = text.trim().to_ascii_uppercase();
        let rate = ["GBIT/S", "GBPS", "GB/S", "G"].iter().find_map(|unit| text.strip_suffix(unit));
        if let Some(rate) = rate {
            let gbit_per_s: f64 = rate.trim_end().parse().map_err(|_| UnknownSpeed)?;
            return POSSIBLE_GBIT_PER_S
                .contains(&gbit_per_s)
                .then_some(Self { name: String::new(), gbit_per_s })
                .ok_or(UnknownSpeed);
        }
        let (width, lane) = match text.split_once('X') {
            // `XDR` without a width splits into an empty width.
            Some((width, lane)) if !width.is_empty() => (width.trim().parse().map_err(|_| UnknownSpeed)?, lane.trim()),
            _ => (USUAL_WIDTH, text.as_str()),
        };
        let (name, signals, share) = LANES.into_iter().find(|(name, ..)| *name == lane).ok_or(UnknownSpeed)?;
        if !WIDTHS.contains(&width) {
            return Err(UnknownSpeed);
        }
        Ok(Self { name: format!("{width}x {name}"), gbit_per_s: f64::from(width) * signals * share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_those_of_the_specification() {
        // Nominal data rates of four lanes; FDR has 54.54.
        let four = [
            ("SDR", 8.0),
            ("DDR", 16.0),
            ("QDR", 32.0),
            ("FDR10", 40.0),
            ("FDR", 54.545_454),
            ("EDR", 100.0),
            ("HDR", 200.0),
            ("NDR", 400.0),
            ("XDR", 800.0),
        ];
        for (name, gbit_per_s) in four {
            for text in [format!("4x {name}"), format!("4X{name}"), name.to_lowercase()] {
                let speed: Speed = text.parse().expect("speed");
                assert!((speed.gbit_per_s() - gbit_per_s).abs() < 1e-5, "{text}: {speed:?}");
            }
            let double: Speed = format!("8x {name}").parse().expect("speed");
            assert!((double.gbit_per_s() - 2.0 * gbit_per_s).abs() < 1e-5);
        }
        assert_eq!("4x EDR".parse::<Speed>().expect("speed").describe(), "4x EDR (100 Gbit/s)");
        assert_eq!("fdr".parse::<Speed>().expect("speed").describe(), "4x FDR (54.55 Gbit/s)");
    }

    /// Rates that `ibstat` prints for four lanes, and the data rates of the specification.
    #[test]
    fn port_rates_have_the_data_rate_of_their_generation() {
        for (printed, name) in
            [(10.0, "SDR"), (20.0, "DDR"), (56.0, "FDR"), (100.0, "EDR"), (200.0, "HDR"), (400.0, "NDR")]
        {
            let speed = Speed::of_port_rate(printed).expect("a known rate");
            let expected: Speed = format!("4x {name}").parse().expect("speed");
            assert!((speed.gbit_per_s() - expected.gbit_per_s()).abs() < 1e-9, "{name}: {speed:?}");
        }
        // QDR or FDR10; and no rate at all.
        assert_eq!([40.0, 0.0, 7.0, -1.0, f64::NAN].map(Speed::of_port_rate), [const { None }; 5]);
    }

    #[test]
    fn plain_data_rates_are_accepted() {
        for text in ["100Gb/s", "100 Gbit/s", "100G", "100gbps"] {
            let speed: Speed = text.parse().expect("speed");
            assert_eq!((speed.gbit_per_s(), speed.describe().as_str()), (100.0, "100 Gbit/s"), "{text}");
        }
        let speed: Speed = "100G".parse().expect("speed");
        // 4122 bytes are 32 976 bits; a pause quantum is 512 bits.
        assert_eq!((speed.bytes_ns(4122), speed.bits_ns(512)), (329.76, 5.12));
        for text in [
            "",
            "fast",
            "3x EDR",
            "x EDR",
            "4x",
            "0G",
            "-1G",
            "infG",
            "nanG",
            "1e9G",
            "1e-30Gb/s",
            "100",
            "4x 100G",
            "100GB/s",
        ] {
            assert_eq!(text.parse::<Speed>(), Err(UnknownSpeed), "{text}");
        }
    }
}
