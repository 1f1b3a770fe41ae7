//! Finds out whether anything listens at the address of a server that does not answer. Sends nothing.

use std::io;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::obstacle::ConnectObstacle;
use crate::shell::server::wire::error::{FailureStage, ServerError};

/// Maximum time to wait for a connection.
const MAX_TIME: Duration = Duration::from_secs(1);

/// Connects to each of the addresses, and returns what that says about its silence.
pub(super) async fn look(addresses: Vec<String>) -> Vec<(String, ServerError)> {
    // A socket of the file system is no address.
    let addresses = addresses.into_iter().filter(|address| !address.contains('/'));
    join_all(addresses.map(|address| async {
        let cause = silence(timeout(MAX_TIME, TcpStream::connect(&address)).await.ok());
        (address, cause)
    }))
    .await
}

/// Says why a server is silent, by what came of a connection to it; `None` if nothing came in time.
fn silence(connected: Option<io::Result<TcpStream>>) -> ServerError {
    match connected {
        Some(Ok(_)) => {
            let why = "something listens there, but does not answer as a MongoDB server does";
            ServerError::new(FailureStage::Timeout, why.into()).with_obstacle(Some(ConnectObstacle::Silent))
        }
        Some(Err(cause)) => cause.into(),
        None => ServerError::new(FailureStage::Timeout, "nothing there takes a connection or refuses it".into()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpSocket;

    use super::*;

    const ANY_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

    fn bound() -> TcpSocket {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(ANY_PORT.into()).unwrap();
        socket
    }

    #[tokio::test]
    async fn what_listens_what_refuses_and_what_does_neither_are_told_apart() {
        let (closed, silent, full) = (bound(), bound().listen(8).unwrap(), bound().listen(1).unwrap());
        // Once its queue is full, a listener takes no further connection, and refuses none.
        let mut waiting = Vec::new();
        while let Ok(stream) = timeout(Duration::from_millis(200), TcpStream::connect(full.local_addr().unwrap())).await {
            waiting.push(stream.unwrap());
        }
        let addresses = [closed.local_addr(), silent.local_addr(), full.local_addr()].map(|address| address.unwrap().to_string());
        let mut asked = addresses.to_vec();
        asked.push("/run/mongodb-27017.sock".into());
        let found = look(asked).await;
        let found: Vec<_> = found.iter().map(|(address, cause)| (address, cause.to_string(), cause.obstacle())).collect();
        let said = [
            ("network error: connection refused: nothing listens there", Some(ConnectObstacle::Refused)),
            ("something listens there, but does not answer as a MongoDB server does", Some(ConnectObstacle::Silent)),
            ("nothing there takes a connection or refuses it", None),
        ];
        let expected: Vec<_> =
            addresses.iter().zip(said).map(|(address, (said, obstacle))| (address, said.to_owned(), obstacle)).collect();
        assert_eq!(found, expected);
    }
}
