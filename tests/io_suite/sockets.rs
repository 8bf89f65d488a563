//! Bodies on sockets, with a peer at the other end.

use ringlog::io::{Errno, Io, Op, Outcome};

use crate::bed::{Bed, Rig, bytes_of, pattern, received};

pub fn listens_on_a_free_port_and_accepts<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let (listener, addr) = rig.io.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    assert_ne!(addr.port(), 0);
    assert_eq!(rig.io.listen(addr).unwrap_err(), Errno(libc::EADDRINUSE));
    let (first, _) = rig.start(Op::Accept { listener });
    rig.turn();
    assert!(!rig.is_done(first), "nobody has called");
    let peers = [rig.bed.connect(addr), rig.bed.connect(addr)];
    let (second, _) = rig.start(Op::Accept { listener });
    let mut sockets = Vec::new();
    for tag in [first, second] {
        match rig.finish(tag).result.unwrap() {
            Outcome::Accepted { socket, peer } => {
                assert!(peer.is_some());
                sockets.push(socket);
            }
            other => panic!("accept gave {other:?}"),
        }
    }
    assert_ne!(sockets[0], sockets[1]);
    let socket = sockets[0];
    let errno = rig.errno(Op::Accept { listener: socket });
    assert!([Errno::EINVAL, Errno(libc::ENOTSOCK)].contains(&errno), "{errno:?}");
    drop(peers);
    rig.settled();
}

pub fn echoes_and_hears_the_end<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let (socket, mut peer) = rig.connection();
    let into = rig.window(100);
    let (recv, _) = rig.start(Op::Recv { socket, into });
    rig.turn();
    assert!(!rig.is_done(recv));
    peer.send(b"hello there");
    let mut heard = received(rig.finish(recv));
    while heard.len() < 11 {
        heard.extend(rig.recv(socket));
    }
    assert_eq!(heard, b"hello there");
    let mut bufs = rig.group(&[b"he", b"", b"llo ", b"you"]);
    while !bufs.is_empty() {
        let done = rig.run(Op::Send { socket, bufs, more: false });
        let moved = bytes_of(done.result.unwrap());
        let Op::Send { bufs: back, .. } = done.op else { panic!("another op came back") };
        bufs = back;
        bufs.advance(moved);
    }
    drop(bufs);
    assert_eq!(rig.gather(&mut *peer, 9), b"hello you");
    peer.send(b"last words");
    drop(peer);
    let mut heard = Vec::new();
    loop {
        let bytes = rig.recv(socket);
        if bytes.is_empty() {
            break;
        }
        heard.extend(bytes);
    }
    assert_eq!(heard, b"last words");
    assert_eq!(rig.recv(socket), b"", "the end stays the end");
    rig.settled();
}

pub fn a_full_socket_holds_the_sender_back_and_loses_nothing<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let (socket, mut peer) = rig.connection();
    let bytes = pattern(12 << 20, 3);
    let mut bufs = ringlog::io::buffers::Group::new();
    bytes.chunks(1 << 20).for_each(|part| bufs.push(rig.slice(part)));
    let mut heard = Vec::new();
    let (mut tag, _) = rig.start(Op::Send { socket, bufs, more: false });
    // Until it is stuck nobody reads; a socket buffer takes no 12 MiB.
    for _ in 0..5 {
        rig.turn();
    }
    loop {
        rig.until("the send", |rig| {
            heard.extend(peer.recv());
            rig.is_done(tag)
        });
        let done = rig.finish(tag);
        let moved = bytes_of(done.result.unwrap());
        assert!(moved > 0);
        let Op::Send { mut bufs, .. } = done.op else { panic!("another op came back") };
        bufs.advance(moved);
        if bufs.is_empty() {
            break;
        }
        tag = rig.start(Op::Send { socket, bufs, more: true }).0;
    }
    let left = bytes.len() - heard.len();
    heard.extend(rig.gather(&mut *peer, left));
    assert!(heard == bytes, "the stream differs");
    rig.settled();
}

pub fn receives_what_a_fast_peer_sends<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let (socket, mut peer) = rig.connection();
    let bytes = pattern(1 << 20, 11);
    peer.send(&bytes);
    let mut heard = Vec::new();
    while heard.len() < bytes.len() {
        heard.extend(rig.recv(socket));
        // A real peer pushes what is left of its own buffer when it looks at its socket.
        assert_eq!(peer.recv(), b"");
    }
    assert!(heard == bytes, "the stream differs");
    rig.settled();
}

pub fn sendfile_sends_ranges_and_stops_at_the_end<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let (socket, mut peer) = rig.connection();
    let file = rig.create("f");
    let bytes = pattern(700_000, 13);
    rig.write(file, 0, &bytes);
    let (mut pos, mut heard) = (1_000_u64, Vec::new());
    while pos < 600_000 {
        let len = (600_000 - pos) as u32;
        let (tag, _) = rig.start(Op::Sendfile { socket, file, pos, len });
        rig.until("the sendfile", |rig| {
            heard.extend(peer.recv());
            rig.is_done(tag)
        });
        let moved = bytes_of(rig.finish(tag).result.unwrap());
        assert!(moved > 0);
        pos += moved as u64;
    }
    let left = 599_000 - heard.len();
    heard.extend(rig.gather(&mut *peer, left));
    assert!(heard == bytes[1_000..600_000], "the stream differs");
    let past_the_end = Op::Sendfile { socket, file, pos: 700_000, len: 10 };
    assert_eq!(bytes_of(rig.ok(past_the_end)), 0);
    rig.settled();
}

pub fn shutdown_ends_a_pending_recv<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let (socket, mut peer) = rig.connection();
    let into = rig.window(100);
    let (recv, _) = rig.start(Op::Recv { socket, into });
    rig.turn();
    rig.ok(Op::Shutdown { socket });
    assert_eq!(received(rig.finish(recv)), b"");
    rig.until("the end at the peer", |_| peer.at_end());
    let bufs = rig.group(&[b"too late"]);
    assert_eq!(rig.errno(Op::Send { socket, bufs, more: false }), Errno(libc::EPIPE));
    rig.ok(Op::Close { file: socket });
    rig.settled();
}

pub fn a_closed_socket_lives_until_its_ops_end<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let (socket, mut peer) = rig.connection();
    let into = rig.window(100);
    let (recv, token) = rig.start(Op::Recv { socket, into });
    rig.turn();
    rig.ok(Op::Close { file: socket });
    let room = rig.window(100);
    assert_eq!(rig.errno(Op::Recv { socket, into: room }), Errno::EBADF);
    peer.send(b"x");
    rig.until("the recv", |rig| {
        peer.recv();
        rig.is_done(recv)
    });
    assert_eq!(received(rig.finish(recv)), b"x");
    rig.until("the end at the peer", |_| peer.at_end());
    assert_eq!(rig.errno(Op::Cancel { token }), Errno::ENOENT);
    rig.settled();
}

pub fn a_peer_that_left_is_an_error_to_the_sender<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let (socket, peer) = rig.connection();
    drop(peer);
    let mut result = Ok(());
    rig.until("an error", |rig| {
        let bufs = rig.group(&[b"anyone?"]);
        result = rig.run(Op::Send { socket, bufs, more: false }).result.map(drop);
        result.is_err()
    });
    let errno = result.unwrap_err();
    assert!([libc::EPIPE, libc::ECONNRESET].contains(&errno.0), "{errno:?}");
    rig.settled();
}

pub fn sockets_and_files_are_not_mixed_up<B: Bed>(bed: B) {
    let mut rig = Rig::new(bed);
    let file = rig.create("f");
    let into = rig.window(10);
    assert_eq!(rig.errno(Op::Recv { socket: file, into }), Errno(libc::ENOTSOCK));
    let bufs = rig.group(&[b"x"]);
    assert_eq!(rig.errno(Op::Send { socket: file, bufs, more: false }), Errno(libc::ENOTSOCK));
    assert_eq!(rig.errno(Op::Accept { listener: file }), Errno(libc::ENOTSOCK));
    assert_eq!(rig.errno(Op::Shutdown { socket: file }), Errno(libc::ENOTSOCK));
    rig.settled();
}
