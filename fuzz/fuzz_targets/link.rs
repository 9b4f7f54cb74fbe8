//! `ibscope_fuzz::link` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::link::run(bytes));
