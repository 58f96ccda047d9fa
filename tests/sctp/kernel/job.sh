#!/bin/sh
# Runs in the guest: every conformance case on the kernel's SCTP. Where results go comes with the kernel's command line.
results=$(sed -n 's/.* results=\([^ ]*\).*/\1/p' /proc/cmdline)
here=$(dirname "$0")
python3 "$here/../run_case.py" >"$results" 2>&1
"$here/../../../sctp-userland/sctp-run" env >"$results.environment" 2>&1
