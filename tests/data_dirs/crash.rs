//! The crash sweep of the control thread: topics come and go, settings change, checkpoints and the
//! files beside them are replaced, and the machine stops after every single step of it.
//!
//! After any cut an acked creation is there, whole, with its id and settings; an acked deletion
//! does not come back; what was under way happened or not, never half; checkpoints are old or new,
//! whole; every directory is online. `RINGLOG_SEED=n` replays one seed.

use std::collections::BTreeMap;

use ringlog::format::checkpoint::parse_offsets;
use ringlog::format::name::PartitionDir;
use ringlog::io::sim::{Prng, World};
use ringlog::log::datadir::Checkpoint;
use ringlog::server::control::Phase;

use super::harness::Server;

const DIRS: [&str; 2] = ["/a", "/b"];

#[derive(Debug, PartialEq, Eq)]
struct Stopped;

/// A topic as its creator knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Known {
    partitions: usize,
    retention: String,
    /// None until an answer has told that it exists.
    id: Option<[u8; 16]>,
}

#[derive(Clone, Debug)]
enum Order {
    Create(&'static str, u32),
    Alter(&'static str),
    Delete(&'static str),
}

/// What the outside knows.
#[derive(Default)]
struct History {
    topics: BTreeMap<&'static str, Known>,
    /// The order that was not answered: its topic, as it is if the order was carried out.
    under_way: Option<(&'static str, Option<Known>)>,
    /// High watermarks that a checkpoint may show.
    marks: Vec<i64>,
}

impl History {
    /// Carries an order out; what it made of its topic counts once it is answered.
    fn act(&mut self, server: &mut Server, order: &Order, n: usize) -> Result<(), Stopped> {
        let retention = format!("{}", 100_000 + n);
        let (name, after) = match order {
            Order::Create(name, partitions) => {
                (*name, Some(Known { partitions: *partitions as usize, retention, id: None }))
            }
            Order::Alter(name) => (*name, Some(Known { retention, ..self.topics[name].clone() })),
            Order::Delete(name) => (*name, None),
        };
        self.under_way = Some((name, after.clone()));
        let value = after.as_ref().map_or("", |known| &known.retention);
        let answer = match order {
            Order::Create(_, partitions) => {
                server.create(name, *partitions, &[("segment.ms", value)])
            }
            Order::Alter(_) => server.alter(name, "segment.ms", value),
            Order::Delete(_) => server.delete(name),
        };
        if let Err(error) = answer {
            assert!(server.world.stopped(), "{order:?}: {error:?}");
            return Err(Stopped);
        }
        self.under_way = None;
        match after {
            Some(mut known) => {
                known.id = Some(server.topic(name).expect("it was acked").id);
                self.topics.insert(name, known);
            }
            None => drop(self.topics.remove(name)),
        }
        Ok(())
    }

    fn checkpoint(&mut self, server: &mut Server) -> Result<(), Stopped> {
        let next = self.marks.last().copied().unwrap_or(0) + 1;
        self.marks.push(next);
        server.mark(next);
        server.control.checkpoint();
        if server.world.stopped() {
            return Err(Stopped);
        }
        self.marks = vec![next];
        Ok(())
    }
}

/// One run of a server to its clean stop, and the start of the next.
fn live(world: &World, history: &mut History) -> Result<(), Stopped> {
    let mut server = Server::start(world, &DIRS).map_err(|_| Stopped)?;
    let orders = [
        Order::Create("t", 3),
        Order::Create("u", 1),
        Order::Alter("t"),
        Order::Delete("u"),
        Order::Create("u", 2),
        Order::Delete("t"),
        Order::Create("t", 1),
        Order::Alter("u"),
    ];
    for (n, order) in orders.iter().enumerate() {
        history.act(&mut server, order, n)?;
        if n % 2 == 1 {
            history.checkpoint(&mut server)?;
        }
        if n == 6 {
            server.remove_all();
        }
    }
    server.stop(&[]);
    if world.stopped() {
        return Err(Stopped);
    }
    let server = Server::start(world, &DIRS).map_err(|_| Stopped)?;
    if world.stopped() {
        return Err(Stopped);
    }
    assert!(server.specs.values().all(|spec| spec.clean), "the stop was clean");
    Ok(())
}

/// Starts on what is left, and holds it against what the outside knows.
fn judge(world: &World, history: &History, what: &str) -> Server {
    let server = Server::start(world, &DIRS);
    let server = server.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(server.control.phase(), Phase::Serving, "{what}");
    assert!(server.offline.is_empty(), "{what}: {:?}", server.offline);
    let under_way = |name: &str| history.under_way.as_ref().filter(|(it, _)| *it == name);
    for topic in server.catalogue.topics() {
        let name = topic.name.as_str();
        let found = Known {
            partitions: topic.partitions.len(),
            retention: topic.configs.first().map(|(_, v)| v.clone()).unwrap_or_default(),
            id: Some(topic.id),
        };
        let acked = history.topics.get(name);
        let begun = under_way(name).and_then(|(_, after)| after.as_ref());
        let is = |known: &Known| *known == Known { id: known.id.and(found.id), ..found.clone() };
        assert!(
            acked.into_iter().chain(begun).any(is),
            "{what}: {name} is {found:?}, not {acked:?} or {begun:?}"
        );
    }
    for name in history.topics.keys() {
        let may_be_gone = under_way(name).is_some_and(|(_, after)| after.is_none());
        assert!(may_be_gone || server.topic(name).is_some(), "{what}: {name} was acked, is gone");
    }
    for dir in DIRS {
        let path = format!("{dir}/{}", Checkpoint::Replication.file_name());
        let rows = parse_offsets(&world.read_file(path).unwrap_or_default()).expect("whole");
        for row in rows {
            let known = row.offset == 0 || history.marks.contains(&row.offset);
            assert!(known, "{what}: {row:?} is of no checkpoint that may be there");
        }
    }
    server
}

/// Everything can be deleted and is gone then; what was lost half way leaves no trace.
fn go_on(mut server: Server, what: &str) {
    let world = server.world.clone();
    let names: Vec<String> = server.catalogue.topics().iter().map(|t| t.name.clone()).collect();
    for name in &names {
        server.delete(name).unwrap_or_else(|error| panic!("{what}: {name}: {error:?}"));
    }
    server.create("t", 2, &[]).unwrap_or_else(|error| panic!("{what}: {error:?}"));
    server.delete("t").unwrap_or_else(|error| panic!("{what}: {error:?}"));
    server.remove_all();
    server.stop(&[]);
    for dir in DIRS {
        let mut left = world.list(dir);
        left.retain(|name| PartitionDir::parse(name).is_ok());
        assert_eq!(left, Vec::<String>::new(), "{what}: {dir}");
    }
    let server = Server::start(&world, &DIRS).unwrap();
    assert!(server.catalogue.topics().is_empty(), "{what}: deleted topics came back");
}

/// Cuts the run after each of its steps; gives how many cuts that were.
fn sweep(seed: u64) -> u64 {
    let steps = {
        let world = World::new(seed);
        live(&world, &mut History::default()).expect("nothing stops the first run");
        world.ops()
    };
    for n in 0..steps {
        let mut dice = Prng::new(seed.wrapping_mul(31).wrapping_add(n));
        let cut = dice.below(4);
        let what = format!("seed {seed} step {n} cut {cut}");
        let world = World::new(seed);
        world.cut_after(n);
        let mut history = History::default();
        assert_eq!(live(&world, &mut history), Err(Stopped), "{what}: the same steps");
        match cut {
            0 => world.kill(),
            1 => {
                // The power goes again while the next start is under way.
                world.power_cut();
                world.cut_after(1 + dice.below(60));
                drop(Server::start(&world, &DIRS));
                world.power_cut();
            }
            _ => world.power_cut(),
        }
        let server = judge(&world, &history, &what);
        match n % 2 {
            0 => go_on(server, &what),
            _ => {
                drop(server);
                world.power_cut();
                drop(judge(&world, &history, &format!("{what}, and again")));
            }
        }
    }
    steps
}

#[test]
fn d10_topics_checkpoints_and_identities_survive_every_cut() {
    let seeds = match std::env::var("RINGLOG_SEED") {
        Ok(seed) => vec![seed.parse().expect("RINGLOG_SEED is a number")],
        Err(_) => vec![1, 2, 3],
    };
    for seed in seeds {
        let cuts = sweep(seed);
        println!("seed {seed}: {cuts} cuts");
        assert!(cuts > 200, "a run of {cuts} steps tests little");
    }
}
