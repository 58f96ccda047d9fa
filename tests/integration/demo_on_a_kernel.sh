#!/bin/sh
# Runs in the User-Mode Linux guest: the demo on the kernel's SCTP. The guest's command line names the Python to use and
# where the figures go; what else came out stands beside them.
words=$(cat /proc/cmdline)
for word in $words; do
    case $word in
        python=*) python=${word#python=} ;;
        results=*) results=${word#results=} ;;
    esac
done
cd "$(dirname "$0")/../.." || exit 1
export TMPDIR=/run/lab # in memory, and gone with the guest
mkdir -p "$TMPDIR"
checksctp >"$results.checksctp" 2>&1
sctp-userland/sctp-run env >"$results.environment" 2>&1
"$python" -m rspdns_lab.cli demo --slow 10 --json "$results" >"$results.story" 2>&1
cat /proc/uptime >>"$results.story"
