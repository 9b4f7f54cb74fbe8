//! Arithmetic that the standard library does not have.

/// Greatest common divisor; with 0 the other number.
#[must_use]
pub const fn gcd(a: u64, b: u64) -> u64 {
    let (mut a, mut b) = (a, b);
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
