//! Which engines this machine allows, for tests that start the binary on each.

use ringlog::io::probe::Features;

pub fn engines() -> Vec<&'static str> {
    match Features::probe().io_uring.refused {
        None => vec!["syscall", "uring"],
        Some(why) => {
            println!("the ring is skipped: {why}");
            vec!["syscall"]
        }
    }
}
