#!/usr/bin/env bash
# Builds the container images from the Debian packages of build/packages/trixie (`make deb`), into build/images: images.tar, for
# `podman load` and `docker load`, and images.txt, which has their names, identifiers and sizes. No daemon runs; it needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
folder=build/images
names=(rspdns ppe-agent rspdns-registrar ppu-agent)

fail() { printf 'images: %s\n' "$*" >&2; exit 1; }

[ "$(id -u)" -eq 0 ] || fail "it makes a Debian root: run it as root"
setup/setup.sh images
ls build/packages/trixie/rspdns-common_*.deb >/dev/null 2>&1 || fail "build/packages/trixie has no packages; first: make deb SUITES=trixie"

root=$(packaging/roots.sh trixie FRESH)
packaging/images/pinned.sh "$root"
version=$(packaging/version.sh)
SOURCE_DATE_EPOCH=$(packaging/version.sh --date)
export SOURCE_DATE_EPOCH
tag=${version//[^A-Za-z0-9_.-]/-}
mkdir -p "$folder"
podman() { command podman --root "$PWD/$folder/store" --runroot "$PWD/$folder/run" --storage-driver "${STORAGE_DRIVER:-overlay}" "$@"; }

# Debian without what an image has no use for.
base=$(mktemp -d "${TMPDIR:-/tmp}/rspdns-images.XXXXXX")
# podman turns forwarding on; the machine is left as it was.
forwards=$(cat /proc/sys/net/ipv4/ip_forward)
trap 'rm -rf "$base"; echo "$forwards" >/proc/sys/net/ipv4/ip_forward' EXIT
tar -C "$root" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --numeric-owner --one-file-system --exclude='./usr/share/doc/*/[!c]*' \
    --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*' --exclude='./usr/share/info/*' --exclude='./var/cache/*/*' \
    --exclude='./var/lib/apt/lists/*' --exclude='./var/log/*' --exclude='./etc/machine-id' --exclude='./run/*' -cf "$base/debian.tar" .
printf 'FROM scratch\nADD debian.tar /\n' >"$base/Containerfile"
build() { podman build --quiet --isolation chroot --format docker --layers --timestamp "$SOURCE_DATE_EPOCH" --network host "$@"; }
build --tag localhost/debian:trixie "$base" >"$folder/debian.log" 2>&1 || { tail -20 "$folder/debian.log" >&2; fail "the base could not be built"; }
for name in "${names[@]}"; do
    printf 'images: building %s:%s\n' "$name" "$tag"
    build --build-arg BASE=localhost/debian:trixie --build-arg SOURCE_DATE_EPOCH="$SOURCE_DATE_EPOCH" \
        --label org.opencontainers.image.version="$version" --label org.opencontainers.image.revision="$(git rev-parse HEAD 2>/dev/null || true)" \
        --target "$name" --tag "localhost/$name:$tag" --tag "localhost/$name:latest" -f packaging/images/Containerfile . \
        >"$folder/$name.log" 2>&1 || { tail -20 "$folder/$name.log" >&2; fail "$name could not be built (whole log: $folder/$name.log)"; }
done
rm -f "$folder/images.tar"
podman save --quiet --multi-image-archive --output "$folder/images.tar" "${names[@]/%/:$tag}" "${names[@]/%/:latest}"
for name in "${names[@]}"; do
    podman image inspect --format "{{index .RepoTags 0}} {{.Id}} {{.Size}}" "localhost/$name:$tag"
done | tee "$folder/images.txt"
