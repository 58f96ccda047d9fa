#!/usr/bin/env bash
# Prints the version of this source for packages: 0.1.0 for what is tagged v0.1.0, 0.1.0~dev1234.abcdef0 before that (1234 commits),
# so that each commit's packages are newer than those before it. --date: when it was written, in seconds since 1970.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
if ! git rev-parse --git-dir >/dev/null 2>&1; then
    [ "${1:-}" = --date ] && version=${SOURCE_DATE_EPOCH:-$(stat -c %Y pyproject.toml)}
elif [ "${1:-}" = --date ]; then
    version=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
elif [ "$(git describe --tags --exact-match 2>/dev/null)" != "v$version" ]; then
    version=$version~dev$(git rev-list --count HEAD).$(git rev-parse --short=7 HEAD)
fi
printf '%s\n' "$version"
