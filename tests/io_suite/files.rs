//! Bodies on files and names.

use ringlog::io::op::{OpenHow, Stat};
use ringlog::io::sim::Prng;
use ringlog::io::{Errno, FileId, Io, Op, Outcome};

use crate::bed::{Bed, CREATE, Rig, SEED, bytes_of, pattern};

pub fn opens_by_every_rule<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let path = rig.path("f");
    let read = OpenHow::default();
    assert_eq!(rig.errno(Op::Open { path: path.clone(), how: read }), Errno::ENOENT);
    let exclusive = OpenHow { exclusive: true, ..CREATE };
    let file = rig.open("f", exclusive);
    assert_eq!(rig.errno(Op::Open { path: path.clone(), how: exclusive }), Errno::EEXIST);
    rig.write(file, 0, b"content");
    let again = rig.create("f");
    assert_ne!(again, file);
    assert_eq!(rig.len(again), 7, "creating what is there keeps it");
    rig.open("f", OpenHow { truncate: true, ..CREATE });
    assert_eq!(rig.len(file), 0);
    let inside = rig.path("f/g");
    assert_eq!(rig.errno(Op::Open { path: inside, how: CREATE }), Errno::ENOTDIR);
    let nowhere = rig.path("no/g");
    assert_eq!(rig.errno(Op::Open { path: nowhere, how: CREATE }), Errno::ENOENT);
    let dir = rig.bed.dir().to_path_buf();
    assert_eq!(rig.errno(Op::Open { path: dir, how: CREATE }), Errno(libc::EISDIR));
    rig.settled();
}

pub fn names_are_made_moved_and_removed<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let (dir, a, b) = (rig.path("dir"), rig.path("dir/a"), rig.path("dir/b"));
    assert_eq!(rig.errno(Op::CreateDir { path: a.clone() }), Errno::ENOENT);
    rig.ok(Op::CreateDir { path: dir.clone() });
    assert_eq!(rig.errno(Op::CreateDir { path: dir.clone() }), Errno::EEXIST);
    let (first, second) = (rig.create("dir/a"), rig.create("dir/b"));
    rig.write(first, 0, b"first");
    rig.write(second, 0, b"other one");
    assert_eq!(rig.errno(Op::RemoveDir { path: dir.clone() }), Errno(libc::ENOTEMPTY));
    assert_eq!(rig.errno(Op::RemoveDir { path: a.clone() }), Errno::ENOTDIR);
    assert_eq!(rig.errno(Op::Unlink { path: dir.clone() }), Errno(libc::EISDIR));
    rig.ok(Op::Rename { from: a.clone(), to: b.clone() });
    assert_eq!(rig.errno(Op::Rename { from: a.clone(), to: b.clone() }), Errno::ENOENT);
    assert_eq!(rig.errno(Op::Rename { from: b.clone(), to: dir.clone() }), Errno(libc::ENOTEMPTY));
    let aside = rig.path("aside");
    rig.ok(Op::CreateDir { path: aside.clone() });
    assert_eq!(rig.errno(Op::Rename { from: b.clone(), to: aside.clone() }), Errno(libc::EISDIR));
    assert_eq!(rig.errno(Op::Rename { from: aside, to: b.clone() }), Errno::ENOTDIR);
    let inside = rig.path("dir/dir");
    assert_eq!(rig.errno(Op::Rename { from: dir.clone(), to: inside }), Errno::EINVAL);
    let moved = rig.open("dir/b", OpenHow::default());
    assert_eq!(rig.read(moved, 0, 100), b"first");
    assert_eq!(rig.read(second, 0, 100), b"other one", "an open file outlives its name");
    assert_eq!(names(&mut rig, "dir"), ["b"]);
    rig.ok(Op::SyncDir { path: dir.clone() });
    assert_eq!(rig.errno(Op::SyncDir { path: a.clone() }), Errno::ENOENT);
    assert_eq!(rig.errno(Op::SyncDir { path: b.clone() }), Errno::ENOTDIR);
    rig.ok(Op::Unlink { path: b.clone() });
    assert_eq!(rig.errno(Op::Unlink { path: b.clone() }), Errno::ENOENT);
    assert_eq!(rig.read(moved, 0, 100), b"first");
    rig.ok(Op::RemoveDir { path: dir.clone() });
    assert_eq!(rig.errno(Op::List { path: dir }), Errno::ENOENT);
    rig.settled();
}

fn names<B: Bed>(rig: &mut Rig<B>, dir: &str) -> Vec<String> {
    let path = rig.path(dir);
    let Outcome::Entries(entries) = rig.ok(Op::List { path }) else { panic!("no entries") };
    let mut names: Vec<String> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    names
}

pub fn lists_and_stats_tell_files_from_directories<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("file");
    rig.write(file, 0, &pattern(3000, 1));
    let path = rig.path("sub");
    rig.ok(Op::CreateDir { path: path.clone() });
    let dir = rig.bed.dir().to_path_buf();
    let Outcome::Entries(mut entries) = rig.ok(Op::List { path: dir }) else { panic!("entries") };
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let found: Vec<_> = entries.iter().map(|one| (one.name.as_str(), one.is_dir)).collect();
    assert_eq!(found, [("file", false), ("sub", true)]);
    let wall = rig.io.wall_ms();
    let Outcome::Stat(stat) = rig.ok(Op::Stat { path: rig.path("file") }) else { panic!("stat") };
    assert_eq!((stat.len, stat.is_dir), (3000, false));
    assert!((stat.modified_ms - wall).abs() < 3_600_000, "the same clock: {stat:?}, {wall}");
    let Outcome::Stat(Stat { is_dir, .. }) = rig.ok(Op::Stat { path }) else { panic!("stat") };
    assert!(is_dir);
    assert_eq!(rig.errno(Op::Stat { path: rig.path("none") }), Errno::ENOENT);
    assert_eq!(rig.errno(Op::List { path: rig.path("file") }), Errno::ENOTDIR);
    rig.settled();
}

pub fn reads_end_at_the_end_of_the_file<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("f");
    let bytes = pattern(10_000, 7);
    rig.write(file, 0, &bytes);
    assert_eq!(rig.read(file, 0, 4096), bytes[..4096]);
    assert_eq!(rig.read(file, 9_000, 4096), bytes[9_000..]);
    assert_eq!(rig.read(file, 10_000, 10), b"");
    assert_eq!(rig.read(file, 1 << 30, 10), b"");
    // A read fills spare room only, behind what is there, and never more than `max`.
    let mut into = rig.window(100);
    into.extend_from_slice(b"kept");
    let done = rig.run(Op::Read { file, pos: 100, max: 6, into });
    let Op::Read { into, .. } = done.op else { panic!("another op came back") };
    assert_eq!(into.bytes(), [b"kept", &bytes[100..106]].concat());
    let done = rig.run(Op::Read { file, pos: 0, max: u32::MAX, into });
    assert_eq!(bytes_of(done.result.unwrap()), 4096 - 10, "the room of the smallest chunk");
    drop(done.op);
    rig.settled();
}

/// R66: each write says where, whatever order they complete in.
pub fn writes_in_flight_land_where_they_say<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("f");
    let mut tags = Vec::new();
    let bytes = pattern(16 * 4096, 3);
    for (i, block) in bytes.chunks(4096).enumerate().rev() {
        let bufs = rig.group(&[&block[..1], &block[1..1000], b"", &block[1000..]]);
        tags.push(rig.start(Op::Write { file, pos: i as u64 * 4096, bufs }).0);
    }
    for tag in tags {
        let done = rig.finish(tag);
        let Op::Write { bufs, .. } = &done.op else { panic!("another op came back") };
        assert_eq!(bufs.len(), 4096, "the group has not advanced");
        assert_eq!(bytes_of(done.result.unwrap()), 4096);
    }
    rig.ok(Op::Fdatasync { file });
    rig.ok(Op::Close { file });
    let file = rig.create("f");
    assert_eq!(rig.read(file, 0, bytes.len()), bytes, "opened again");
    rig.write(file, 10, b"in the middle");
    assert_eq!(rig.len(file), bytes.len() as u64, "no append mode");
    rig.settled();
}

/// The engine's part of R63: a group that has advanced is written from there.
pub fn an_advanced_group_leaves_only_its_rest<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("f");
    let mut bufs = rig.group(&[b"abc", b"defg", b"hi"]);
    bufs.advance(5);
    let done = rig.run(Op::Write { file, pos: 5, bufs });
    assert_eq!(bytes_of(done.result.unwrap()), 4);
    drop(done.op);
    assert_eq!(rig.read(file, 0, 100), b"\0\0\0\0\0fghi");
    rig.settled();
}

pub fn many_slices_leave_as_one_write<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("f");
    // More than the kernel's limit of 1024 a call: a short write is allowed, a lost byte is not.
    let bytes = pattern(1500 * 3, 5);
    let parts: Vec<&[u8]> = bytes.chunks(3).collect();
    let mut bufs = rig.group(&parts);
    let mut pos = 0;
    while !bufs.is_empty() {
        let done = rig.run(Op::Write { file, pos, bufs });
        let moved = bytes_of(done.result.unwrap());
        assert!(moved > 0);
        let Op::Write { bufs: back, .. } = done.op else { panic!("another op came back") };
        bufs = back;
        bufs.advance(moved);
        pos += moved as u64;
    }
    drop(bufs);
    assert_eq!(rig.read(file, 0, 8192), bytes);
    rig.settled();
}

pub fn lengths_change_and_holes_read_as_zeros<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("f");
    rig.write(file, 100, b"far");
    assert_eq!(rig.read(file, 98, 100), b"\0\0far");
    rig.ok(Op::Truncate { file, len: 101 });
    rig.ok(Op::Truncate { file, len: 105 });
    assert_eq!(rig.len(file), 105);
    assert_eq!(rig.read(file, 99, 100), b"\0f\0\0\0\0");
    rig.ok(Op::SyncRange { file, pos: 0, len: 105 });
    rig.ok(Op::Fdatasync { file });
    rig.ok(Op::DropCache { file });
    assert_eq!(rig.read(file, 99, 100), b"\0f\0\0\0\0", "a good flush, and the disk agrees");
    let reader = rig.open("f", OpenHow::default());
    assert_eq!(rig.errno(Op::Truncate { file: reader, len: 0 }), Errno::EINVAL);
    let bufs = rig.group(&[b"no"]);
    assert_eq!(rig.errno(Op::Write { file: reader, pos: 0, bufs }), Errno::EBADF);
    rig.settled();
}

pub fn stale_ids_are_refused<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("f");
    rig.ok(Op::Close { file });
    let next = rig.create("g");
    assert_ne!(next, file, "the slot may be the same, the generation is not");
    rig.write(next, 0, b"untouched");
    let stale = |rig: &mut Rig<B>, file: FileId| {
        let (bufs, into) = (rig.group(&[b"x"]), rig.window(10));
        let (more, room) = (rig.group(&[b"x"]), rig.window(10));
        vec![
            Op::Write { file, pos: 0, bufs },
            Op::Read { file, pos: 0, max: 10, into },
            Op::Fdatasync { file },
            Op::SyncRange { file, pos: 0, len: 0 },
            Op::DropCache { file },
            Op::Truncate { file, len: 0 },
            Op::Len { file },
            Op::Close { file },
            Op::Accept { listener: file },
            Op::Recv { socket: file, into: room },
            Op::Send { socket: file, bufs: more, more: false },
            Op::Sendfile { socket: file, file: next, pos: 0, len: 1 },
            Op::Shutdown { socket: file },
        ]
    };
    let never = FileId { slot: 900_000, generation: 0 };
    for op in stale(&mut rig, file).into_iter().chain(stale(&mut rig, never)) {
        let name = format!("{op:?}");
        assert_eq!(rig.errno(op), Errno::EBADF, "{name}");
    }
    assert_eq!(rig.read(next, 0, 100), b"untouched");
    rig.settled();
}

pub fn a_closed_file_lives_until_its_ops_end<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("f");
    let bytes = pattern(100_000, 9);
    let mut tags = Vec::new();
    for (i, part) in bytes.chunks(10_000).enumerate() {
        let bufs = rig.group(&[part]);
        tags.push(rig.start(Op::Write { file, pos: i as u64 * 10_000, bufs }).0);
    }
    let (close, _) = rig.start(Op::Close { file });
    for tag in tags {
        assert_eq!(bytes_of(rig.finish(tag).result.unwrap()), 10_000);
    }
    rig.finish(close).result.unwrap();
    let file = rig.open("f", OpenHow::default());
    assert_eq!(rig.read(file, 0, bytes.len()), bytes);
    rig.settled();
}

/// A thousand random ops against plain vectors; ops in flight together touch different files.
pub fn random_ops_agree_with_a_model<B: Bed>(bed: B) {
    const FILES: usize = 4;
    let mut rig = Rig::new(bed);
    let mut prng = Prng::new(SEED);
    println!("seed {SEED:#x}");
    let name = |i: usize| format!("model-{i}");
    let mut files: Vec<FileId> = (0..FILES).map(|i| rig.create(&name(i))).collect();
    let mut model: Vec<Vec<u8>> = vec![Vec::new(); FILES];
    for turn in 0..250 {
        let started: Vec<_> = (0..FILES)
            .map(|i| {
                let (op, expected) = rig.random_op(&mut prng, files[i], &mut model[i]);
                (rig.start(op).0, expected)
            })
            .collect();
        for (i, (tag, expected)) in started.into_iter().enumerate() {
            let done = rig.finish(tag);
            let case = format!("turn {turn}, file {i}: {:?}", done.op);
            match (done.result.unwrap_or_else(|errno| panic!("{case}: {errno:?}")), done.op) {
                (Outcome::Bytes(n), Op::Read { into, .. }) => {
                    assert_eq!(n as usize, expected.len(), "{case}");
                    assert_eq!(into.bytes(), expected, "{case}");
                }
                (Outcome::Bytes(n), _) => assert_eq!(n as usize, expected.len(), "{case}"),
                (Outcome::Len(len), _) => assert_eq!(len, model[i].len() as u64, "{case}"),
                _ => {}
            }
        }
        let i = prng.below(FILES as u64) as usize;
        rig.ok(Op::Close { file: files[i] });
        files[i] = rig.create(&name(i));
    }
    for (i, bytes) in model.iter().enumerate() {
        assert_eq!(rig.read(files[i], 0, 64 << 10), *bytes, "file {i} at the end");
    }
    rig.settled();
}

impl<B: Bed> Rig<B> {
    /// An op on this file, applied to its model; with the bytes that it should move.
    fn random_op(&self, prng: &mut Prng, file: FileId, model: &mut Vec<u8>) -> (Op, Vec<u8>) {
        let pos = prng.below(20_000);
        let len = 1 + prng.below(9_000) as usize;
        match prng.below(10) {
            0..=3 => {
                let bytes = pattern(len, prng.below(256) as u8);
                let end = pos as usize + len;
                model.resize(model.len().max(end), 0);
                model[pos as usize..end].copy_from_slice(&bytes);
                let cut = prng.below(len as u64 + 1) as usize;
                let bufs = self.group(&[&bytes[..cut], &bytes[cut..]]);
                (Op::Write { file, pos, bufs }, bytes)
            }
            4..=6 => {
                let from = model.len().min(pos as usize);
                let expected = model[from..model.len().min(from + len)].to_vec();
                let into = self.window(len);
                (Op::Read { file, pos, max: len as u32, into }, expected)
            }
            7 => {
                model.resize(pos as usize, 0);
                (Op::Truncate { file, len: pos }, Vec::new())
            }
            8 if prng.coin() => (Op::Fdatasync { file }, Vec::new()),
            8 => (Op::DropCache { file }, Vec::new()),
            _ => (Op::Len { file }, Vec::new()),
        }
    }
}
