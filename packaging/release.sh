#!/usr/bin/env bash
# Puts together what is released, in build/release, as a web server would serve it: the documentation (site), the apt repository (apt) of
# the packages of this version in build/packages (for arm64, too, when `make deb ARCHITECTURE=arm64` made them), the container images
# (images), wheel, sdist, a list of all parts (CycloneDX), the notes, and checksums of all, which the OpenSSH key SIGN_KEY signs.
# APT_KEY: the OpenPGP key of the apt repository.
set -euo pipefail
: "${SIGN_KEY:?an OpenSSH private key that signs SHA256SUMS: make release SIGN_KEY=FILE; SIGN_KEY=none: unsigned}"
: "${APT_KEY:?the OpenPGP key of the apt repository: make release APT_KEY=FILE; it is made if it is missing}"
cd "$(dirname "$0")/.."
folder=build/release
version=$(packaging/version.sh)
rm -rf "$folder"
mkdir -p "$folder/images"
packages=()
for package in build/packages/*/*_"$version"+deb*.deb; do
    [ -e "$package" ] || { echo "release: build/packages has no packages of $version: make deb" >&2; exit 1; }
    suite=$(basename "${package%/*}")
    packages+=("${suite%-arm64}=$package")
done
packaging/notes.sh >"$folder/NOTES.md"
packaging/wheel.sh "$folder" >/dev/null
packaging/apt.sh "$folder/apt"
cp -a build/site "$folder/site"
cp build/images/images.tar build/images/images.txt "$folder/images"
.venv/bin/python packaging/sbom.py "$version" "$(packaging/version.sh --date)" "${packages[@]}" >"$folder/rspdns-$version.cdx.json"
packaging/sign.sh "$folder"
