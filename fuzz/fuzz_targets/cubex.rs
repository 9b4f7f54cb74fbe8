//! `ibscope_fuzz::cubex` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::cubex::run(bytes));
