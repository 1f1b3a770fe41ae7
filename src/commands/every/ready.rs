//! Readiness, as it is told to a service manager: sd_notify(3) of systemd.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells the service manager that the process is ready, if it asks for that. From then on SIGHUP reads the policy again: before,
/// it would have ended the process.
///
/// Errors: the socket that the environment names cannot be written.
pub(super) fn tell() -> io::Result<()> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) => tell_to(&name),
        None => Ok(()),
    }
}

/// Writes to a socket with a path, or to one whose name begins with an `@` and that is in no directory.
fn tell_to(name: &OsStr) -> io::Result<()> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_with_a_path_and_one_without_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let name = format!("sweeper-test-{}", std::process::id());
        let abstract_name = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, shown) in [
            (UnixDatagram::bind(&path).unwrap(), path.clone().into_os_string()),
            (UnixDatagram::bind_addr(&abstract_name).unwrap(), format!("@{name}").into()),
        ] {
            tell_to(&shown).unwrap();
            let mut told = [0; 100];
            let length = socket.recv(&mut told).unwrap();
            assert_eq!(&told[..length], b"READY=1");
        }
        assert!(tell_to(OsStr::new("/absent/notify")).is_err());
    }
}
