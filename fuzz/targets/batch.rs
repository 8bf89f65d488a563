//! libFuzzer's way into `ringlog_fuzz::batch`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ringlog_fuzz::batch::run(bytes));
