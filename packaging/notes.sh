#!/usr/bin/env bash
# Prints the notes of a release: what CHANGELOG.md says of the version in pyproject.toml.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
notes=$(awk -v heading="## $version" 'index($0, heading) == 1 { found = 1; next } /^## / { found = 0 } found' CHANGELOG.md)
[ -n "$notes" ] || { echo "notes: CHANGELOG.md says nothing of $version" >&2; exit 1; }
printf '# rspdns %s\n%s\n' "$version" "$notes"
