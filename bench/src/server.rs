//! The server under test: this binary again, as a child process on a core of its own.
//!
//! Owns: starting, asking, stopping and accounting it; the one place that knows the library's
//! server. Never does: load it. Left: `ringlog`, `sys`, `meter`. Right: `quick`, `main`.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ringlog::protocol::api::{Message, Request, encode_request};
use ringlog::protocol::hello::{HelloRequest, HelloResponse};
use ringlog::protocol::metadata::{MetadataRequest, MetadataResponse};
use ringlog::protocol::topics::{CreateRequest, CreateResponse};
use ringlog::server::config::Flags;
use ringlog::server::run;
use ringlog::types::Handle;

use crate::load::wire::{self, HEAD_LEN};
use crate::meter;
use crate::sys;

/// The line that says a shard takes connections; HOST:PORT follows.
const LISTENING: &str = "listening on ";
const START_MAX: Duration = Duration::from_secs(15);
const STOP_MAX: Duration = Duration::from_secs(15);
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Lines of its standard error that are kept for a message about its end.
const LAST_WORDS: usize = 8;
/// Variables of the environment that set the server.
const SETTINGS: &str = "RINGLOG_";
const TOPIC: &str = "bench";

/// How the child is called.
#[derive(clap::Args)]
pub struct Serve {
    /// The core to run on
    #[arg(long)]
    cpu: Option<usize>,
    #[command(flatten)]
    flags: Flags,
}

/// What runs in the child: the server, on one core if told.
pub fn serve(Serve { cpu, flags }: Serve) -> Result<(), String> {
    sys::end_with_parent().map_err(|error| format!("prctl: {error}"))?;
    if let Some(cpu) = cpu {
        sys::pin_to(cpu).map_err(|error| format!("pinning to core {cpu}: {error}"))?;
    }
    run(flags).map_err(|error| error.to_string())
}

/// How a row wants its server.
pub struct Setup<'a> {
    pub data_dir: &'a Path,
    pub flush: &'a str,
    pub fetch_path: &'a str,
    pub engine: &'a str,
    pub cpu: Option<usize>,
}

pub struct Server {
    child: Child,
    pub addr: SocketAddr,
    last_words: Arc<Mutex<VecDeque<String>>>,
}

/// What the server says of itself.
#[derive(Clone, Debug)]
pub struct Greeting {
    pub engine: String,
    pub promise: String,
}

/// The partition that a row writes or reads.
#[derive(Copy, Clone, Debug)]
pub struct Partition {
    pub handle: Handle,
    pub start: i64,
    pub end: i64,
}

impl Server {
    pub fn start(setup: &Setup<'_>) -> io::Result<Server> {
        std::fs::create_dir_all(setup.data_dir)?;
        let cpu = setup.cpu.map(|cpu| format!("--cpu={cpu}"));
        let mut command = Command::new(std::env::current_exe()?);
        // The row says how its server is set, nobody's environment.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with(SETTINGS) {
                command.env_remove(name);
            }
        }
        let mut child = command
            .arg("__serve")
            .args(cpu)
            .args(["--shards", "1", "--listen", "127.0.0.1:0"])
            .args(["--engine", setup.engine, "--flush", setup.flush])
            .args(["--fetch-path", setup.fetch_path])
            .arg("--data-dir")
            .arg(setup.data_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let lines = read_lines(child.stdout.take());
        let last_words = keep_last_words(child.stderr.take());
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Server { child, addr: nowhere, last_words };
        server.addr = server.wait_until_listening(&lines)?;
        Ok(server)
    }

    fn wait_until_listening(&mut self, lines: &Receiver<String>) -> io::Result<SocketAddr> {
        let deadline = Instant::now() + START_MAX;
        loop {
            match lines.recv_timeout(Duration::from_millis(20)) {
                Ok(line) => {
                    if let Some(at) = line.split_once(LISTENING).map(|(_, at)| at) {
                        return parse_address(at);
                    }
                }
                Err(_) if self.child.try_wait()?.is_some() => {
                    return Err(io::Error::other(format!("server ended: {}", self.said())));
                }
                Err(_) if Instant::now() >= deadline || sys::stopped() => {
                    let said = self.said();
                    return Err(io::Error::other(format!("server does not listen: {said}")));
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn said(&self) -> String {
        // Its last line may still be on its way through the pipe.
        std::thread::sleep(Duration::from_millis(20));
        let words = self.last_words.lock().map(|words| words.iter().cloned().collect::<Vec<_>>());
        words.ok().filter(|words| !words.is_empty()).map_or("no word".into(), |all| all.join("; "))
    }

    /// CPU seconds so far: the process whole, ended threads and ring workers included.
    pub fn cpu_seconds(&self) -> io::Result<f64> {
        meter::process_cpu(self.child.id())
    }

    pub fn greet(&self) -> io::Result<Greeting> {
        greet(self.addr)
    }

    /// Makes the topic of a row: one partition.
    pub fn create_topic(&self) -> io::Result<Partition> {
        create_topic(self.addr)
    }

    /// The topic of an earlier row, found again in the same directory.
    pub fn find_topic(&self) -> io::Result<Partition> {
        find_topic(self.addr)
    }

    /// SIGTERM, and its orderly end.
    pub fn stop(mut self) -> io::Result<()> {
        sys::terminate(&self.child)?;
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return match status.success() {
                    true => Ok(()),
                    false => Err(io::Error::other(format!("{status}: {}", self.said()))),
                };
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err(io::Error::other("the server did not stop")) // dropping kills it
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended by itself, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn greet(addr: SocketAddr) -> io::Result<Greeting> {
    let request = HelloRequest { client: "ringlog-bench", token: None };
    ask(addr, &request, |hello: HelloResponse<'_>| Greeting {
        engine: hello.engine.to_string(),
        promise: hello.promise.to_string(),
    })
}

fn create_topic(addr: SocketAddr) -> io::Result<Partition> {
    let request = CreateRequest { name: TOPIC, partitions: 1, configs: Vec::new() };
    let placed = ask(addr, &request, |made: CreateResponse<'_>| made.partitions.first().copied())?;
    let placed = placed.ok_or_else(|| io::Error::other("a topic without partitions"))?;
    Ok(Partition { handle: placed.handle, start: 0, end: 0 })
}

fn find_topic(addr: SocketAddr) -> io::Result<Partition> {
    let request = MetadataRequest::Names(vec![TOPIC]);
    let found = ask(addr, &request, |metadata: MetadataResponse<'_>| {
        metadata.topics.first().and_then(|topic| topic.partitions.first().copied())
    })?;
    match found {
        Some(meta) if meta.error != 0 => {
            Err(io::Error::other(format!("partition error {}", meta.error)))
        }
        Some(meta) if meta.start < 0 || meta.high_watermark <= meta.start => {
            Err(io::Error::other("the topic of the produce row holds nothing to read"))
        }
        Some(meta) => {
            Ok(Partition { handle: meta.handle, start: meta.start, end: meta.high_watermark })
        }
        None => Err(io::Error::other("the topic of the produce row is gone")),
    }
}

/// One request on a connection of its own; `take` keeps what is wanted of the answer.
fn ask<'a, R: Request<'a>, T>(
    addr: SocketAddr,
    request: &R,
    take: impl for<'r> FnOnce(R::Response<'r>) -> T,
) -> io::Result<T> {
    let mut frame = Vec::new();
    encode_request(request, 1, &mut frame).map_err(io::Error::other)?;
    let mut stream = TcpStream::connect_timeout(&addr, ANSWER_MAX)?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.write_all(&frame)?;
    let mut head = [0; HEAD_LEN];
    stream.read_exact(&mut head)?;
    let len = wire::response_len(&head)?.unwrap_or(HEAD_LEN);
    let mut body = vec![0; len - HEAD_LEN];
    stream.read_exact(&mut body)?;
    Message::parse(&body).map(take).map_err(io::Error::other)
}

fn parse_address(text: &str) -> io::Result<SocketAddr> {
    let word = text.split_whitespace().next().unwrap_or("");
    let wrong = || io::Error::other(format!("'{text}' is no address"));
    word.to_socket_addrs().map_err(|_| wrong())?.next().ok_or_else(wrong)
}

/// Lines as they come; reading goes on to the end, or a full pipe would stop the server.
fn read_lines(from: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (sender, lines) = channel();
    if let Some(from) = from {
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                let _ = sender.send(line); // nobody listens once it has started
            }
        });
    }
    lines
}

fn keep_last_words(from: Option<impl Read + Send + 'static>) -> Arc<Mutex<VecDeque<String>>> {
    let words = Arc::new(Mutex::new(VecDeque::new()));
    let kept = Arc::clone(&words);
    if let Some(from) = from {
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                let Ok(mut words) = kept.lock() else { return };
                if words.len() == LAST_WORDS {
                    words.pop_front();
                }
                words.push_back(line);
            }
        });
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringlog::protocol::api::{Api, encode_response};
    use ringlog::protocol::metadata::{PartitionMeta, TopicMeta};
    use ringlog::protocol::topics::Placed;
    use ringlog::types::ShardId;
    use std::net::TcpListener;

    /// Answers one request with `response`, whatever it asks; gives back the api asked.
    fn answer<'m, M: Message<'m>>(
        api: Api,
        response: &M,
    ) -> (SocketAddr, std::thread::JoinHandle<u8>) {
        let mut frame = Vec::new();
        encode_response(api, 1, response, &mut frame).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let asked = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut head = [0; HEAD_LEN];
            stream.read_exact(&mut head).unwrap();
            let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
            let mut body = vec![0; length + 4 - HEAD_LEN];
            stream.read_exact(&mut body).unwrap();
            stream.write_all(&frame).unwrap();
            head[4]
        });
        (addr, asked)
    }

    #[test]
    fn a_new_topic_gives_its_handle() {
        let placed = Placed { handle: Handle(77), shard: ShardId(0) };
        let made = CreateResponse { id: [1; 16], partitions: vec![placed], notices: vec![] };
        let (addr, asked) = answer(Api::CreateTopic, &made);
        assert_eq!(create_topic(addr).unwrap().handle, Handle(77));
        assert_eq!(asked.join().unwrap(), Api::CreateTopic.to_wire());
    }

    fn find(start: i64, high_watermark: i64, error: i16) -> io::Result<Partition> {
        let (index, handle, shard) = (0, Handle(5), ShardId(0));
        let meta = PartitionMeta { index, handle, shard, start, high_watermark, error };
        let topic = TopicMeta { name: TOPIC, id: [1; 16], error: 0, partitions: vec![meta] };
        let metadata = MetadataResponse { cluster_id: "c", server_id: 1, topics: vec![topic] };
        let (addr, asked) = answer(Api::Metadata, &metadata);
        let found = find_topic(addr);
        assert_eq!(asked.join().unwrap(), Api::Metadata.to_wire());
        found
    }

    #[test]
    fn an_old_topic_gives_its_range_or_says_what_is_wrong() {
        let found = find(3, 90, 0).unwrap();
        assert_eq!((found.handle, found.start, found.end), (Handle(5), 3, 90));
        assert!(find(0, 0, 0).unwrap_err().to_string().contains("nothing to read"));
        assert!(find(-1, -1, 0).is_err());
        assert!(find(0, 90, 56).unwrap_err().to_string().contains("56"));
    }

    #[test]
    fn an_address_is_the_word_behind_listening_on() {
        assert_eq!(parse_address("127.0.0.1:7440").unwrap().port(), 7440);
        assert_eq!(parse_address("127.0.0.1:7440 (shard 0)").unwrap().port(), 7440);
        assert!(parse_address("nowhere").is_err());
        assert!(parse_address("").is_err());
    }

    #[test]
    fn last_words_are_the_last_ones() {
        let text: String = (0..20).map(|n| format!("line {n}\n")).collect();
        let words = keep_last_words(Some(io::Cursor::new(text.into_bytes())));
        let deadline = Instant::now() + Duration::from_secs(5);
        while words.lock().unwrap().back().is_none_or(|last| last != "line 19") {
            assert!(Instant::now() < deadline);
            std::thread::yield_now();
        }
        assert_eq!(words.lock().unwrap().len(), LAST_WORDS);
    }
}
