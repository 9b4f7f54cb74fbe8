//! Shared by the commands: groups of arguments, their parsers, and access to inputs and outputs.

pub(super) mod archives;
pub(super) mod arguments;
pub(super) mod choices;
pub(super) mod files;
pub(super) mod input;
pub(super) mod job_choice;
pub(super) mod manifest;
pub(super) mod output;
pub(super) mod parse;
mod prose;
pub(super) mod repeated;
pub(super) mod usage;
