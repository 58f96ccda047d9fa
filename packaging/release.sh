#!/usr/bin/env bash
# Builds what is missing and puts together what is released, in build/release, as a web server would serve it: the documentation (site),
# the apt repository (apt) of the packages of this version (for arm64, too, when `make deb ARCHITECTURE=arm64` made them), the container
# images (images), wheel, sdist, a list of all parts (CycloneDX), the notes, and checksums of all, which the OpenSSH key SIGN_KEY signs.
# APT_KEY: the OpenPGP key of the apt repository. An interrupted run goes on where it was when it is started again.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=build/release
version=$(packaging/version.sh)

step() { printf 'release: %(%H:%M:%S)T %s\n' -1 "$*"; }

# The notes and both keys are tried first: the packages take minutes.
packaging/notes.sh >/dev/null
packaging/sign.sh
packaging/apt.sh
step "Debian packages of $version"
packaging/deb.sh
step "container images"
packaging/images/build.sh
step "documentation"
make --silent docs
step "$folder"
packages=()
for package in build/packages/*/*.deb; do
    suite=$(basename "${package%/*}")
    [[ $package == *_"$version"+deb* ]] ||
        { echo "release: ${package%/*} has packages of another version than $version: build them anew, or remove that folder" >&2; exit 1; }
    packages+=("${suite%-arm64}=$package")
done
rm -rf "$folder"
mkdir -p "$folder/images"
packaging/notes.sh >"$folder/NOTES.md"
packaging/wheel.sh "$folder" >/dev/null
packaging/apt.sh "$folder/apt"
cp -a build/site "$folder/site"
cp build/images/images.tar build/images/images.txt "$folder/images"
.venv/bin/python packaging/sbom.py "$version" "$(packaging/version.sh --date)" "${packages[@]}" >"$folder/rspdns-$version.cdx.json"
packaging/sign.sh "$folder"
step "done: $version, $(wc -l <"$folder/SHA256SUMS") files, $(du -sh "$folder" | cut -f 1)"
