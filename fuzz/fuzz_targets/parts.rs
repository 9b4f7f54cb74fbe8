//! `ibscope_fuzz::parts` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::parts::run(bytes));
