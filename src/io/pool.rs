//! A few threads for calls that block: flushes and directory work of the syscall engine.
//!
//! Owns: the threads, their queue, the answers. Never does: start more than its cap, start any
//! before the first call, outlive its engine.
//! Left: `calls`, `wake`. Right: `syscall`.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

use super::calls::{Answer, Call};
use super::op::{Errno, Token};
use super::wake::Wake;

type Finished = (Token, Result<Answer, Errno>);

#[derive(Default)]
struct Queue {
    calls: VecDeque<(Token, Call)>,
    idle: usize,
    stop: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    ready: Condvar,
    wake: Arc<Wake>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no worker panics while it holds the queue")
    }
}

pub struct Workers {
    shared: Arc<Shared>,
    sender: Sender<Finished>,
    answers: Receiver<Finished>,
    threads: Vec<JoinHandle<()>>,
    threads_max: usize,
}

impl Workers {
    /// With `threads_max` 0 every call runs where it is submitted.
    pub fn new(threads_max: usize, wake: Arc<Wake>) -> Workers {
        let (sender, answers) = channel();
        let shared = Arc::new(Shared { queue: Mutex::default(), ready: Condvar::new(), wake });
        Workers { shared, sender, answers, threads: Vec::new(), threads_max }
    }

    pub fn are_inline(&self) -> bool {
        self.threads_max == 0
    }

    pub fn submit(&mut self, token: Token, call: Call) {
        let starved = {
            let queue = self.shared.lock();
            queue.idle <= queue.calls.len()
        };
        if starved && self.threads.len() < self.threads_max {
            self.start_one();
        }
        if self.threads.is_empty() {
            self.sender.send((token, call.run())).expect("the receiver lives in self");
            return;
        }
        self.shared.lock().calls.push_back((token, call));
        self.shared.ready.notify_one();
    }

    /// A thread that cannot be started is not an error: the others, or the caller, do its work.
    fn start_one(&mut self) {
        let shared = Arc::clone(&self.shared);
        let sender = self.sender.clone();
        let name = format!("io-worker-{}", self.threads.len());
        let spawned = std::thread::Builder::new().name(name).spawn(move || work(&shared, &sender));
        self.threads.extend(spawned.ok());
    }

    /// Takes a call back that no thread has begun. A close is never taken back: it is harmless,
    /// and its caller counts on it.
    pub fn cancel(&mut self, token: Token) -> bool {
        let mut queue = self.shared.lock();
        let is_it = |(t, call): &(Token, Call)| *t == token && !matches!(call, Call::Close(_));
        let Some(index) = queue.calls.iter().position(is_it) else { return false };
        queue.calls.remove(index);
        true
    }

    /// One finished call, if there is one.
    pub fn collect(&mut self) -> Option<Finished> {
        self.answers.try_recv().ok()
    }
}

fn work(shared: &Shared, sender: &Sender<Finished>) {
    let mut queue = shared.lock();
    loop {
        if let Some((token, call)) = queue.calls.pop_front() {
            drop(queue);
            let finished = (token, call.run());
            if sender.send(finished).is_ok() {
                shared.wake.wake();
            }
            queue = shared.lock();
        } else if queue.stop {
            return;
        } else {
            queue.idle += 1;
            queue = shared.ready.wait(queue).expect("no worker panics while it holds the queue");
            queue.idle -= 1;
        }
    }
}

impl Drop for Workers {
    /// Calls that no thread has begun still run: a flush that was asked for is not forgotten.
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.ready.notify_all();
        for thread in self.threads.drain(..) {
            // A worker that panicked has nothing left to wait for.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn collect(workers: &mut Workers, count: usize) -> Vec<Finished> {
        let mut finished = Vec::new();
        while finished.len() < count {
            finished.extend(workers.collect());
            std::thread::yield_now();
        }
        finished
    }

    #[test]
    fn every_call_is_answered_by_at_most_the_allowed_threads() {
        for threads_max in [0, 1, 3] {
            let mut workers = Workers::new(threads_max, Wake::new(true).unwrap());
            assert!(workers.threads.is_empty(), "no thread before the first call");
            for token in 0..100 {
                workers.submit(Token(token), Call::Stat(PathBuf::from("/")));
            }
            assert!(workers.threads.len() <= threads_max);
            let mut tokens: Vec<u64> =
                collect(&mut workers, 100).into_iter().map(|(token, _)| token.0).collect();
            tokens.sort_unstable();
            assert_eq!(tokens, (0..100).collect::<Vec<_>>());
            assert!(workers.collect().is_none());
        }
    }

    #[test]
    fn a_call_is_answered_or_cancelled_never_both() {
        let mut workers = Workers::new(1, Wake::new(true).unwrap());
        for token in 0..200 {
            workers.submit(Token(token), Call::Stat(PathBuf::from("/")));
        }
        let cancelled = (0..200).filter(|&token| workers.cancel(Token(token))).count();
        let answered = collect(&mut workers, 200 - cancelled).len();
        assert_eq!(answered + cancelled, 200);
        assert!(workers.collect().is_none());
    }
}
