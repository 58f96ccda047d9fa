#!/usr/bin/env bash
# packaging/sign.sh [FOLDER]: writes SHA256SUMS of all files below a folder, and signs it with the OpenSSH key SIGN_KEY (SHA256SUMS.sig).
# Without FOLDER it only tries the key. FOLDER/signers is its public part, as `ssh-keygen -Y verify` reads it. SIGN_KEY=none leaves the
# checksums unsigned. README.md says how to verify them.
set -euo pipefail
: "${SIGN_KEY:?an OpenSSH private key that signs SHA256SUMS: make release SIGN_KEY=FILE; SIGN_KEY=none: unsigned}"

fail() { printf 'sign: %s\n' "$*" >&2; exit 1; }

sign() { ssh-keygen -q -Y sign -f "$SIGN_KEY" -n rspdns "$@"; }

if [ "$SIGN_KEY" != none ]; then
    SIGN_KEY=$(realpath -e "$SIGN_KEY" 2>/dev/null) || fail "there is no file $SIGN_KEY; ssh-keygen -t ed25519 -f FILE makes a key"
    signer="release namespaces=\"rspdns\" $(ssh-keygen -y -f "$SIGN_KEY")" || fail "$SIGN_KEY holds no OpenSSH private key"
    sign <<<tried >/dev/null || fail "$SIGN_KEY cannot sign"
fi
[ $# -gt 0 ] || exit 0
cd "$1"
rm -f SHA256SUMS SHA256SUMS.sig signers
[ "$SIGN_KEY" = none ] || printf '%s\n' "$signer" >signers
sums=$(find . -type f -print0 | sort -z | xargs -0 sha256sum | sed 's, \./, ,')
printf '%s\n' "$sums" >SHA256SUMS
[ "$SIGN_KEY" = none ] || sign SHA256SUMS
