#!/usr/bin/env bash
# Puts together what is released, in build/release: wheel, sdist, the Debian packages of this version in build/packages (for arm64,
# too, when `make deb ARCHITECTURE=arm64` made them), a list of all parts (CycloneDX) and checksums, which the OpenSSH key SIGN_KEY signs.
set -euo pipefail
: "${SIGN_KEY:?an OpenSSH private key that signs SHA256SUMS: make release SIGN_KEY=FILE; SIGN_KEY=none: unsigned}"
cd "$(dirname "$0")/.."
folder=build/release
version=$(packaging/version.sh)
rm -rf "$folder"
mkdir -p "$folder"
packaging/wheel.sh "$folder" >/dev/null
packages=()
for package in build/packages/*/*_"$version"+deb*.deb; do
    [ -e "$package" ] || { echo "release: build/packages has no packages of $version: make deb" >&2; exit 1; }
    suite=$(basename "${package%/*}")
    cp "$package" "$folder"
    packages+=("${suite%-arm64}=$package")
done
.venv/bin/python packaging/sbom.py "$version" "$(packaging/version.sh --date)" "${packages[@]}" >"$folder/rspdns-$version.cdx.json"
packaging/sign.sh "$folder"
