//! `ibscope_fuzz::tables` under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ibscope_fuzz::tables::run(bytes));
