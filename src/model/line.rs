//! Fits the straight line between two clouds of points, and bounds its error.
//!
//! The method of convex hulls (A. Duda, G. Harrus, Y. Haddad, G. Bernard: *Estimating global time
//! in distributed systems*, ICDCS 1987): every packet from the first place to the second takes some
//! time, so the true difference of the clocks lies below the measured one; for every packet back it
//! lies above. An evenly running clock is a straight line between the two clouds.

/// Default limit of the difference between the rates of two clocks, each of which may be slewed by
/// 500 ppm.
const MAX_SLOPE: f64 = 1e-3;
/// A generous difference between the rates of two clocks that are not slewed. Few packets allow any
/// slope: beyond this value the smallest possible slope is used.
const PLAUSIBLE_SLOPE: f64 = 2e-4;
/// Bisection steps that reduce `2 * MAX_SLOPE` over a day to below a hundredth of a nanosecond.
const STEPS: u32 = 90;

/// A point: time and difference of the clocks, both in nanoseconds from some origin.
pub type Point = (f64, f64);

/// Points that the line must not be above (`upper`) or below (`lower`).
#[derive(Clone, Debug)]
pub struct Clouds {
    /// Points above the line.
    pub upper: Vec<Point>,
    /// Points below the line.
    pub lower: Vec<Point>,
    /// Largest slope that the line may have.
    pub max_slope: f64,
}

impl Default for Clouds {
    fn default() -> Self {
        Self { upper: Vec::new(), lower: Vec::new(), max_slope: MAX_SLOPE }
    }
}

/// A line, `at + slope * x`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Value at `x = 0`.
    pub at: f64,
    /// Slope.
    pub slope: f64,
    /// Distance to the nearest points on either side; negative if no line separates the clouds.
    pub margin: f64,
}

impl Clouds {
    /// Keeps only the points that a line can touch.
    pub fn reduce(&mut self) {
        hull(&mut self.upper, 1.0);
        hull(&mut self.lower, -1.0);
    }

    /// The line with the largest distance to both clouds; a smaller slope is preferred beyond
    /// `PLAUSIBLE_SLOPE`. `None` without points on both sides.
    #[must_use]
    pub fn fit(&self) -> Option<Line> {
        if self.upper.is_empty() || self.lower.is_empty() {
            return None;
        }
        let mut slope = highest((-self.max_slope, self.max_slope), |slope| self.gap(slope));
        if slope.abs() > PLAUSIBLE_SLOPE {
            let (mut flat, mut steep) = (0.0, slope);
            if self.gap(flat) >= 0.0 {
                steep = flat;
            } else if self.gap(slope) >= 0.0 {
                for _ in 0..STEPS {
                    let middle = f64::midpoint(flat, steep);
                    if self.gap(middle) >= 0.0 { steep = middle } else { flat = middle }
                }
            }
            slope = steep;
        }
        let (top, bottom) = (self.top(slope), self.bottom(slope));
        Some(Line { at: f64::midpoint(top, bottom), slope, margin: (top - bottom) / 2.0 })
    }

    /// Largest distance between `line` and any line that separates the clouds, between two times.
    /// If no line separates them: how far points lie on the wrong side.
    #[must_use]
    pub fn uncertainty(&self, line: &Line, (from, to): (f64, f64)) -> f64 {
        if line.margin < 0.0 {
            return -2.0 * line.margin;
        }
        // The slopes of separating lines form an interval around the slope of the widest gap.
        let steepest = |beyond: f64| {
            let (mut inside, mut outside) = (line.slope, beyond);
            if self.gap(beyond) >= 0.0 {
                return beyond;
            }
            for _ in 0..STEPS {
                let middle = f64::midpoint(inside, outside);
                if self.gap(middle) >= 0.0 { inside = middle } else { outside = middle }
            }
            inside
        };
        let slopes = (steepest(-self.max_slope), steepest(self.max_slope));
        // The largest distance is a convex function of time, so its maximum is at one of the ends.
        [from, to].into_iter().fold(0.0, |most: f64, x| {
            let here = line.at + line.slope * x;
            let above = |slope: f64| self.top(slope) + slope * x - here;
            let below = |slope: f64| here - self.bottom(slope) - slope * x;
            most.max(above(highest(slopes, above))).max(below(highest(slopes, below)))
        })
    }

    /// Where lines of this slope touch the upper cloud, at `x = 0`.
    fn top(&self, slope: f64) -> f64 {
        self.upper.iter().map(|(x, y)| y - slope * x).fold(f64::INFINITY, f64::min)
    }

    fn bottom(&self, slope: f64) -> f64 {
        self.lower.iter().map(|(x, y)| y - slope * x).fold(f64::NEG_INFINITY, f64::max)
    }

    fn gap(&self, slope: f64) -> f64 {
        self.top(slope) - self.bottom(slope)
    }
}

/// The maximum position of a concave function.
fn highest((mut from, mut to): (f64, f64), of: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..2 * STEPS {
        let third = (to - from) / 3.0;
        if of(from + third) < of(to - third) {
            from += third;
        } else {
            to -= third;
        }
    }
    f64::midpoint(from, to)
}

/// Keeps the corners of the convex hull, sorted by `x`: the lower ones with `side` 1, the upper
/// ones with -1.
fn hull(points: &mut Vec<Point>, side: f64) {
    points.sort_by(|a, b| a.0.total_cmp(&b.0).then((side * a.1).total_cmp(&(side * b.1))));
    let mut corners: Vec<Point> = Vec::new();
    for &(x, y) in points.iter() {
        while let [.., (ax, ay), (bx, by)] = corners[..]
            && side * ((bx - ax) * (y - ay) - (by - ay) * (x - ax)) <= 0.0
        {
            corners.pop();
        }
        corners.push((x, y));
    }
    *points = corners;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Points of a clock that is `at` ahead and gains `slope`, with these times and transit times.
    fn clouds(at: f64, slope: f64, there: &[(f64, f64)], back: &[(f64, f64)]) -> Clouds {
        let point = |sign: f64| move |&(x, transit): &(f64, f64)| (x, at + slope * x + sign * transit);
        let mut clouds = Clouds {
            upper: there.iter().map(point(1.0)).collect(),
            lower: back.iter().map(point(-1.0)).collect(),
            ..Clouds::default()
        };
        clouds.reduce();
        clouds
    }

    #[test]
    fn equal_transits_give_the_clock_itself() {
        let times: Vec<(f64, f64)> = (0..=10).map(|n| (f64::from(n) * 1e8, 500.0)).collect();
        let clouds = clouds(1234.0, 20e-6, &times, &times);
        let line = clouds.fit().unwrap();
        assert!((line.at - 1234.0).abs() < 1e-3 && (line.slope - 20e-6).abs() < 1e-12, "{line:?}");
        // 500 to either side at both ends, and less in between.
        assert!((line.margin - 500.0).abs() < 1e-3);
        assert!(
            (clouds.uncertainty(&line, (0.0, 1e9)) - 500.0).abs() < 0.1,
            "{}",
            clouds.uncertainty(&line, (0.0, 1e9))
        );
    }

    #[test]
    fn points_on_one_side_give_no_line() {
        assert_eq!(clouds(0.0, 0.0, &[(0.0, 1.0)], &[]).fit(), None);
    }

    proptest! {
        /// With any transit times and any evenly running clock, the truth is within the
        /// uncertainty.
        #[test]
        fn the_truth_is_within_the_uncertainty(
            at in -1e9..1e9,
            slope in -4e-4..4e-4,
            there in prop::collection::vec((0.0..1e10, 0.0..1e6), 1..60),
            back in prop::collection::vec((0.0..1e10, 0.0..1e6), 1..60),
        ) {
            let clouds = clouds(at, slope, &there, &back);
            let line = clouds.fit().unwrap();
            prop_assert!(line.margin > -1e-3, "{:?}", line);
            let uncertainty = clouds.uncertainty(&line, (0.0, 1e10));
            for x in [0.0, 3e9, 1e10] {
                let error = (line.at + line.slope * x - at - slope * x).abs();
                prop_assert!(error <= uncertainty + 0.01, "{error} at {x}, not {uncertainty}");
            }
        }

        /// The hull and all points touch the same lines.
        #[test]
        fn the_hull_touches_the_same_lines_as_all_points(points in prop::collection::vec((0.0..1e9, -1e6..1e6), 1..80), slope in -1e-3..1e-3) {
            let whole = Clouds { upper: points.clone(), lower: points, ..Clouds::default() };
            let mut reduced = whole.clone();
            reduced.reduce();
            prop_assert!((whole.top(slope) - reduced.top(slope)).abs() < 1e-3);
            prop_assert!((whole.bottom(slope) - reduced.bottom(slope)).abs() < 1e-3);
        }
    }

    /// Over one second, 0.01 ppm beyond the largest slope is 10 ns: more than transit times of 4 ns
    /// allow.
    #[test]
    fn a_clock_beyond_the_largest_slope_has_no_line() {
        let times: Vec<(f64, f64)> = (0..=10).map(|n| (f64::from(n) * 1e8, 4.0)).collect();
        for (slope, is_line) in [(MAX_SLOPE, true), (MAX_SLOPE + 1e-8, false)] {
            let clouds = clouds(0.0, slope, &times, &times);
            let line = clouds.fit().unwrap();
            assert_eq!(line.margin >= 0.0, is_line, "{line:?}");
            // Without a line the uncertainty is as large as the error.
            assert!(is_line || clouds.uncertainty(&line, (0.0, 1e9)) > 1.0);
        }
    }
}
