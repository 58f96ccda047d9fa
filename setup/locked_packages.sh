#!/usr/bin/env bash
# Prints the part of requirements.lock (versions, hashes) of the packages with one of these roles in python-packages:
# locked_packages.sh 'production|labs'
set -euo pipefail
cd "$(dirname "$0")"
# Each package of the lock file is a line with its version, and lines with hashes that belong to it.
awk -v roles=" (${1:?usage: locked_packages.sh ROLE|ROLE...})( |$)" '
    NR == FNR { if (!/^#/ && $0 ~ roles) wanted[$1]; next }
    /^[a-z]/ { split($1, name, "=="); take = name[1] in wanted }
    take' python-packages requirements.lock
