#!/usr/bin/env bash
# Sets up all that `make demo` (argument: demo), `make test` and `make bench` (test), `make lint` (lint), `make deb` (deb) or
# `make images` (images) needs and is not there: Debian packages and the virtual environment in .venv; for demo and test, the
# build of sctp-userland, too, and for test that of fastpath. Safe to repeat.
set -euo pipefail
role=${1:?usage: setup.sh demo|test|lint|deb|images}
top=$(cd "$(dirname "$0")/.." && pwd)
cd "$top"

fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

wanted_packages() {
    local also=
    case $role in
        test) also=demo ;;
        images) also=deb ;;
    esac
    (find_python) >/dev/null 2>&1 || echo python3-venv
    awk -v role="$role" -v also="$also" '/^#/ || NF < 2 { next } $2 == role || $2 == also { print $1 }' \
        setup/debian-packages
}

missing_packages() {
    local package
    for package in $(wanted_packages); do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s ' "$package"
    done
}

# The services of these packages (pdns, kamailio, rspregistrar) are not wanted on this machine: a policy file of ours,
# removed again at once, keeps their installation from starting them. A policy that is there already stays as it is.
policy=/usr/sbin/policy-rc.d

install_packages() {
    if [ -e "$policy" ]; then
        printf 'setup: %s is there already and decides whether services are started\n' "$policy"
    else
        trap 'rm -f "$policy"' EXIT
        printf '#!/bin/sh\n# Set by the rspdns set-up while it installs; removed when it is done.\nexit 101\n' >"$policy"
        chmod 755 "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    apt-get -qq update || fail "apt-get update failed; see above"
    apt-get -qq install --no-install-recommends --yes "$@" >.setup/apt.log 2>&1 ||
        { tail -20 .setup/apt.log >&2; fail "apt-get could not install: $* (whole log: .setup/apt.log)"; }
    if [ -n "$(trap -p EXIT)" ]; then
        rm -f "$policy"
        trap - EXIT
    fi
}

find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 /usr/bin/python3}; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    fail "Python 3.11 or later with venv is needed; none found (set PYTHON=/path/to/python3)"
}

mkdir -p .setup
missing=$(missing_packages) || fail "dpkg-query is missing: this set-up knows Debian 12, 13 and their relatives only"
if [ -n "$missing" ]; then
    command -v apt-get >/dev/null || fail "apt-get is missing: this set-up knows Debian 12, 13 and their relatives only"
    if [ "$(id -u)" -ne 0 ]; then
        fail "system packages are missing; install them, then run this again:
    sudo apt-get install --no-install-recommends $missing"
    fi
    printf 'setup: installing Debian packages (their services are not started): %s\n' "$missing"
    # shellcheck disable=SC2086 # a list of package names
    install_packages $missing
fi

# The packages are installed anew where their list changed; the project alone where only its own file did.
packages=$(sha256sum <setup/requirements.lock)
project=$(sha256sum <pyproject.toml)
if [ "$(cat .venv/.packages-stamp 2>/dev/null)" != "$packages" ]; then
    python=$(find_python)
    printf 'setup: making the virtual environment .venv with %s\n' "$python"
    "$python" -m venv --clear .venv
    export PIP_CACHE_DIR=$PWD/.setup/pip # nothing is left outside the project
    .venv/bin/python -m pip --quiet --disable-pip-version-check install --require-hashes -r setup/requirements.lock ||
        fail "pip could not install what setup/requirements.lock names; see above"
    printf '%s' "$packages" >.venv/.packages-stamp
fi
if [ "$(cat .venv/.project-stamp 2>/dev/null)" != "$project" ]; then
    .venv/bin/python -m pip --quiet --disable-pip-version-check install --no-deps --no-build-isolation --editable . ||
        fail "pip could not install the project itself; see above"
    printf '%s' "$project" >.venv/.project-stamp
fi

case $role in lint | deb | images) exit 0 ;; esac
if [ "$role" = test ]; then
    make --silent -j"$(nproc)" -C fastpath >.setup/fastpath.log 2>&1 ||
        { tail -20 .setup/fastpath.log >&2; fail "fastpath does not build (whole log: .setup/fastpath.log)"; }
fi
make --silent -j"$(nproc)" -C sctp-userland >.setup/sctp-userland.log 2>&1 ||
    { tail -20 .setup/sctp-userland.log >&2; fail "sctp-userland does not build (whole log: .setup/sctp-userland.log)"; }
make --silent -C registrar-config >.setup/registrar-config.log 2>&1 ||
    { tail -20 .setup/registrar-config.log >&2; fail "the registrars' gate does not build (whole log: .setup/registrar-config.log)"; }
[ "$role" = demo ] || make --silent -C ppu-agent >.setup/ppu-agent.log 2>&1 ||
    { tail -20 .setup/ppu-agent.log >&2; fail "ppu-agent's BPF program does not build (whole log: .setup/ppu-agent.log)"; }
