//! Discovery of nodes in the fabric from the output of the tools: recorded texts of a simulated
//! fabric, and texts derived from them for its other nodes. No program is run.

/// A recorded text, without the warnings of the simulator.
macro_rules! recorded {
    ($name:literal) => {
        plain(include_str!(concat!("../../../parsers/src/tools/fixtures/", $name, ".txt")))
    };
}

fn plain(text: &str) -> String {
    text.split_inclusive('\n').filter(|line| !line.starts_with("ibwarn: ")).collect()
}

mod faults;
mod inventory;
mod lab;
mod leaf_discovery;
mod ports;
