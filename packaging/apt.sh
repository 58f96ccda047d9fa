#!/usr/bin/env bash
# packaging/apt.sh [FOLDER]: makes an apt repository in FOLDER of the packages in build/packages (PACKAGES=folder: elsewhere), a suite for each
# release of Debian, and signs it with the OpenPGP key in the file APT_KEY. Without FOLDER it only tries the key. If there is no such file, it
# makes a key there: keep it, since hosts that trust it take later releases from no other. FOLDER/rspdns.asc is its public part.
# VALID_DAYS=number: hosts refuse these lists after that time, so old ones cannot be served for new ones; default: never.
set -euo pipefail
: "${APT_KEY:?a file with the OpenPGP secret key that signs the apt repository; it is made if it is missing}"
cd "$(dirname "$0")/.."
packages=${PACKAGES:-build/packages}

fail() { printf 'apt: %s\n' "$*" >&2; exit 1; }

for program in apt-ftparchive gpg; do
    command -v "$program" >/dev/null || fail "$program is missing (Debian: apt-get install apt-utils gnupg)"
done
keys=$(mktemp -d)
chmod 700 "$keys"
trap 'gpgconf --homedir "$keys" --kill all 2>/dev/null || true; rm -rf "$keys"' EXIT
gpg() { command gpg --homedir "$keys" --batch --quiet --no-tty "$@"; }
if [ -e "$APT_KEY" ]; then
    gpg --import "$APT_KEY" 2>/dev/null || fail "$APT_KEY holds no OpenPGP secret key"
else
    gpg --passphrase '' --quick-generate-key 'rspdns releases' ed25519 sign never
    (umask 077 && gpg --armor --export-secret-keys >"$APT_KEY.new")
    mv "$APT_KEY.new" "$APT_KEY"
    printf 'apt: made the key %s: keep it for later releases, and let nobody read it\n' "$APT_KEY" >&2
fi
[ -n "$(gpg --list-secret-keys --with-colons)" ] || fail "$APT_KEY holds no OpenPGP secret key"
gpg --clearsign <<<tried >/dev/null || fail "$APT_KEY cannot sign: a passphrase, or an expired key?"
[ $# -gt 0 ] || exit 0

folder=$1
rm -rf "$folder"
mkdir -p "$folder"
gpg --armor --export >"$folder/rspdns.asc"
for source in "$packages"/*; do
    suite=$(basename "${source%-arm64}")
    compgen -G "$source/*.deb" >/dev/null || continue
    mkdir -p "$folder/pool/$suite"
    cp "$source"/*.deb "$folder/pool/$suite"
done
cd "$folder"
[ -d pool ] || fail "$packages has no packages: make deb"
for pool in pool/*; do
    suite=${pool#pool/}
    architectures=
    for architecture in amd64 arm64; do
        compgen -G "$pool/*_$architecture.deb" >/dev/null || continue
        architectures+=" $architecture"
        index=dists/$suite/main/binary-$architecture
        mkdir -p "$index"
        apt-ftparchive --arch "$architecture" packages "$pool" >"$index/Packages"
        gzip -9nk "$index/Packages"
    done
    release=dists/$suite/Release
    apt-ftparchive -o APT::FTPArchive::Release::Origin=rspdns -o APT::FTPArchive::Release::Label=rspdns \
        -o APT::FTPArchive::Release::Suite="$suite" -o APT::FTPArchive::Release::Codename="$suite" \
        -o APT::FTPArchive::Release::Components=main -o APT::FTPArchive::Release::Architectures="${architectures# }" \
        -o APT::FTPArchive::Release::ValidTime="$((${VALID_DAYS:-0} * 86400))" release "dists/$suite" >"$release.new"
    mv "$release.new" "$release"
    gpg --clearsign --output "dists/$suite/InRelease" "$release"
    gpg --armor --detach-sign --output "$release.gpg" "$release"
done
