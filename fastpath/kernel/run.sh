#!/usr/bin/env bash
# run.sh: has the kernel of this Debian release (12: 6.1) take the BPF program and answer, in an emulated machine (QEMU, no KVM
# needed); and take that of ppu-guard, too. QEMU and the kernel are fetched with apt and unpacked into build/fastpath-kernel; nothing
# is installed. If they can't be had, it says so and fails: KERNEL=vmlinuz MODULES=folder take another kernel, QEMU=program
# another QEMU.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$PWD/build/fastpath-kernel
root=$work/root
mkdir -p "$work/debs" "$root"

fail() { printf 'test-fastpath-kernel: %s\n' "$*" >&2; exit 1; }
untried() { fail "not tried: $*"; }

[ "$(uname -m)" = x86_64 ] || untried "this machine is no x86_64, and the guest would be"
make --silent -C fastpath >/dev/null
make --silent -C ppu-agent >/dev/null

fetch() { # packages
    command -v apt-get >/dev/null || untried "apt-get is missing: set QEMU, KERNEL and MODULES"
    (cd "$work/debs" && apt-get -qq download "$@" >"$work/apt.log" 2>&1) || untried "apt could not fetch $* ($work/apt.log)"
}

unpack() {
    local package
    for package in "$work"/debs/*.deb; do dpkg-deb -x "$package" "$root"; done
}

qemu=${QEMU:-$(command -v qemu-system-x86_64 || true)}
options=()
if [ -z "$qemu" ]; then
    qemu=$root/usr/bin/qemu-system-x86_64
    if [ ! -x "$qemu" ]; then
        list=$(apt-get -s install --no-install-recommends qemu-system-x86 2>/dev/null | sed -n 's/^Inst \([^ ]*\) .*/\1/p')
        [ -n "$list" ] || untried "apt knows no qemu-system-x86"
        # shellcheck disable=SC2086 # a list of package names
        fetch $list
        unpack
    fi
    export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu:$root/lib/x86_64-linux-gnu
    options=(-L "$root/usr/share/qemu" -L "$root/usr/share/seabios")
fi
"$qemu" --version >/dev/null 2>&1 || untried "$qemu does not start"

kernel=${KERNEL:-} modules=${MODULES:-}
if [ -z "$kernel" ]; then
    name=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -1)
    [ -n "$name" ] || untried "apt knows no linux-image-cloud-amd64"
    version=${name#linux-image-}
    if [ ! -e "$root/boot/vmlinuz-$version" ]; then
        fetch "$name"
        unpack
    fi
    kernel=$root/boot/vmlinuz-$version
    modules=$(find "$root" -type d -path "*/modules/$version" | head -1)
fi

# The guest's files: the daemon, Python, ip, the libraries of all, some modules.
guest=$work/guest
rm -rf "$guest"
mkdir -p "$guest"/{proc,sys,run,dev,modules,usr/bin,usr/lib,tmp}
ln -s usr/lib "$guest/lib"
ln -s usr/lib "$guest/lib64"
python=/usr/bin/python3
[ -x "$python" ] || untried "/usr/bin/python3 is missing"
number=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
cp -L "$python" "$guest/usr/bin/python3"
mkdir -p "$guest/usr/lib/python$number"
tar -C "/usr/lib/python$number" -c --exclude=test --exclude=__pycache__ --exclude=idlelib --exclude=tkinter --exclude=lib2to3 \
    --exclude='config-*' --exclude=unittest --exclude=distutils --exclude=ensurepip . | tar -x -C "$guest/usr/lib/python$number"
cp fastpath/build/rspdns-fastpath ppu-agent/guard/build/ppu-guard "$guest/"
ip=$(command -v ip || echo /sbin/ip)
[ -x "$ip" ] || untried "ip is missing (package iproute2)"
mkdir -p "$guest/sbin"
cp -L "$ip" "$guest/sbin/ip"
version=$(sed -n 's/^#define PROTOCOL_VERSION \([0-9]*\).*/\1/p' fastpath/daemon/messages.h)
sed "s/^PROTOCOL_VERSION = .*/PROTOCOL_VERSION = $version/" fastpath/kernel/inside.py >"$guest/init"
chmod 755 "$guest/init"
for one in "$python" "$ip" fastpath/build/rspdns-fastpath "/usr/lib/python$number"/lib-dynload/{_ctypes,_json,mmap}*.so; do
    [ ! -e "$one" ] || env -u LD_LIBRARY_PATH ldd "$one" 2>/dev/null | grep -o '/[^ ]*' || true
done | sort -u | while read -r library; do
    mkdir -p "$guest$(dirname "$library")"
    cp -nL "$library" "$guest$library"
done
# Each behind those that it needs. A kernel may have some of them built in.
: >"$guest/modules.order"
for one in sch_ingress cls_bpf veth xfrm_algo xfrm_user authenc esp4; do
    found=$(find "$modules" -name "$one.ko*" 2>/dev/null | head -1)
    case $found in
        *.ko) cp "$found" "$guest/modules/" ;;
        *.ko.xz) xz -dc "$found" >"$guest/modules/$one.ko" ;;
        *.ko.zst) zstd -dcq "$found" >"$guest/modules/$one.ko" ;;
        *) continue ;;
    esac
    echo "$one" >>"$guest/modules.order"
done
"$python" fastpath/kernel/initramfs.py "$guest" | gzip -1 >"$work/initramfs.gz"

printf 'booting %s without KVM: about a minute\n' "${kernel##*/}"
timeout "${SECONDS_AT_MOST:-300}" "$qemu" "${options[@]}" -M pc -accel tcg -cpu max -m 512 \
    -kernel "$kernel" -initrd "$work/initramfs.gz" -append 'console=ttyS0 quiet panic=-1 rdinit=/init' \
    -nodefaults -no-user-config -no-reboot -display none -serial stdio </dev/null >"$work/console.log" 2>&1 || true
grep -a '^Linux\|^tc:\|^xdp' "$work/console.log" || true
result=$(sed -n 's/^RESULT: //p' "$work/console.log" | tr -d '\r')
case $result in
    OK*) printf '%s\n' "$result" ;;
    *) tail -30 "$work/console.log" >&2; fail "${result:-the guest ended without a result} (console: $work/console.log)" ;;
esac
