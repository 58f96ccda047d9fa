#!/usr/bin/env bash
# in_root.sh ROOT LAYER COMMAND...: runs a command as root in the Debian root folder ROOT. What it writes goes into the folder
# LAYER, ROOT stays as it is; with LAYER "-" it is written into ROOT. The network is this machine's.
set -euo pipefail
root=${1:?usage: in_root.sh ROOT LAYER COMMAND...} layer=${2:?}
shift 2
# shellcheck disable=SC2016 # expanded by the inner shell
exec unshare --mount --pid --fork --uts --ipc --propagation private bash -euc '
root=$1 layer=$2
shift 2
if [ "$layer" = - ]; then
    mount --bind "$root" "$root"
else
    mkdir -p "$layer/upper" "$layer/work" "$layer/root"
    mount -t overlay overlay -o "lowerdir=$root,upperdir=$layer/upper,workdir=$layer/work" "$layer/root"
    root=$layer/root
fi
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
touch "$root/etc/resolv.conf"
mount --bind "$(readlink -f /etc/resolv.conf)" "$root/etc/resolv.conf"
cd "$root"
exec chroot "$root" /usr/bin/env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive "$@"
' in_root "$root" "$layer" "$@"
