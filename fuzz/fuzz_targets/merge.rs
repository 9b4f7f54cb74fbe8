//! `ibscope_fuzz::merge` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::merge::run(bytes));
