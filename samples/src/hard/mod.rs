//! Distorts recorded captures like real fabrics and recorders do.
//!
//! A [`Recording`] is a capture file in memory. Every function here takes recordings and returns
//! recordings: it removes records ([`partial`]), distributes them over several files ([`split`]),
//! combines recordings ([`combine`]), renames endpoints and queue pairs ([`rewrite`]), or builds
//! packets of other protocols ([`protocols`]). Results depend on the arguments only.
//!
//! Invariant: a packet whose bytes change gets valid checksums again, so the distortion is the only
//! difference from a capture that a recorder could have written.

pub mod combine;
mod control;
pub mod frame;
pub mod partial;
pub mod protocols;
mod recording;
pub mod rewrite;
pub mod split;
mod transmission;

pub use recording::{RecordedPacket, Recording};
pub use transmission::{TransmissionIndex, transmissions};

#[cfg(test)]
mod tests;
