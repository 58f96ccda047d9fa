#!/usr/bin/env bash
# roots.sh SUITE BUILD|FRESH: prints the folder of a root of that Debian release, made when it is missing: FRESH is the smallest
# that debootstrap makes, BUILD has all that builds and checks the packages. They lie in build/roots (ROOTS=folder: elsewhere).
set -euo pipefail
suite=${1:?usage: roots.sh SUITE BUILD|FRESH} kind=${2:?}
here=$(cd "$(dirname "$0")" && pwd)
roots=${ROOTS:-$here/../build/roots}
mkdir -p "$roots"
roots=$(cd "$roots" && pwd)

fail() { printf 'roots: %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" -eq 0 ] || fail "it makes a Debian root: run it as root"
fresh=$roots/$suite
if [ ! -e "$fresh.made" ]; then
    command -v debootstrap >/dev/null || fail "debootstrap is missing (Debian: apt-get install debootstrap)"
    printf 'roots: making %s\n' "$fresh" >&2
    rm -rf "$fresh"
    debootstrap --variant=minbase "$suite" "$fresh" >"$fresh.log" 2>&1 || { tail -5 "$fresh.log" >&2; fail "debootstrap could not make it (whole log: $fresh.log)"; }
    touch "$fresh.made"
fi
[ "$kind" = BUILD ] || { printf '%s\n' "$fresh"; exit 0; }
build=$fresh-build
packages=$(sed -n '/^Build-Depends:/,/^[A-Z]/s/^ \([a-z0-9.+-]*\).*/\1/p' "$here/debian/control" | sed 's/^debhelper-compat$/debhelper/')
stamp="build-essential fakeroot lintian $packages"
if [ "$(cat "$build.made" 2>/dev/null)" != "$stamp" ]; then
    printf 'roots: making %s\n' "$build" >&2
    rm -rf "$build" "$build.made"
    cp -a "$fresh" "$build"
    # shellcheck disable=SC2086 # a list of package names
    "$here/in_root.sh" "$build" - sh -c 'apt-get -qq update && apt-get -qq install --no-install-recommends --yes "$@"' sh $stamp >"$build.log" 2>&1 ||
        { tail -5 "$build.log" >&2; fail "its packages could not be installed (whole log: $build.log)"; }
    printf '%s\n' "$stamp" >"$build.made"
fi
printf '%s\n' "$build"
