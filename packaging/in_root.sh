#!/usr/bin/env bash
# in_root.sh ROOT LAYER COMMAND...: runs a command as root in the Debian root folder ROOT. Its files go into the folder
# LAYER, ROOT stays as it is; with LAYER "-" they are written into ROOT. The network is this machine's. QEMU=/path/to/qemu-aarch64-static:
# ROOT is one for arm64, whose programs that emulator runs, for these processes alone (needs Linux 6.7); LAYER is "-".
set -euo pipefail
root=${1:?usage: in_root.sh ROOT LAYER COMMAND...} layer=${2:?}
shift 2
as=()
if [ -n "${QEMU:-}" ]; then
    # The kernel's list of emulators belongs to a user namespace. All users are the same inside.
    outside=$(readlink /proc/self/ns/user)
    (
        while [ "$(readlink /proc/$$/ns/user)" = "$outside" ]; do sleep 0.02; done
        for map in gid_map uid_map; do echo 0 0 65536 >"/proc/$$/$map"; done
    ) &
    as=(unshare --user sh -c 'until grep -q . /proc/self/uid_map; do sleep 0.02; done; exec "$@"' sh)
fi
# shellcheck disable=SC2016 # expanded by the inner shell
exec "${as[@]}" unshare --mount --pid --fork --uts --ipc --propagation private bash -euc '
root=$1 layer=$2 qemu=$3
shift 3
if [ -n "$qemu" ]; then
    mount -t proc proc /proc
    mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
    zeros="\x00\x00\x00\x00\x00\x00\x00\x00" ones="\xff\xff\xff\xff\xff\xff\xff\xff"
    # An ELF file of 64 bits, a program (2) or a shared object (3), for aarch64 (183).
    magic="\x7fELF\x02\x01\x01\x00$zeros\x02\x00\xb7\x00" mask="\xff\xff\xff\xff\xff\xff\xff\x00$ones\xfe\xff\xff\xff"
    printf %s ":aarch64:M::$magic:$mask:$qemu:FC" >/proc/sys/fs/binfmt_misc/register
fi
if [ "$layer" = - ]; then
    mount --bind "$root" "$root"
else
    mkdir -p "$layer/upper" "$layer/work" "$layer/root"
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
    root=$layer/root
fi
mount -t proc proc "$root/proc"
[ -n "$qemu" ] || mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
touch "$root/etc/resolv.conf"
mount --bind "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
cd "$root"
exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
' in_root "$root" "$layer" "${QEMU:-}" "$@"
