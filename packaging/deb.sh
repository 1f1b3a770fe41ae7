#!/usr/bin/env bash
# Builds a .deb from a binary of sweeper: packaging/deb.sh target/release/sweeper DIRECTORY
#
# Prints the path of the package. The package starts nothing: units are installed, and not enabled. Purged, it leaves nothing but archives.
set -euo pipefail
if [ $# -ne 2 ]; then
    echo "usage: packaging/deb.sh BINARY DIRECTORY" >&2
    exit 2
fi
command -v dpkg-deb >/dev/null || { echo "error: no dpkg-deb; it is part of Debian's package dpkg" >&2; exit 1; }
binary=$(realpath "$1")
directory=$(realpath "$2")
cd "$(dirname "$0")/.."
version=$("$binary" --version | cut -d ' ' -f 2)
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

install -D -m 755 "$binary" "$root/usr/bin/sweeper"
install -D -m 644 -t "$root/usr/lib/systemd/system" packaging/systemd/*
install -D -m 644 packaging/sysusers.conf "$root/usr/lib/sysusers.d/sweeper.conf"
install -D -m 644 -t "$root/usr/share/doc/ttl-sweeper" README.md CHANGELOG.md sweeper.example.yaml
install -D -m 644 -t "$root/usr/share/doc/ttl-sweeper/docs" docs/*
for examples in prometheus/alerts.yaml kubernetes/cronjob.yaml kubernetes/deployment.yaml; do
    install -D -m 644 "packaging/$examples" "$root/usr/share/doc/ttl-sweeper/packaging/$examples"
done
install -D -m 644 LICENSE "$root/usr/share/doc/ttl-sweeper/copyright"
install -d -m 755 "$root/usr/share/man/man1" "$root/etc/sweeper"
"$binary" man --directory "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
completions() {
    install -d -m 755 "$root/$(dirname "$2")"
    "$binary" completions "$1" -o "$root/$2"
    chmod 644 "$root/$2"
}
completions bash usr/share/bash-completion/completions/sweeper
completions zsh usr/share/zsh/vendor-completions/_sweeper
completions fish usr/share/fish/vendor_completions.d/sweeper.fish

# The newest symbol of the C library that the binary asks for.
libc=$(grep -aoE 'GLIBC_2\.[0-9]+' "$binary" | sort -uV | tail -1 | cut -d _ -f 2)
install -D -m 755 -t "$root/DEBIAN" packaging/debian/*
cat >"$root/DEBIAN/control" <<CONTROL
Package: ttl-sweeper
Version: $version
Architecture: $architecture
Maintainer: the developers of ttl-sweeper <ttl-sweeper@invalid>
Depends: libc6 (>= ${libc:-2.17}), libgcc-s1, passwd
Recommends: ca-certificates
Section: database
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Description: deletes expired documents from MongoDB and Azure Cosmos DB
 Exactly as a TTL index would, but with a dry run, limits, pacing, archives
 and a report.
CONTROL
package="$directory/ttl-sweeper_${version}_$architecture.deb"
dpkg-deb --root-owner-group --build "$root" "$package" >/dev/null
echo "$package"
