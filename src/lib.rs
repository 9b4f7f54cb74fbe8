//! ibscope: captured InfiniBand and RoCE traffic of MPI jobs -> who sent how much to whom, and when.
//!
//! The way of the data, stage by stage (each a module that knows none of the others, see ARCHITECTURE.md):
//!
//! 1. [`input`] opens paths, `-` and FIFOs, decompresses, and cuts the bytes into batches at record ends.
//! 2. [`decode`] turns a batch into 32-byte packet records ([`model::PacketRecord`]). [`align`] holds the clocks of several inputs against each
//!    other beforehand.
//! 3. [`flow`] follows sequence numbers and messages per connection.
//! 4. [`reduce`] sums up per connection and bin of time, and settles mirror copies and inputs at the end.
//! 5. [`ranks`] says which MPI library and which rank is behind a connection.
//! 6. [`profile`] writes and reads the result, a folder of JSON and Parquet.
//! 7. [`analysis`] computes the numbers that outputs show from a profile, and [`render`] writes and draws them.
//!
//! [`scratch`] is where results are written until they are whole.
//!
//! [`anonymize`] stands beside this: it writes a capture that others may see.
//!
//! [`pipeline`] wires them together and is where a program that uses the library starts:
//!
//! ```no_run
//! # fn main() -> Result<(), ibscope::pipeline::Error> {
//! let options = ibscope::pipeline::Options::default();
//! let profile = ibscope::pipeline::analyze(&["sink.pcap.zst".into()], &options, &|_bytes| {})?;
//! for connection in &profile.connections {
//!     assert!(connection.traffic.wire_bytes >= connection.traffic.payload_bytes);
//! }
//! # Ok(())
//! # }
//! ```

pub mod align;
pub mod analysis;
pub mod anonymize;
pub mod cli;
pub mod crosscheck;
pub mod decode;
pub mod flow;
pub mod input;
pub mod model;
pub mod pipeline;
pub mod profile;
pub mod ranks;
pub mod reduce;
pub mod render;
pub mod scratch;
