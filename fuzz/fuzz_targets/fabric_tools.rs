//! `ibscope_fuzz::fabric_tools` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::fabric_tools::run(bytes));
