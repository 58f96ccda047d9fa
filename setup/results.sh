#!/usr/bin/env bash
# results.sh [NAME ...]: runs the labs whose figures the documentation shows, and writes docs/results/NAME.md from each.
# Without names: all of them, one after the other; that takes some hours. The machine should do nothing else meanwhile.
# A lab that was broken off goes on when it is started again (build/results has the trials); remove build/results to begin anew.
# If all trials of a page are there, it is only drawn anew, which takes seconds.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
all=(faults faults-sites faults-hostile faults-fastpath faults-ppu-agent loss calls calls-with-ppu-agent takeover speed changes strangers size registrars gate resolvers guard proxies discover secondaries news favor tcp-over-sctp calls-over-tcp voip uplink cells scale)
names=("${all[@]}")
[ $# -eq 0 ] || names=("$@")
mkdir -p "$here/build/results" "$here/docs/results"

command_of() {
    case $1 in
        faults) echo chaos --members 3 --follow enrp --trials 20 ;; # some three hours
        faults-sites)
            echo chaos --follow enrp --members 8 --trials 20 \
                --fault site-lost --fault site-flaps --fault site-overloaded --fault site-unreachable-from-name-servers \
                --fault handlespace-lost --fault handlespace-lost-server-killed --fault cell-lost
            ;;
        faults-hostile)
            echo chaos --members 3 --trials 20 --fault registrar-lies-takeover --fault registrar-lies-steal --fault registrar-lies-ghosts \
                --fault host-takes-identifiers --fault host-reports-others --fault identifier-zero
            ;;
        faults-fastpath)
            echo chaos --fastpath --members 3 --follow enrp --trials 20 \
                --fault as-killed --fault as-hung --fault as-drained --fault as-link-cut \
                --fault backend-killed --fault as-killed-while-backend-frozen \
                --fault fastpath-killed --fault fastpath-frozen \
                --fault as-killed-after-fastpath --fault as-killed-while-fastpath-frozen
            ;;
        faults-ppu-agent) echo chaos --ppu --trials 20 ;; # some two hours
        loss) echo loss ;;
        calls) echo ims ;;
        calls-with-ppu-agent) echo ims --ppu ;; # some 8 minutes
        takeover) echo compare --seconds 20 --trials 7 ;; # some 8 minutes
        voip) echo voip --firewalls ;; # some 15 minutes; 81,600 packets a second need an idle machine
        speed) echo bench --only questions --rounds 3 ;;
        changes) echo bench --only changes ;;
        strangers) echo bench --only flood --only strangers ;;
        size) echo bench --only scale --seconds 2 ;;
        registrars) echo bench --only registrars --seconds 4 --trials 3 ;;
        gate) echo bench --only gate --rounds 5 --seconds 3 ;;
        resolvers) echo resolvers ;;
        cells) echo cells --first --trials 60 --losses 2 ;; # some 8 minutes; a hundred programs share the processors
        scale) echo scale ;; # some 5 minutes
        guard) echo ;; # the bench of ppu-agent/guard
        proxies) echo proxies --trials 3 ;; # some 10 minutes
        discover) echo discover ;; # some 8 minutes
        secondaries) echo secondaries ;; # some 20 minutes
        news) echo news ;; # some 18 minutes
        favor) echo favor ;; # some 40 minutes
        tcp-over-sctp) echo shim --jobs 60 ;; # some 90 minutes; the links are slow, and cost little
        calls-over-tcp) echo ims --transport tcp --shim --trials 3 ;;
        uplink) echo uplink --seconds 20 ;;
        *) printf 'results: %s: there is no such page; the pages are: %s\n' "$1" "${all[*]}" >&2; exit 2 ;;
    esac
}

for name in "${names[@]}"; do command_of "$name" >/dev/null; done
for name in "${names[@]}"; do
    read -ra command <<<"$(command_of "$name")"
    program=("$here/.venv/bin/rspdns-lab")
    [ "$name" != guard ] || program=(env PYTHONPATH="$here/ppu-agent/guard/bench" "$here/.venv/bin/python" -m guard_bench)
    printf 'results: %s: %s\n' "$name" "${program[*]##*/} ${command[*]}" >&2
    status=0
    "${program[@]}" "${command[@]}" --results "$here/build/results/$name.json" \
        --markdown "$here/docs/results/$name.md" || status=$?
    [ "$status" -le 1 ] || exit "$status" # 1: a bound was broken; the page says which
    case "$name" in calls | calls-with-ppu-agent) "$here/.venv/bin/python" "$here/setup/waited.py" ;; esac
done
