#!/usr/bin/env bash
# determinism.sh [PYTHON]: runs two simulated scenarios with the environment's Python and with PYTHON (default: python3.13), in an environment
# of its own in build/determinism, and compares the bytes of their traces. PIP_OPTIONS=... goes to pip.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
python=${1:-python3.13}
folder=$here/build/determinism
fail() { printf 'determinism: %s\n' "$*" >&2; exit 1; }

command -v "$python" >/dev/null || fail "$python is missing: name another one (make test-determinism PYTHON=/path/to/python)"
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])') || fail "$python does not run"
other=$folder/$version
mkdir -p "$folder"
if [ ! -e "$other.made" ]; then
    rm -rf "$other"
    "$python" -m venv "$other"
    sed -n 's/^\([A-Za-z0-9_.-]*==[^ ]*\).*/\1/p' "$here/setup/requirements.lock" >"$folder/constraints"
    # shellcheck disable=SC2086 # several options
    "$other/bin/pip" --quiet install ${PIP_OPTIONS:-} --constraint "$folder/constraints" --editable "$here[agent,backend,client]"
    touch "$other.made"
fi
run() { # Python, name of the trace
    PYTHONHASHSEED=0 "$1" -m rspdns_lab.simulate 3 4 1.2 --size 3,4,2 --trace "$folder/$2" >"$folder/$2.json"
}
run "$here/.venv/bin/python" own
run "$other/bin/python" other
cmp "$folder/own" "$folder/other" || fail "the traces of Python $version and of the environment differ: $folder/own, $folder/other"
[ "$(grep -o '"digest": "[0-9a-f]*"' "$folder/own.json")" = "$(grep -o '"digest": "[0-9a-f]*"' "$folder/other.json")" ] || fail "the digests differ"
printf 'determinism: Python %s writes the same %s lines\n' "$version" "$(wc -l <"$folder/own")"
