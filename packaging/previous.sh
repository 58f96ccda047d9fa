#!/usr/bin/env bash
# previous.sh [REVISION|FOLDER]: builds the Debian packages of an earlier revision, with its own packaging, for an upgrade from it; into
# build/previous/SUITE. Default: the last tag before this commit. Without one there is nothing to build. FOLDER: one that `make release` made;
# its packages, and the apt repository as it is. APT_KEY signed that, and the one upgraded to has to be signed by it, too.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$PWD/build/previous

fail() { printf 'previous: %s\n' "$*" >&2; exit 1; }

suites=${SUITES:-bookworm trixie}
if [ -d "${1:-}/apt/pool" ]; then
    [ -e "${APT_KEY:-}" ] || fail "hosts take an upgrade by the key of $1 alone: APT_KEY=FILE"
    rm -rf "$folder"
    mkdir -p "$folder"
    cp -a "$1/apt" "$folder/apt"
    for suite in $suites; do ln -s "apt/pool/$suite" "$folder/$suite"; done
    exit 0
fi
revision=${1:-$(git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null || true)}
if [ -z "$revision" ]; then
    rm -rf "$folder"
    printf 'previous: no version was tagged before this one, so no upgrade from one is tried (UPGRADE_FROM=REVISION: from that)\n'
    exit 0
fi
commit=$(git rev-parse --verify --quiet "$revision^{commit}") || fail "$revision is no revision of this repository"
git merge-base --is-ancestor "$commit" HEAD && [ "$commit" != "$(git rev-parse HEAD)" ] || fail "$revision is not before this commit"
[ "$(cat "$folder/commit" 2>/dev/null)" != "$commit $suites" ] || exit 0
rm -rf "$folder"
mkdir -p "$folder/source"
git archive "$commit" | tar -x -C "$folder/source"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$folder/source/pyproject.toml")
git describe --tags --exact-match --match "v$version" "$commit" >/dev/null 2>&1 ||
    version=$version~dev$(git rev-list --count "$commit").$(git rev-parse --short=7 "$commit")
printf 'previous: building the packages of %s (%s)\n' "$revision" "$version"
ROOTS=${ROOTS:-$PWD/build/roots} VERSION=$version SOURCE_DATE_EPOCH=$(git log -1 --format=%ct "$commit") PIP_CACHE_DIR=$PWD/.setup/pip \
    "$folder/source/packaging/deb.sh" $suites >"$folder/build.log" 2>&1 ||
    { tail -20 "$folder/build.log" >&2; fail "they could not be built (whole log: $folder/build.log)"; }
mv "$folder"/source/build/packages/* "$folder"
rm -rf "$folder/source"
printf '%s\n' "$commit $suites" >"$folder/commit"
