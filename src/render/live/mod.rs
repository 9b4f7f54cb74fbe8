//! Progress of a growing capture, as lines of text or as a terminal screen.
//!
//! Both renderings take a [`LiveProgress`](crate::analysis::live::LiveProgress) and compute no
//! traffic numbers themselves.

mod line;
mod percent;
mod screen;

pub use line::{header, line};
pub use screen::{ScreenView, draw};

#[cfg(test)]
mod tests;
