#!/usr/bin/env bash
# Runs pytest with these arguments; what failed and may be tried again (tests/support/second_try.py) runs once more, alone.
# All it leaves outside the project goes into one folder, which is removed afterwards, or named when a test failed. Its
# path is short: a unix socket's holds at most 107 bytes.
set -uo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp --directory /tmp/rt.XXXX) || exit 1
chmod 755 "$folder" # some tests run programs as nobody
trap 'rm -rf "$folder"' INT TERM
export TMPDIR=$folder XDG_CACHE_HOME=$folder/cache XDG_CONFIG_HOME=$folder/config
.venv/bin/pytest --basetemp="$folder/p" "$@"
code=$?
if [ $code -eq 9 ]; then
    echo "tests: those that failed are tried once more, one after the other; what they wrote at first is in $folder" >&2
    .venv/bin/pytest --basetemp="$folder/s" "$@" -n 0 --last-failed --last-failed-no-failures none
    code=$?
    [ $code -eq 9 ] && code=1
    [ $code -eq 0 ] && echo "tests: all passed, some of them at their second try: the first summary names them" >&2
fi
if [ $code -eq 0 ] || [ ! -d "$folder" ]; then
    rm -rf "$folder"
else
    echo "tests: what they wrote is in $folder" >&2
fi
exit $code
