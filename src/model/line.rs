//! The straight line between two clouds of points, and how far off it may be.
//!
//! The method is that of the convex hulls (A. Duda, G. Harrus, Y. Haddad, G. Bernard: *Estimating global time in distributed systems*, ICDCS
//! 1987): every packet from the first place to the second took some time, so the true difference of the clocks lies below what it shows; every packet
//! back lies above. A clock that runs evenly is a line, and it lies between the two clouds.

/// Largest difference between the rates of two clocks unless more is asked for: what a clock that is being slewed may have (500 ppm), each of them.
const MAX_SLOPE: f64 = 1e-3;
/// What two clocks that are not being slewed may have, generously. Few packets leave room for any slope: beyond this the smallest is taken.
const PLAUSIBLE_SLOPE: f64 = 2e-4;
/// Halvings that bring `2 * MAX_SLOPE` over a day of nanoseconds below a hundredth of one.
const STEPS: u32 = 90;

/// A point: time and difference of the clocks, both in nanoseconds from some origin.
pub type Point = (f64, f64);

/// Points that the line must not lie above (`upper`) or below (`lower`).
#[derive(Clone, Debug)]
pub struct Clouds {
    /// Those above.
    pub upper: Vec<Point>,
    /// Those below.
    pub lower: Vec<Point>,
    /// Largest slope that a line may have.
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
    /// Its value at `x = 0`.
    pub at: f64,
    /// What it gains for each `x`.
    pub slope: f64,
    /// Distance to the nearest points on either side; negative where no line lies between the clouds.
    pub margin: f64,
}

impl Clouds {
    /// Leaves the points that can touch a line; the others say nothing.
    pub fn reduce(&mut self) {
        hull(&mut self.upper, 1.0);
        hull(&mut self.lower, -1.0);
    }

    /// The line that keeps farthest away from both clouds, unless it would be steeper than it need be. `None` without points on both sides.
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

    /// How far a line between the clouds may be from `line` between two times, at most. Where no line lies between them: how far the points are on the
    /// wrong side of it.
    #[must_use]
    pub fn uncertainty(&self, line: &Line, (from, to): (f64, f64)) -> f64 {
        if line.margin < 0.0 {
            return -2.0 * line.margin;
        }
        // The slopes for which there is a line at all lie around that of the widest gap.
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
        // How far a line can be is a convex function of time, so it is farthest at one of the ends.
        [from, to].into_iter().fold(0.0, |most: f64, x| {
            let here = line.at + line.slope * x;
            let above = |slope: f64| self.top(slope) + slope * x - here;
            let below = |slope: f64| here - self.bottom(slope) - slope * x;
            most.max(above(highest(slopes, above))).max(below(highest(slopes, below)))
        })
    }

    /// Where lines of this slope meet the upper cloud, at `x = 0`.
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

/// Where a concave function is highest.
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

/// Leaves the corners of the convex hull, sorted by `x`: the lower ones with `side` 1, the upper ones with -1.
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

    /// Points of a clock that is `at` ahead and gains `slope`, with these times and transits.
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
        // 500 to either side at both ends, and nowhere more.
        assert!((line.margin - 500.0).abs() < 1e-3);
        assert!(
            (clouds.uncertainty(&line, (0.0, 1e9)) - 500.0).abs() < 0.1,
            "{}",
            clouds.uncertainty(&line, (0.0, 1e9))
        );
    }

    #[test]
    fn one_side_alone_says_nothing() {
        assert_eq!(clouds(0.0, 0.0, &[(0.0, 1.0)], &[]).fit(), None);
    }

    proptest! {
        /// Any transits, and any even clock: the truth is within the uncertainty.
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

        /// The hull touches what all points touch.
        #[test]
        fn nothing_is_lost_by_the_hull(points in prop::collection::vec((0.0..1e9, -1e6..1e6), 1..80), slope in -1e-3..1e-3) {
            let whole = Clouds { upper: points.clone(), lower: points, ..Clouds::default() };
            let mut reduced = whole.clone();
            reduced.reduce();
            prop_assert!((whole.top(slope) - reduced.top(slope)).abs() < 1e-3);
            prop_assert!((whole.bottom(slope) - reduced.bottom(slope)).abs() < 1e-3);
        }
    }

    /// Over a second, a hundredth of a ppm beyond the steepest line is 10 ns: more than transits of 4 ns leave room for.
    #[test]
    fn a_clock_steeper_than_any_is_no_line() {
        let times: Vec<(f64, f64)> = (0..=10).map(|n| (f64::from(n) * 1e8, 4.0)).collect();
        for (slope, is_line) in [(MAX_SLOPE, true), (MAX_SLOPE + 1e-8, false)] {
            let clouds = clouds(0.0, slope, &times, &times);
            let line = clouds.fit().unwrap();
            assert_eq!(line.margin >= 0.0, is_line, "{line:?}");
            // What no line fits is as uncertain as it is far off.
            assert!(is_line || clouds.uncertainty(&line, (0.0, 1e9)) > 1.0);
        }
    }
}
