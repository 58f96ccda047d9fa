#!/bin/sh
# pinned.sh ROOT: fails unless Debian's archive, as apt last saw it in the root, is that of debian.pin.
set -eu
pin=$(dirname "$0")/debian.pin
grep -v '^#' "$pin" | {
    read -r suite release snapshot sum
    for file in "${1%/}"/var/lib/apt/lists/*_dists_"$suite"_InRelease; do
        [ -e "$file" ] || { echo "pinned: $1 has no InRelease of Debian $suite: apt-get update was not run there" >&2; exit 1; }
        found=$(sha256sum <"$file")
        [ "${found%% *}" = "$sum" ] || {
            echo "pinned: $file is not that of Debian $release, which debian.pin names: SHA-256 ${found%% *}, not $sum." >&2
            echo "pinned: Debian has had a point release, or build/roots/$suite is older than debian.pin. Take the new release, or build" \
                "from the snapshot $snapshot: docs/how-to/containers.md, 'Which Debian'." >&2
            exit 1
        }
    done
}
