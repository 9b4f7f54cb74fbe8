//! Maps values to colors, the same in figures and on terminals.

/// The viridis color map at nine equidistant points, low to high. Its lightness increases steadily,
/// so it works in grayscale and for color-blind readers.
pub(crate) const VIRIDIS: [Rgb; 9] = [
    (68, 1, 84),
    (71, 44, 122),
    (59, 81, 139),
    (44, 113, 142),
    (33, 144, 141),
    (39, 173, 129),
    (92, 200, 99),
    (170, 220, 50),
    (253, 231, 37),
];

/// The part of the color map for values, from the smallest to the largest, on light and on dark
/// backgrounds. Larger values have more contrast with [`NONE_LIGHT`] or [`NONE_DARK`], and the smallest
/// has at least 3:1, which WCAG 2.1 requires of graphics.
pub(crate) const LIGHT_PART: (f64, f64) = (0.5, 0.0);
pub(crate) const DARK_PART: (f64, f64) = (0.46, 1.0);

/// Cells without traffic on light and on dark backgrounds, as in the style sheet of the report.
pub(crate) const NONE_LIGHT: Rgb = (236, 236, 234);
#[cfg(test)]
pub(crate) const NONE_DARK: Rgb = (38, 43, 48);

/// Red, green and blue.
pub(crate) type Rgb = (u8, u8, u8);

/// A mapping of values to positions on the color map.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ColorScale {
    /// The smallest value above 0.
    pub(crate) min: u64,
    /// The largest value.
    pub(crate) max: u64,
    /// True: logarithmic from `min`. False: linear from 0, because a linear scale that starts
    /// elsewhere exaggerates small differences.
    pub(crate) log: bool,
}

impl ColorScale {
    /// The scale for these values: logarithmic if they span more than a factor of 100, else linear.
    /// `None` if all values are 0.
    pub(crate) fn new(values: impl Iterator<Item = u64> + Clone) -> Option<Self> {
        let values = values.filter(|&value| value > 0);
        let (min, max) = (values.clone().min()?, values.max()?);
        Some(Self { min, max, log: max / min > 100 || (max / min == 100 && max % min > 0) })
    }

    /// The position of a value on the scale, 0 to 1.
    pub(crate) fn share(&self, value: u64) -> f64 {
        let (value, min, max) = (value as f64, self.min as f64, self.max as f64);
        if self.log { (value / min).ln() / (max / min).ln() } else { value / max }
    }
}

/// The viridis color at a position from 0 to 1.
pub(crate) fn viridis(share: f64) -> Rgb {
    let position = share.clamp(0.0, 1.0) * (VIRIDIS.len() - 1) as f64;
    let below = usize::try_from(position as i64).unwrap_or_default().min(VIRIDIS.len() - 2);
    let ((r0, g0, b0), (r1, g1, b1)) = (VIRIDIS[below], VIRIDIS[below + 1]);
    let part = position - below as f64;
    let mix = |low: u8, high: u8| {
        let mixed = f64::from(low) + part * (f64::from(high) - f64::from(low));
        u8::try_from(mixed.round() as i32).unwrap_or(u8::MAX)
    };
    (mix(r0, r1), mix(g0, g1), mix(b0, b1))
}

/// The color of a value at a position from 0 to 1, on a light background.
pub(crate) fn shade(share: f64) -> Rgb {
    let (low, high) = LIGHT_PART;
    viridis(low + share.clamp(0.0, 1.0) * (high - low))
}

/// True if black text has more contrast on this color than white text.
pub(crate) fn is_light((red, green, blue): Rgb) -> bool {
    let [red, green, blue] = [red, green, blue].map(|part| (f64::from(part) / 255.0).powf(2.2));
    // At this luminance l the WCAG contrast ratios to black and to white are equal:
    // (l + 0.05)² = 1.05 × 0.05.
    0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179
}

/// The index of the nearest color in the 6 x 6 x 6 color cube of 256-color terminals.
pub(crate) fn terminal((red, green, blue): Rgb) -> u8 {
    const LEVELS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    let nearest = |part: u8| (0..6u8).min_by_key(|level| LEVELS[usize::from(*level)].abs_diff(part)).unwrap_or(0);
    16 + 36 * nearest(red) + 6 * nearest(green) + nearest(blue)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_above_a_factor_of_100() {
        let scale = |values: &[u64]| ColorScale::new(values.iter().copied());
        assert_eq!(scale(&[0, 0]), None);
        assert_eq!(scale(&[0, 3, 300]), Some(ColorScale { min: 3, max: 300, log: false }));
        assert_eq!(scale(&[3, 301]), Some(ColorScale { min: 3, max: 301, log: true }));
        let log = ColorScale { min: 10, max: 100_000, log: true };
        // 1000 is two of the four decades from 10.
        assert!((log.share(1000) - 0.5).abs() < 1e-12);
        assert!((ColorScale { log: false, ..log }.share(25_000) - 0.25).abs() < 1e-12);
    }

    #[test]
    fn colors_go_from_dark_to_light() {
        assert_eq!(viridis(0.0), (68, 1, 84));
        assert_eq!(viridis(0.5), (33, 144, 141));
        assert_eq!(viridis(1.0), (253, 231, 37));
        // Halfway between the first two colors: (68 + 71) / 2, (1 + 44) / 2, (84 + 122) / 2.
        assert_eq!(viridis(1.0 / 16.0), (70, 23, 103));
        assert!(!is_light(viridis(0.0)) && is_light(viridis(1.0)));
    }

    /// Relative luminance as WCAG 2.1 defines it.
    fn luminance((red, green, blue): Rgb) -> f64 {
        let [red, green, blue] = [red, green, blue].map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let (a, b) = (luminance(a) + 0.05, luminance(b) + 0.05);
        a.max(b) / a.min(b)
    }

    /// WCAG 2.1, 1.4.11: parts of graphics have a contrast of 3:1 with the colors beside them.
    #[test]
    fn values_have_contrast_with_cells_without_traffic() {
        assert!((contrast((0, 0, 0), (255, 255, 255)) - 21.0).abs() < 1e-9);
        for ((low, high), none) in [(LIGHT_PART, NONE_LIGHT), (DARK_PART, NONE_DARK)] {
            let contrasts: Vec<f64> =
                (0..=100).map(|step| contrast(viridis(low + f64::from(step) / 100.0 * (high - low)), none)).collect();
            assert!(contrasts[0] >= 3.0 && contrasts[100] >= 3.0, "{contrasts:?}");
            assert!(contrasts.windows(2).all(|pair| pair[1] >= pair[0]), "larger values have more: {contrasts:?}");
        }
        assert!(contrast(viridis(1.0), NONE_LIGHT) < 1.5, "the whole map does not suffice on a light background");
        let style = include_str!("html/style.css");
        let colors: Vec<&str> = style.split("--none: ").skip(1).map(|rest| &rest[..7]).collect();
        let hex = |(red, green, blue): Rgb| format!("#{red:02x}{green:02x}{blue:02x}");
        assert_eq!(colors, [hex(NONE_LIGHT), hex(NONE_DARK), hex(NONE_DARK)]);
    }

    #[test]
    fn terminals_have_a_color_near_each() {
        // 253, 231, 37 -> 255, 215, 0 = 16 + 36 * 5 + 6 * 4 + 0.
        assert_eq!(terminal(viridis(1.0)), 220);
        // 33, 144, 141 -> 0, 135, 135 = 16 + 6 * 2 + 2.
        assert_eq!(terminal(viridis(0.5)), 30);
        assert_eq!([terminal((0, 0, 0)), terminal((255, 255, 255))], [16, 231]);
    }
}
