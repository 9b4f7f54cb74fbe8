//! Recorded captures distorted the way real fabrics and recorders distort them.
//!
//! A [`Recording`] is a capture file in memory. Every function here takes recordings and returns
//! recordings: it removes records ([`partial`]), deals them to several files ([`split`]), puts
//! recordings together ([`combine`]), renames endpoints and queue pairs ([`rewrite`]), or builds
//! the packets of other protocols ([`protocols`]). Nothing depends on anything but the arguments.
//!
//! A packet whose bytes change gets valid check sums again, so that the distortion is the only
//! difference between the result and a capture that a recorder could have written.

pub mod combine;
mod control;
pub mod frame;
pub mod partial;
pub mod protocols;
mod recording;
pub mod rewrite;
pub mod split;
mod transmission;

pub use recording::{Record, Recording};
pub use transmission::{Transmissions, transmissions};

#[cfg(test)]
mod tests;
