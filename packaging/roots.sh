#!/usr/bin/env bash
# roots.sh SUITE FRESH|BUILD|TEST [ARCHITECTURE]: prints the folder of a root of that Debian release, made when it is missing. FRESH: the smallest
# that debootstrap makes, of ARCHITECTURE (default: this machine's; another one's is emulated: QEMU=program, default:
# qemu-aarch64-static). BUILD: with all that builds and checks the packages, for ARCHITECTURE. TEST: with systemd and dig, and beside it, not
# installed, the Debian packages that ours and `make install` need. They lie in build/roots (ROOTS=folder: elsewhere).
# MIRROR=URL: the Debian archive that a new root is made from, and keeps.
set -euo pipefail
suite=${1:?usage: roots.sh SUITE FRESH|BUILD|TEST [ARCHITECTURE]} kind=${2:?}
native=$(dpkg --print-architecture) architecture=${3:-$(dpkg --print-architecture)}
here=$(cd "$(dirname "$0")" && pwd)
roots=${ROOTS:-$here/../build/roots}
mkdir -p "$roots"
roots=$(cd "$roots" && pwd)
exec 9>"$roots/lock" # two builds at once share the roots: the second waits until the first has made them
flock 9

fail() { printf 'roots: %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" -eq 0 ] || fail "it makes a Debian root: run it as root"
if [ "$kind" = FRESH ] && [ "$architecture" != "$native" ]; then
    root=$roots/$suite-$architecture
    QEMU=${QEMU:-$(command -v qemu-aarch64-static || true)}
    if [ -z "$QEMU" ]; then # fetched, not installed: the package would register it for the whole machine
        QEMU=$roots/emulator/usr/bin/qemu-aarch64-static
        if [ ! -x "$QEMU" ]; then
            fetched=$(mktemp -d)
            trap 'rm -rf "$fetched"' EXIT
            (cd "$fetched" && apt-get -qq download qemu-user-static && dpkg-deb -x qemu-user-static_*.deb "$roots/emulator") >"$roots/emulator.log" 2>&1 ||
                { tail -3 "$roots/emulator.log" >&2; fail "Debian's package qemu-user-static can't be fetched: apt-get update, or set QEMU to an emulator"; }
        fi
    fi
    ln -sfn "$QEMU" "$roots/qemu-aarch64-static"
    if [ ! -e "$root.made" ]; then
        printf 'roots: making %s; the emulator needs minutes\n' "$root" >&2
        rm -rf "$root"
        debootstrap --foreign --arch="$architecture" --variant=minbase "$suite" "$root" >"$root.log" 2>&1 &&
            mkdir -p "$root/opt/debootstrap" && # it tries whether it can make devices; nobody can in a user namespace
            printf '#!/bin/sh\nln -sf /dev/null "$1"\n' >"$root/opt/debootstrap/mknod" && chmod 755 "$root/opt/debootstrap/mknod" &&
            QEMU=$QEMU "$here/in_root.sh" "$root" - env PATH=/opt/debootstrap:/usr/sbin:/usr/bin:/sbin:/bin \
                /debootstrap/debootstrap --second-stage >>"$root.log" 2>&1 ||
            { tail -5 "$root.log" >&2; fail "debootstrap could not make it (whole log: $root.log)"; }
        rm -rf "$root/opt/debootstrap"
        touch "$root.made"
    fi
    printf '%s\n' "$root"
    exit 0
fi
fresh=$roots/$suite
if [ ! -e "$fresh.made" ]; then
    command -v debootstrap >/dev/null || fail "debootstrap is missing (Debian: apt-get install debootstrap)"
    printf 'roots: making %s\n' "$fresh" >&2
    rm -rf "$fresh"
    debootstrap --variant=minbase "$suite" "$fresh" ${MIRROR:+"$MIRROR"} >"$fresh.log" 2>&1 || { tail -5 "$fresh.log" >&2; fail "debootstrap could not make it (whole log: $fresh.log)"; }
    touch "$fresh.made"
fi

make_root() { # folder, Debian packages to install, Debian packages to fetch, another architecture
    local stamp="$2 / $3"
    [ "$(cat "$1.made" 2>/dev/null)" != "$stamp" ] || return 0
    printf 'roots: making %s\n' "$1" >&2
    rm -rf "$1" "$1.made"
    cp -a "$fresh" "$1"
    # shellcheck disable=SC2016 # expanded in the root
    "$here/in_root.sh" "$1" - sh -c '[ -z "$3" ] || dpkg --add-architecture "$3"; apt-get -qq update && apt-get -qq install --no-install-recommends --yes $1 &&
        apt-get -qq clean && { [ -z "$2" ] || apt-get -qq install --no-install-recommends --yes --download-only $2; }' sh "$2" "$3" "${4:-}" >"$1.log" 2>&1 ||
        { tail -5 "$1.log" >&2; fail "its packages could not be installed (whole log: $1.log)"; }
    printf '%s\n' "$stamp" >"$1.made"
}

case $kind in
    FRESH) printf '%s\n' "$fresh" ;;
    BUILD)
        packages=$(sed -n '/^Build-Depends:/,/^[A-Z]/s/^ \([a-z0-9.+-]*\).*/\1/p' "$here/debian/control" | sed 's/^debhelper-compat$/debhelper/' | paste -s -d ' ')
        root=$fresh-build
        if [ "$architecture" = "$native" ]; then
            make_root "$root" "build-essential fakeroot lintian $packages" ""
        else
            # Both architectures' libraries; libstdc++6 is for the Python packages' own.
            root=$root-$architecture
            libraries=$(tr ' ' '\n' <<<"$packages" | sed -n "s/^lib.*/&:$architecture/p" | paste -s -d ' ')
            make_root "$root" "build-essential fakeroot lintian $packages crossbuild-essential-$architecture $libraries libstdc++6:$architecture" "" "$architecture"
        fi
        printf '%s\n' "$root"
        ;;
    TEST)
        make_root "$fresh-test" "systemd-sysv dbus iproute2 nftables bind9-dnsutils" \
            "pdns-server pdns-backend-remote rsplib-registrar kamailio procps python3 libusrsctp2 libbpf1 libnftables1 make python3-venv build-essential libusrsctp-dev libsctp-dev"
        printf '%s\n' "$fresh-test"
        ;;
    *) fail "$kind: FRESH, BUILD or TEST" ;;
esac
