#!/usr/bin/env bash
# packaging/sign.sh FOLDER: writes SHA256SUMS of all files below a folder, and signs it with the OpenSSH key SIGN_KEY (SHA256SUMS.sig).
# SIGN_KEY=none leaves it unsigned. README.md says how to verify it.
set -euo pipefail
: "${SIGN_KEY:?an OpenSSH private key that signs SHA256SUMS: make release SIGN_KEY=FILE; SIGN_KEY=none: unsigned}"
[ "$SIGN_KEY" = none ] || SIGN_KEY=$(realpath -e "$SIGN_KEY")
cd "$1"
rm -f SHA256SUMS SHA256SUMS.sig
sums=$(find . -type f -print0 | sort -z | xargs -0 sha256sum | sed 's, \./, ,')
printf '%s\n' "$sums" >SHA256SUMS
[ "$SIGN_KEY" = none ] || ssh-keygen -q -Y sign -f "$SIGN_KEY" -n rspdns SHA256SUMS
cat SHA256SUMS
