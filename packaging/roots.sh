#!/usr/bin/env bash
# roots.sh SUITE FRESH|BUILD|TEST: prints the folder of a root of that Debian release, made when it is missing. FRESH: the smallest
# that debootstrap makes. BUILD: with all that builds and checks the packages. TEST: with systemd and dig, and beside it, not
# installed, the Debian packages that ours and `make install` need. They lie in build/roots (ROOTS=folder: elsewhere).
set -euo pipefail
suite=${1:?usage: roots.sh SUITE FRESH|BUILD|TEST} kind=${2:?}
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

make_root() { # folder, Debian packages to install, Debian packages to fetch
    local stamp="$2 / $3"
    [ "$(cat "$1.made" 2>/dev/null)" != "$stamp" ] || return 0
    printf 'roots: making %s\n' "$1" >&2
    rm -rf "$1" "$1.made"
    cp -a "$fresh" "$1"
    # shellcheck disable=SC2016 # expanded in the root
    "$here/in_root.sh" "$1" - sh -c 'apt-get -qq update && apt-get -qq install --no-install-recommends --yes $1 &&
        apt-get -qq clean && { [ -z "$2" ] || apt-get -qq install --no-install-recommends --yes --download-only $2; }' sh "$2" "$3" >"$1.log" 2>&1 ||
        { tail -5 "$1.log" >&2; fail "its packages could not be installed (whole log: $1.log)"; }
    printf '%s\n' "$stamp" >"$1.made"
}

case $kind in
    FRESH) printf '%s\n' "$fresh" ;;
    BUILD)
        packages=$(sed -n '/^Build-Depends:/,/^[A-Z]/s/^ \([a-z0-9.+-]*\).*/\1/p' "$here/debian/control" | sed 's/^debhelper-compat$/debhelper/' | paste -s -d ' ')
        make_root "$fresh-build" "build-essential fakeroot lintian $packages" ""
        printf '%s\n' "$fresh-build"
        ;;
    TEST)
        make_root "$fresh-test" "systemd-sysv dbus iproute2 bind9-dnsutils" \
            "pdns-server pdns-backend-remote rsplib-registrar kamailio procps python3 libusrsctp2 libbpf1 libnftables1 make python3-venv build-essential libusrsctp-dev libsctp-dev"
        printf '%s\n' "$fresh-test"
        ;;
    *) fail "$kind: FRESH, BUILD or TEST" ;;
esac
