#!/bin/sh
# Runs in the guest: lksctp-tools' test programs on the kernel's SCTP. Its command line says where they are and where results go.
results=$(sed -n 's/.* results=\([^ ]*\).*/\1/p' /proc/cmdline)
programs=$(sed -n 's/.* programs=\([^ ]*\).*/\1/p' /proc/cmdline)
cd /proc/sys/net/sctp && echo 50 >rto_min && echo 100 >rto_initial && echo 300 >rto_max && echo 20 >sack_timeout
python3 "$(dirname "$0")/run_programs.py" "$programs" >"$results" 2>&1
