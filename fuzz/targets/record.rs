//! libFuzzer's way into `ringlog_fuzz::record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringlog_fuzz::record::run(bytes));
