//! The place of nodes in the fabric, from what the tools print: recorded texts of a simulated fabric, and such as follow from them for its other nodes.
//! No program is run.

/// A text that was recorded, without the warnings of the simulator.
macro_rules! recorded {
    ($name:literal) => {
        plain(include_str!(concat!("../../../parsers/src/tools/fixtures/", $name, ".txt")))
    };
}

fn plain(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with("ibwarn: ")).collect()
}

mod again;
mod faults;
mod lab;
mod ports;
mod ways;
