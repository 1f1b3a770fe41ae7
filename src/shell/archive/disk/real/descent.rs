//! The way from a directory that a user named down to what is in it: step by step through open directories, so that no link is
//! followed.

use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, open, openat, statat};
use rustix::io::Errno;

/// Flags of a directory that is opened to be listed, synced, or gone through.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Flags of a file that is opened to be read. A pipe is not waited for, and a terminal does not become the terminal of the
/// process.
const FILE: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// A directory that a user named. It may be a link, or lie below one.
#[derive(Debug, Clone)]
pub(super) struct Root(pub PathBuf);

impl Root {
    /// Opens a directory.
    ///
    /// Errors: it is not below the root, or a link is on the way.
    pub(super) fn directory(&self, path: &Path) -> io::Result<OwnedFd> {
        let below = path.strip_prefix(&self.0).map_err(|_| outside(path))?;
        let mut directory = open(&self.0, DIRECTORY, Mode::empty())?;
        let mut at = self.0.clone();
        for step in below.components() {
            let Component::Normal(name) = step else { return Err(outside(path)) };
            at.push(name);
            let next = openat(&directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
            directory = next.map_err(|cause| match kind(&directory, name) {
                Some(FileType::Directory) | None => cause.into(),
                Some(other) => io::Error::other(format!("`{}` {}", at.display(), wrong(other, "a directory"))),
            })?;
        }
        Ok(directory)
    }

    /// Opens the directory that holds a file, and returns it with the name of the file in it.
    ///
    /// Errors: as for [`Self::directory`].
    pub(super) fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        match (path.parent(), path.components().next_back()) {
            (Some(parent), Some(Component::Normal(name))) => Ok((self.directory(parent)?, name)),
            _ => Err(outside(path)),
        }
    }

    /// Opens a regular file for reading.
    ///
    /// Errors: as for [`Self::directory`], or it is anything else, which the opened descriptor tells.
    pub(super) fn file(&self, path: &Path) -> io::Result<OwnedFd> {
        let (parent, name) = self.parent(path)?;
        let refused = |found| io::Error::other(format!("it {}", wrong(found, "a regular file")));
        let file = openat(&parent, name, FILE, Mode::empty()).map_err(|cause| match (cause, kind(&parent, name)) {
            // A link, or a socket or a device without a driver. Of anything else the system's own words say more.
            (Errno::LOOP | Errno::NXIO, Some(found)) if found != FileType::RegularFile => refused(found),
            (cause, _) => cause.into(),
        })?;
        match FileType::from_raw_mode(fstat(&file)?.st_mode) {
            FileType::RegularFile => Ok(file),
            found => Err(refused(found)),
        }
    }
}

/// Returns the kind of an entry of a directory, for the words of an error.
fn kind(directory: impl AsFd, name: &OsStr) -> Option<FileType> {
    let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(FileType::from_raw_mode(stat.st_mode))
}

/// Returns the words for an entry of the wrong kind.
fn wrong(found: FileType, expected: &str) -> String {
    let found = match found {
        FileType::Symlink => {
            return "is a symbolic link, and links in an archive are not followed; put what it leads to in its place".to_owned();
        }
        FileType::Directory => "a directory",
        FileType::RegularFile => "a file",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    };
    format!("is {found}; expected {expected}")
}

fn outside(path: &Path) -> io::Error {
    io::Error::other(format!("the path `{}` leads out of the archive", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use rustix::fs::{CWD, mknodat};

    use super::super::super::{DirEntry, Disk, EntryKind};
    use super::super::RealDisk;
    use super::*;

    /// Returns the words of an error.
    fn why<T>(result: io::Result<T>) -> String {
        result.err().map(|cause| cause.to_string()).unwrap_or_default()
    }

    const A_LINK: &str = "is a symbolic link, and links in an archive are not followed; put what it leads to in its place";

    /// A directory with an archive in `a`, what must not be reached in `outside`, and a link to the archive.
    struct Place {
        directory: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            for name in ["a/db", "outside/db"] {
                fs::create_dir_all(directory.path().join(name)).unwrap();
                fs::write(directory.path().join(name).join("file"), name).unwrap();
            }
            symlink("a", directory.path().join("link")).unwrap();
            Self { directory }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.directory.path().join(path)
        }

        fn disk(&self, root: &str) -> RealDisk {
            RealDisk::below(&self.at(root))
        }
    }

    fn read(disk: &RealDisk, path: &Path) -> io::Result<String> {
        let file = disk.open(path)?;
        let mut bytes = vec![0; usize::try_from(file.length()?).unwrap()];
        file.read_at(&mut bytes, 0)?;
        Ok(String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn the_root_may_be_a_link_and_nothing_below_it_may() {
        let place = Place::new();
        assert_eq!(read(&place.disk("link"), &place.at("link/db/file")).unwrap(), "a/db");
        assert_eq!(read(&place.disk("link/db"), &place.at("link/db/file")).unwrap(), "a/db");
        assert_eq!(read(&place.disk("a"), &place.at("a/db/file")).unwrap(), "a/db");
        let shown = place.at("link");
        assert_eq!(why(read(&place.disk(""), &place.at("link/db/file"))), format!("`{}` {A_LINK}", shown.display()));
        symlink("../../outside/db/file", place.at("a/db/other")).unwrap();
        symlink("file", place.at("a/db/near")).unwrap();
        for name in ["other", "near"] {
            assert_eq!(why(read(&place.disk("a"), &place.at("a/db").join(name))), format!("it {A_LINK}"));
        }
        symlink("../outside/db", place.at("a/elsewhere")).unwrap();
        let (disk, shown) = (place.disk("a"), place.at("a/elsewhere"));
        let on_the_way = format!("`{}` {A_LINK}", shown.display());
        assert_eq!(why(disk.open(&shown.join("file"))), on_the_way);
        assert_eq!(why(disk.entries(&shown)), on_the_way);
        assert_eq!(why(disk.sync_directory(&shown)), on_the_way);
        for outside in ["outside/db/file", "a/../outside/db/file", "a"] {
            assert!(why(disk.open(&place.at(outside))).contains("leads out of the archive"), "{outside}");
        }
        assert_eq!(disk.open(&place.at("a/db/nothing")).err().unwrap().kind(), io::ErrorKind::NotFound);
        assert_eq!(disk.open(&place.at("a/nothing/file")).err().unwrap().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let place = Place::new();
        symlink("../outside/db", place.at("a/elsewhere")).unwrap();
        symlink("../outside/new", place.at("a/new")).unwrap();
        let disk = place.disk("a");
        let on_the_way = format!("`{}` {A_LINK}", place.at("a/elsewhere").display());
        assert_eq!(why(disk.create(&place.at("a/elsewhere/new"))), on_the_way);
        assert_eq!(why(disk.create_directory(&place.at("a/elsewhere/new"))), on_the_way);
        assert_eq!(why(disk.publish(&place.at("a/elsewhere/file"), &place.at("a/db/file"), b"x")), on_the_way);
        assert_eq!(why(disk.publish(&place.at("a/db/file"), &place.at("a/elsewhere/new"), b"x")), on_the_way);
        assert_eq!(disk.create(&place.at("a/new")).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(disk.create_directory(&place.at("a/new")).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        // A file that is moved and leads back by a link is not where it was.
        let written = disk.create(&place.at("a/db/written")).unwrap();
        written.append(b"x").unwrap();
        assert!(written.is_at(&place.at("a/db/written")).unwrap());
        fs::rename(place.at("a/db/written"), place.at("outside/written")).unwrap();
        symlink("../../outside/written", place.at("a/db/written")).unwrap();
        assert!(!written.is_at(&place.at("a/db/written")).unwrap());
        fs::rename(place.at("a/db"), place.at("outside/moved")).unwrap();
        symlink("../outside/moved", place.at("a/db")).unwrap();
        assert_eq!(why(written.is_at(&place.at("a/db/file"))), format!("`{}` {A_LINK}", place.at("a/db").display()));
        let names = |directory: &str| {
            let mut names: Vec<_> = fs::read_dir(place.at(directory)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(
            (names("outside"), names("outside/db")),
            (vec!["db".into(), "moved".into(), "written".into()], vec!["file".into()])
        );
    }

    #[test]
    fn what_is_no_file_is_named_and_not_waited_for() {
        let place = Place::new();
        let _listener = UnixListener::bind(place.at("a/socket")).unwrap();
        mknodat(CWD, place.at("a/pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        let disk = place.disk("a");
        for (name, found) in [("pipe", "a pipe"), ("socket", "a socket"), ("db", "a directory")] {
            assert_eq!(why(disk.open(&place.at("a").join(name))), format!("it is {found}; expected a regular file"));
        }
        assert_eq!(
            why(RealDisk::below(Path::new("/dev")).open(Path::new("/dev/null"))),
            "it is a device; expected a regular file"
        );
        for (name, found) in [("db/file", "a file"), ("pipe", "a pipe")] {
            let shown = place.at("a").join(name);
            let expected = format!("`{}` is {found}; expected a directory", shown.display());
            assert_eq!(why(disk.open(&shown.join("file"))), expected);
            assert_eq!(why(disk.entries(&shown)), expected);
        }
    }

    #[test]
    fn entries_are_what_they_are_and_not_what_links_lead_to() {
        let place = Place::new();
        symlink("db", place.at("a/link")).unwrap();
        symlink("nothing", place.at("a/broken")).unwrap();
        fs::write(place.at("a/z"), "").unwrap();
        let found = place.disk("a").entries(&place.at("a")).unwrap();
        let expected =
            [("broken", EntryKind::Link), ("db", EntryKind::Directory), ("link", EntryKind::Link), ("z", EntryKind::Other)];
        assert_eq!(found, expected.map(|(name, kind)| DirEntry { name: name.to_owned(), kind }));
    }
}
