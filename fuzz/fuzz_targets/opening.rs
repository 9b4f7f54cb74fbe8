//! `ibscope_fuzz::opening` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::opening::run(bytes));
