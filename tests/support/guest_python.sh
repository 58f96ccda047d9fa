#!/bin/sh
# Runs in the User-Mode Linux guest: the Python module that the guest's command line names, with the file for its
# results. Its output stands beside them.
for word in $(cat /proc/cmdline); do
    case $word in
        python=*) python=${word#python=} ;;
        module=*) module=${word#module=} ;;
        results=*) results=${word#results=} ;;
    esac
done
cd "$(dirname "$0")/../.." || exit 1
"$python" -m "$module" "$results" >"$results.log" 2>&1
