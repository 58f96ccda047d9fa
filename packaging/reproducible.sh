#!/usr/bin/env bash
# reproducible.sh [SUITE...]: builds wheel, sdist and the Debian packages (default: bookworm trixie) twice and compares the bytes: a
# second build of the same commit must give the same. Differing files stay in build/reproducible; if diffoscope is
# installed, it names the differences.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || set -- bookworm trixie
folder=$PWD/build/reproducible
rm -rf "$folder"
for build in first second; do
    printf 'reproducible: %s build\n' "$build"
    packaging/wheel.sh "$folder/$build/dist" >/dev/null
    PACKAGES=$folder/$build packaging/deb.sh "$@" >/dev/null
done
cd "$folder"
same=0 different=()
while read -r file; do
    if cmp -s "first/$file" "second/$file"; then same=$((same + 1)); else different+=("$file"); fi
done < <(find first second \( -name '*.deb' -o -name '*.whl' -o -name '*.tar.gz' \) -printf '%P\n' | sort -u)
for file in "${different[@]}"; do
    printf 'reproducible: differs: %s\n' "$file" >&2
    if command -v diffoscope >/dev/null; then diffoscope "first/$file" "second/$file" | head -40 >&2 || true; fi
done
[ "$same" -gt 0 ] && [ ${#different[@]} -eq 0 ] || exit 1
printf 'reproducible: %s files, each the same in both builds\n' "$same"
rm -rf "$folder"
