#!/usr/bin/env bash
# Runs pytest with these arguments. All it leaves outside the project goes into one folder, which is removed afterwards, or
# named when a test failed. Its path is short: a unix socket's holds at most 107 bytes.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp --directory /tmp/rt.XXXX) || exit 1
chmod 755 "$folder" # some tests run programs as nobody
trap 'rm -rf "$folder"' INT TERM
export TMPDIR=$folder XDG_CACHE_HOME=$folder/cache XDG_CONFIG_HOME=$folder/config
unset PYTHONDONTWRITEBYTECODE # the programs under test start by the hundred, each time compiled anew
.venv/bin/pytest --basetemp="$folder/p" "$@"
code=$?
if [ $code -eq 0 ] || [ ! -d "$folder" ]; then
    rm -rf "$folder"
else
    echo "tests: what they wrote is in $folder" >&2
fi
exit $code
