#!/usr/bin/env bash
# Installs rspdns for production, or removes it: install.sh install|uninstall. `make install` and `make uninstall` call it.
# Variables: DESTDIR (empty), PREFIX (/usr/local), APPDIR (/opt/rspdns), SYSCONFDIR (/etc), PYTHON (/usr/bin/python3),
# SCTP_USERLAND=yes (SCTP for a kernel that has none), FASTPATH=yes (answers from the kernel), LABS=yes (rspdns-lab too).
# For another architecture, with DESTDIR: CC (its gcc) and MACHINE (its name in Python's wheels: aarch64).
# Configuration that an administrator wrote is neither changed nor removed.
set -euo pipefail
action=${1:?usage: install.sh install|uninstall}
cd "$(dirname "$0")/.."
umask 022
DESTDIR=${DESTDIR:-} PREFIX=${PREFIX:-/usr/local} APPDIR=${APPDIR:-/opt/rspdns} SYSCONFDIR=${SYSCONFDIR:-/etc}
PYTHON=${PYTHON:-/usr/bin/python3} SCTP_USERLAND=${SCTP_USERLAND:-no} FASTPATH=${FASTPATH:-no} LABS=${LABS:-no}
CC=${CC:-gcc} MACHINE=${MACHINE:-}

fail() { printf 'install: %s\n' "$*" >&2; exit 1; }
say() { printf 'install: %s\n' "$*"; }

for path in "$PREFIX" "$APPDIR" "$SYSCONFDIR" "${DESTDIR:-/}"; do
    [[ $path =~ ^/[A-Za-z0-9/._+-]*$ ]] || fail "'$path': a path begins with / and has letters, digits and . _ + - only"
done
[ -n "$DESTDIR" ] || [ "$(id -u)" -eq 0 ] ||
    fail "it writes to $APPDIR, $PREFIX and $SYSCONFDIR: run it as root (sudo make $action), or set DESTDIR=/a/folder"

[ -z "$MACHINE" ] || [ -n "$DESTDIR" ] || fail "programs for $MACHINE are of no use on this machine: set DESTDIR=/a/folder"

app=$DESTDIR$APPDIR
list=$app/installed-files # every file outside APPDIR, without DESTDIR; the next install and uninstall read it

remove_files() { # the paths come on standard input
    local path folder
    while read -r path; do
        rm -f "$DESTDIR$path"
        folder=${path%/*}
        # Folders that every system has stay: /usr/local/bin, /usr/local/lib, /usr/local/share, /etc.
        while [ "${folder%/*}" != "$PREFIX" ] && [ "$folder" != "$SYSCONFDIR" ] && rmdir "$DESTDIR$folder" 2>/dev/null; do
            folder=${folder%/*}
        done
    done
}

tell_systemd() {
    if [ -z "$DESTDIR" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
}

units_in_use() {
    local unit
    sed -n "s,^$PREFIX/lib/systemd/system/\([^/]*\)$,\1,p" "$list" | sed 's/@\./@*./' | while read -r unit; do
        find /etc/systemd/system -type l -name "$unit" -printf '%f\n'
        [ ! -d /run/systemd/system ] || systemctl list-units --plain --no-legend --state=active --full "$unit" | cut -d ' ' -f 1
    done | sort -u | paste -s -d ' '
}

if [ "$action" = uninstall ]; then
    [ -e "$list" ] || fail "$list is missing: nothing is installed there"
    if [ -z "$DESTDIR" ]; then
        in_use=$(units_in_use)
        [ -z "$in_use" ] || fail "these units are running or enabled; first: systemctl disable --now $in_use"
    fi
    remove_files <"$list"
    rm -rf "$app"
    tell_systemd
    rmdir "$DESTDIR$SYSCONFDIR/rspdns/zones.d" "$DESTDIR$SYSCONFDIR/rspdns" 2>/dev/null || true
    for folder in "$DESTDIR$SYSCONFDIR/rspdns" "$DESTDIR$SYSCONFDIR/ppe-agent" "$DESTDIR$SYSCONFDIR/ppu-agent"; do
        [ ! -e "$folder" ] || say "kept: $folder"
    done
    say "removed; the users rspdns, ppe-agent and ppu-agent and what lies below /var/lib are kept"
    exit 0
fi

# The folder is replaced as a whole: never one that is something else's.
[ -e "$list" ] || [ -z "$(ls -A "$app" 2>/dev/null)" ] ||
    fail "$app is not empty, and no installation of rspdns: choose a folder of its own for APPDIR"
"$PYTHON" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
    fail "$PYTHON is no Python 3.11 or later with venv (Debian: apt-get install python3-venv; or set PYTHON=/path/to/python3)"
case $(readlink -f "$PYTHON") in
    /home/* | /root/*) fail "$PYTHON lies in a home directory, which the services can't see: set PYTHON=/path/to/python3" ;;
esac

# The environment is made beside the old one and takes its place when it is whole.
new=$app.new
staged=$(mktemp -d)
trap 'rm -rf "$new" "$staged"' EXIT
rm -rf "$new"
mkdir -p "${app%/*}"
say "making the virtual environment $APPDIR with $PYTHON"
"$PYTHON" -m venv "$new"
export PIP_CACHE_DIR=${PIP_CACHE_DIR:-$PWD/.setup/pip} PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
pip=("$new/bin/python" -m pip --quiet install --no-compile)
roles='production'
[ "$LABS" != yes ] || roles='production|labs'
setup/locked_packages.sh "$roles|build" >"$new/requirements.txt"
"${pip[@]}" --no-deps --require-hashes -r "$new/requirements.txt" || fail "pip could not install what setup/requirements.lock names; see above"
make --silent -C ppu-agent CC="$CC" >"$staged/log" 2>&1 || say "no clang or libbpf-dev: ppu-agent can't pace or guard connection set-up (pace, [gateway])"
make --silent -C registrar-config CC="$CC" >"$staged/log" 2>&1 || say "no C compiler or libsctp-dev: registrars can't have a gate (rspdns-registrar run --gate)"
"${pip[@]}" --no-deps --no-build-isolation . || fail "pip could not install rspdns itself; see above"
setup/locked_packages.sh "$roles" >"$new/requirements.txt"
setup/locked_packages.sh build | sed -n 's/^\([a-z][^=]*\)==.*/\1/p' | while read -r name; do # it has done its work
    grep -q "^$name==" "$new/requirements.txt" || printf '%s\n' "$name"
done | xargs "$new/bin/python" -m pip --quiet uninstall --yes
"$new/bin/python" -m pip --quiet check || fail "setup/python-packages lacks what pip names above"

commands=(rspdns ppe-agent ppu-agent rspdns-registrar)
[ "$LABS" != yes ] || commands+=(rspdns-lab)

# From here on nothing is fetched. Files outside APPDIR are written beside their places first, then moved there together.
files=$staged/files
: >"$files"
put() { # source, path; "-": standard input
    local target=$staged/root$2
    mkdir -p "${target%/*}"
    cat "$1" >"$target"
    printf '%s\n' "$2" >>"$files"
}
put_folder() { # as another `make install` wrote it
    (cd "$1" && find . -type f -o -type l) | sed 's/^\.//' >>"$files"
    cp -a "$1/." "$staged/root/"
}
put_unit() { # the programs' places are those of this installation
    sed -E "s,/usr/bin/(rspdns-registrar|rspdns|ppe-agent|ppu-agent)\b,$APPDIR/bin/\1,; s,/usr/local/bin/,$PREFIX/bin/," "$1" |
        put - "$PREFIX/lib/systemd/system/$2"
}

for command in "${commands[@]}"; do
    variable=_$(tr a-z- A-Z_ <<<"$command")_COMPLETE
    for target in bash:bash-completion/completions/$command zsh:zsh/site-functions/_$command fish:fish/vendor_completions.d/$command.fish; do
        env "$variable=${target%%:*}_source" "$new/bin/$command" | put - "$PREFIX/share/${target#*:}"
    done
done
"$new/bin/python" setup/man_pages.py "$new/man" "${commands[@]}" >/dev/null
for page in "$new"/man/man1/*; do put "$page" "$PREFIX/share/man/man1/${page##*/}"; done
rm -rf "$new/man"
if [ -n "$MACHINE" ]; then
    # This machine's Python packages have made completion and manuals; the other machine's take their place.
    python=$("$new/bin/python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    mapfile -t wheels < <(setup/locked_packages.sh --wheels "$MACHINE" "$python")
    "${pip[@]}" --no-deps --require-hashes -r "$new/requirements.txt" "${wheels[@]}" --target "$staged/packages" ||
        fail "pip could not install what setup/requirements.lock names for $MACHINE; see above"
    rm -rf "$staged/packages/bin"
    sed -n 's/^\([a-z][^=]*\)==.*/\1/p' "$new/requirements.txt" | xargs "$new/bin/python" -m pip --quiet uninstall --yes
    cp -a "$staged/packages/." "$new/lib/python$python/site-packages/"
fi

put_unit backend/systemd/rspdns.service rspdns.service
put_unit backend/systemd/rspdns.socket rspdns.socket
put_unit backend/systemd/rspdns-news.service rspdns-news.service
put_unit backend/systemd/rspdns-gateway.service rspdns-gateway.service
put backend/systemd/pdns.service.d/rspdns.conf "$PREFIX/lib/systemd/system/pdns.service.d/rspdns.conf"
put_unit ppe-agent/systemd/ppe-agent.service ppe-agent.service
put ppe-agent/systemd/ppe-agent-relay.conf "$PREFIX/share/doc/rspdns/examples/ppe-agent-relay.conf"
put_unit ppu-agent/systemd/ppu-agent.service ppu-agent.service
put ppu-agent/systemd/ppu-agent-pace.conf "$PREFIX/share/doc/rspdns/examples/ppu-agent-pace.conf"
put ppu-agent/systemd/ppu-agent-gateway.conf "$PREFIX/share/doc/rspdns/examples/ppu-agent-gateway.conf"
put_unit registrar-config/examples/systemd/rspdns-registrar@.service rspdns-registrar@.service
put_unit registrar-config/examples/systemd/rspdns-filter.service rspdns-filter.service
put registrar-config/examples/systemd/nftables.service.d/rspdns.conf "$PREFIX/lib/systemd/system/nftables.service.d/rspdns.conf"
put backend/systemd/rspdns.sysusers "$PREFIX/lib/sysusers.d/rspdns.conf"
put backend/systemd/rspdns.tmpfiles "$PREFIX/lib/tmpfiles.d/rspdns.conf"
put ppe-agent/systemd/ppe-agent.sysusers "$PREFIX/lib/sysusers.d/ppe-agent.conf"
put ppu-agent/systemd/ppu-agent.sysusers "$PREFIX/lib/sysusers.d/ppu-agent.conf"
if [ "$SCTP_USERLAND" = yes ]; then
    put_unit backend/systemd/rspdns.service.d/sctp-run.conf rspdns.service.d/sctp-run.conf
    put_unit backend/systemd/rspdns-gateway.service.d/sctp-run.conf rspdns-gateway.service.d/sctp-run.conf
    put_unit ppe-agent/systemd/ppe-agent-sctp-run.conf ppe-agent.service.d/sctp-run.conf
    put_unit ppu-agent/systemd/ppu-agent-sctp-run.conf ppu-agent.service.d/sctp-run.conf
    put_unit registrar-config/examples/systemd/rspdns-registrar@.service.d/sctp-run.conf rspdns-registrar@.service.d/sctp-run.conf
    make --silent -j"$(nproc)" -C sctp-userland install CC="$CC" DESTDIR="$staged/sctp" PREFIX="$PREFIX" >"$staged/log" 2>&1 ||
        { tail -20 "$staged/log" >&2; fail "sctp-userland does not build (Debian: apt-get install build-essential libusrsctp-dev libsctp-dev)"; }
    put_folder "$staged/sctp"
fi
if [ "$FASTPATH" = yes ]; then
    make --silent -j"$(nproc)" -C fastpath install CC="$CC" DESTDIR="$staged/fastpath" PREFIX="$PREFIX" >"$staged/log" 2>&1 ||
        { tail -20 "$staged/log" >&2; fail "fastpath does not build (Debian: apt-get install build-essential clang libbpf-dev)"; }
    put_folder "$staged/fastpath"
    put fastpath/systemd/fastpath.env "$SYSCONFDIR/rspdns/fastpath.env.example"
fi

put backend/examples/rspdns.toml "$SYSCONFDIR/rspdns/rspdns.toml.example"
put ppe-agent/examples/agent.toml "$SYSCONFDIR/ppe-agent/agent.toml.example"
put ppu-agent/examples/ppu-agent.toml "$SYSCONFDIR/ppu-agent/ppu-agent.toml.example"
examples=$PREFIX/share/doc/rspdns/examples
for file in alerts.yml recording.yml grafana-dashboard.json; do put "backend/examples/$file" "$examples/$file"; done
for zone in backend/examples/zones.d/*; do put "$zone" "$examples/zones.d/${zone##*/}"; done
put backend/examples/gateway.toml "$examples/gateway.toml"
put registrar-config/examples/inventory.toml "$examples/inventory.toml"
put registrar-config/examples/cells.toml "$examples/cells.toml"
sed "s,/usr/lib/rspdns/,$APPDIR/," pdns-config/examples/pdns.conf | put - "$examples/pdns.conf"
# PowerDNS runs it: root's, at a path that no version of Python changes.
install -m 644 pdns-config/pdns_config/name_table.lua "$new/name_table.lua"

# Files of pip and venv name the folder in which they were made; so do the modules that pip compiled for itself.
grep -rlI --null -e "$new" "$new/bin" "$new/pyvenv.cfg" | xargs -0 sed -i "s,$new,$APPDIR,g"
find "$new/lib" -name __pycache__ -prune -exec rm -rf {} +
"$new/bin/python" -B -m compileall -q -x '/(pip|setuptools|pkg_resources|_distutils_hack)/' -s "$new" -p "$APPDIR" "$new/lib"
for command in "${commands[@]}"; do
    mkdir -p "$staged/root$PREFIX/bin"
    ln -sf "$APPDIR/bin/$command" "$staged/root$PREFIX/bin/$command"
    printf '%s\n' "$PREFIX/bin/$command" >>"$files"
done
sort -u "$files" >"$new/installed-files"
before=$staged/before
sort -u "$list" >"$before" 2>/dev/null || : >"$before"

rm -rf "$app.old"
[ ! -e "$app" ] || mv "$app" "$app.old"
mv "$new" "$app"
rm -rf "$app.old"
while read -r path; do
    mkdir -p "$DESTDIR${path%/*}"
    mv -f "$staged/root$path" "$DESTDIR$path"
done <"$app/installed-files"
mkdir -p "$DESTDIR$SYSCONFDIR/rspdns/zones.d"
comm -23 "$before" "$app/installed-files" | remove_files

if [ -z "$DESTDIR" ]; then
    if command -v systemd-sysusers >/dev/null; then
        grep "^$PREFIX/lib/sysusers.d/" "$app/installed-files" | xargs systemd-sysusers
        systemd-tmpfiles --create "$PREFIX/lib/tmpfiles.d/rspdns.conf"
        # PowerDNS that runs already; later starts do it by pdns.service.d/rspdns.conf.
        [ ! -S /run/pdns/pdns.controlsocket ] || chgrp rspdns-control /run/pdns/pdns.controlsocket
    fi
    tell_systemd
fi
say "done: the commands are in $PREFIX/bin, examples in $SYSCONFDIR/rspdns, $SYSCONFDIR/ppe-agent, $SYSCONFDIR/ppu-agent and $examples"
say "next: docs/how-to/install.md says what to enable on which host"
