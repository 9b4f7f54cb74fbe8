//! `ibscope_fuzz::pipeline` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::pipeline::run(bytes));
