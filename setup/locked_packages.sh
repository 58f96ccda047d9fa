#!/usr/bin/env bash
# Prints the part of requirements.lock (versions, hashes) of the packages with one of these roles in python-packages:
# locked_packages.sh 'production|labs'
# locked_packages.sh --wheels MACHINE PYTHON: pip's options for their wheels for another machine (aarch64) and Python (3.13).
set -euo pipefail
cd "$(dirname "$0")"
if [ "${1:-}" = --wheels ]; then
    machine=${2:?} python=${3:?}
    printf '%s\n' --only-binary=:all: --implementation=cp "--python-version=$python" "--abi=cp${python/./}" --abi=abi3 --abi=none \
        "--platform=manylinux_2_17_$machine" "--platform=manylinux2014_$machine" "--platform=manylinux_2_28_$machine" --platform=any
    exit
fi
# Each package of the lock file is a line with its version, and lines with hashes that belong to it.
awk -v roles=" (${1:?usage: locked_packages.sh ROLE|ROLE...})( |$)" '
    NR == FNR { if (!/^#/ && $0 ~ roles) wanted[$1]; next }
    /^[a-z]/ { split($1, name, "=="); take = name[1] in wanted }
    take' python-packages requirements.lock
