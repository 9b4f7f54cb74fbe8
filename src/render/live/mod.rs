//! A capture while it grows, as a line of text or as a screen.

mod line;
mod percent;
mod screen;

pub use line::{header, line};
pub use screen::draw;

#[cfg(test)]
mod tests;
