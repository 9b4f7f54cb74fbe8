//! `ibscope_fuzz::packet` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::packet::run(bytes));
