//! What commands share: groups of arguments, how they are read, and how inputs and results are opened.

pub(super) mod arguments;
pub(super) mod choices;
pub(super) mod files;
pub(super) mod input;
pub(super) mod job_choice;
mod manifest;
pub(super) mod output;
pub(super) mod parse;
pub(super) mod usage;
