#!/usr/bin/env bash
# Builds the Debian packages, each release in a root of its own, and has lintian look at them: deb.sh [SUITE...]
# (default: bookworm trixie). They come to build/packages/SUITE. VERSION: another version than the source's. DEBFULLNAME and
# DEBEMAIL: who maintains them; the address in debian/control is one that nobody can have (RFC 2606). ARCHITECTURE=arm64: built for
# that by cross compilers, into build/packages/SUITE-arm64. PACKAGES=folder: elsewhere than build/packages. Packages that were
# built from the same source are kept; remove their folder to build them again, with newer libraries of Debian for instance.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/.."
[ $# -gt 0 ] || set -- bookworm trixie

fail() { printf 'deb: %s\n' "$*" >&2; exit 1; }

native=$(dpkg --print-architecture)
architecture=${ARCHITECTURE:-$native}
machine() { # what Python's wheels call it
    case $1 in
        amd64) echo x86_64 ;;
        arm64) echo aarch64 ;;
        *) fail "$1: the packages are for amd64 and arm64" ;;
    esac
}
machine=$(machine "$native")
machines=("$machine")
[ "$architecture" = "$native" ] || machines+=("$(machine "$architecture")") # what is cross-built is made with this machine's, too
version=${VERSION:-$(packaging/version.sh)}
date=$(packaging/version.sh --date)
setup/setup.sh deb
for suite in "$@"; do
    case $suite in
        bookworm) number=12 ;;
        trixie) number=13 ;;
        *) fail "$suite: the packages are for Debian 12 (bookworm) and 13 (trixie)" ;;
    esac
    root=$(packaging/roots.sh "$suite" BUILD "$architecture")
    layer=$(mktemp -d "${TMPDIR:-/tmp}/rspdns-deb.XXXXXX")
    trap 'rm -rf "$layer"' EXIT
    source=$layer/upper/build/rspdns
    mkdir -p "$source"
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard -- . ':!tests' ':!packaging/trial' | xargs -0 sh -c 'ls -d -- "$@" 2>/dev/null' sh | tar -c -T - | tar -x -C "$source"
    else
        tar -c --exclude=./build --exclude=./.venv --exclude=./.setup . | tar -x -C "$source"
    fi
    cp -a packaging/debian "$source/debian"
    [ -z "${DEBEMAIL:-}" ] || sed -i "s/^Maintainer: .*/Maintainer: ${DEBFULLNAME:-rspdns maintainers} <$DEBEMAIL>/" "$source/debian/control"
    printf 'rspdns (%s+deb%su1) %s; urgency=medium\n\n  * CHANGELOG.md says what changed.\n\n -- %s  %s\n' "$version" "$number" "$suite" \
        "$(sed -n 's/^Maintainer: //p' "$source/debian/control")" "$(date -R -u -d "@$date")" >"$source/debian/changelog"
    packages=${PACKAGES:-$PWD/build/packages}/$suite
    [ "$architecture" = "$native" ] || packages+=-$architecture
    built_from=$(tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -c -C "$source" . | sha256sum)
    if [ "$(cat "$packages/built-from" 2>/dev/null)" = "$built_from" ]; then
        printf 'deb: %s has the packages of this source already\n' "${packages#"$PWD/"}"
        rm -rf "$layer"
        continue
    fi
    # The packages that pip needs are fetched here, for the Python of that release; nothing is fetched in the root.
    python=$("$here/in_root.sh" "$root" "$layer/ask" python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    setup/locked_packages.sh 'production|labs|build' >"$layer/requirements.txt"
    for machine in "${machines[@]}"; do
        mapfile -t wheels < <(setup/locked_packages.sh --wheels "$machine" "$python")
        .venv/bin/python -m pip --quiet --disable-pip-version-check download --no-deps --require-hashes -r "$layer/requirements.txt" \
            "${wheels[@]}" --dest "$source/debian/wheels" || fail "pip could not fetch what setup/requirements.lock names; see above"
    done
    printf 'deb: building %s+deb%su1 for %s in a root of Debian %s\n' "$version" "$number" "$architecture" "$number"
    rm -rf "$packages"
    mkdir -p "$packages"
    "$here/in_root.sh" "$root" "$layer" sh -c 'cd /build/rspdns && dpkg-buildpackage -b -us -uc --host-arch="$1"' sh "$architecture" >"$packages/build.log" 2>&1 ||
        { tail -20 "$packages/build.log" | cut -c 1-300 >&2; fail "the packages could not be built (whole log: $packages/build.log)"; }
    mv "$layer"/upper/build/*.deb "$packages"
    chmod 644 "$packages"/*.deb
    mkdir "$layer/upper/check"
    cp "$packages"/*.deb "$layer/upper/check"
    "$here/in_root.sh" "$root" "$layer" sh -c 'lintian --allow-root --no-cfg --fail-on error --tag-display-limit 0 /check/*.deb' >"$packages/lintian.log" 2>&1 ||
        { grep '^E:' "$packages/lintian.log" >&2; fail "lintian finds errors (all it says: $packages/lintian.log)"; }
    rm -rf "$layer"
    trap - EXIT
    (cd "$packages" && sha256sum ./*.deb | sed 's, \./, ,' >SHA256SUMS && ls -1 ./*.deb | sed "s,^\.,${packages#"$PWD/"},")
    printf '%s\n' "$built_from" >"$packages/built-from"
done
