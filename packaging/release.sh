#!/usr/bin/env bash
# Puts together what is released, in build/release: wheel, sdist, the Debian packages of build/packages, a list of all parts
# (CycloneDX) and checksums.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/release
version=$(packaging/version.sh)
rm -rf "$folder"
mkdir -p "$folder"
packaging/wheel.sh "$folder" >/dev/null
packages=()
for suite in build/packages/*/; do
    suite=$(basename "$suite")
    cp "build/packages/$suite"/*.deb "$folder"
    for package in "build/packages/$suite"/*.deb; do packages+=("$suite=$package"); done
done
.venv/bin/python packaging/sbom.py "$version" "$(packaging/version.sh --date)" "${packages[@]}" >"$folder/rspdns-$version.cdx.json"
cd "$folder"
sha256sum ./* | sed 's, \./, ,' >SHA256SUMS
cat SHA256SUMS
