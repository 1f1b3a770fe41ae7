//! Ports of this machine where nothing listens, or something else than a server of MongoDB.

use std::io::{Read, Write};
use std::net::TcpListener;

use tokio::net::TcpSocket;

/// A port that refuses connections. No other process can take it before this is dropped.
pub(crate) struct ClosedPort {
    pub port: u16,
    /// A socket that is bound and does not listen refuses connections.
    _bound: TcpSocket,
}

impl ClosedPort {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        Self { port: socket.local_addr().expect("an address").port(), _bound: socket }
    }
}

/// Listens on a free port and sends every client the same answer; an empty answer keeps the connection open without a word.
pub(crate) fn listener(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    // The thread ends with the process.
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut connection = connection;
                let mut asked = [0; 1024];
                while connection.read(&mut asked).is_ok_and(|read| read > 0) {
                    if !answer.is_empty() {
                        let _ = connection.write_all(answer);
                        return;
                    }
                }
            });
        }
    });
    port
}
