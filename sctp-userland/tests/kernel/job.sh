#!/bin/sh
# Runs in the guest: every conformance case on the kernel's SCTP. The kernel's command line says where results go.
results=$(sed -n 's/.* results=\([^ ]*\).*/\1/p' /proc/cmdline)
here=$(dirname "$0")
# The timers that sctpd has in these tests: a lost or a delayed packet then costs no seconds.
cd /proc/sys/net/sctp && echo 50 >rto_min && echo 100 >rto_initial && echo 300 >rto_max && echo 20 >sack_timeout
python3 "$here/../run_case.py" >"$results" 2>&1
"$here/../../sctp-run" env >"$results.environment" 2>&1
