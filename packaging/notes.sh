#!/usr/bin/env bash
# Prints the notes of a release: what CHANGELOG.md says of the version in pyproject.toml. A version with its tag needs a date there.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
notes=$(awk -v heading="## $version" 'index($0, heading) == 1 { found = 1; next } /^## / { found = 0 } found' CHANGELOG.md)
[ -n "$notes" ] || { echo "notes: CHANGELOG.md says nothing of $version" >&2; exit 1; }
if [ "$(packaging/version.sh)" = "$version" ] && grep -q "^## $version (unreleased)" CHANGELOG.md; then
    echo "notes: CHANGELOG.md calls $version unreleased; write its date there before you tag it" >&2
    exit 1
fi
printf '# rspdns %s\n%s\n' "$version" "$notes"
