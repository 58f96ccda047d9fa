#!/bin/sh
# Boots systemd as process 1 of namespaces of its own, on a root file system with a layer of its own above: nothing outside is
# changed. Run by live_systemd.py under `unshare`, in a cgroup of its own.
# $1: an empty folder. $2: files to put in, as `make install` writes them with DESTDIR. $3: a script that is run inside before
# systemd. $4: the root file system (/: this machine's).
set -eu
folder=$1 installed=$2 prepare=$3 lower=$4
mount -t tmpfs tmpfs "$folder"
mkdir "$folder/upper" "$folder/work" "$folder/root"
mount -t overlay overlay -o "lowerdir=$lower,upperdir=$folder/upper,workdir=$folder/work" "$folder/root"
root=$folder/root
mount -t proc proc "$root/proc"
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -o remount,bind,ro "$root/sys"
for each in dev run tmp root home; do
    mkdir -p "$root/$each"
    mount -t tmpfs -o mode=755 tmpfs "$root/$each"
done
chmod 1777 "$root/tmp"
for each in null zero full random urandom tty; do
    touch "$root/dev/$each"
    mount --bind "/dev/$each" "$root/dev/$each"
done
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
cp -a "$installed"/* "$root/" # not the folder itself: its mode would become that of /

# This machine's own services are not started, but for the journal and D-Bus, which an ordinary user's `systemctl` needs.
units=$root/etc/systemd/system
rm -rf "$units"
mkdir -p "$units"
: >"$root/etc/fstab"
for each in "$root"/lib/systemd/system/sysinit.target.wants/* "$root"/lib/systemd/system/sockets.target.wants/*; do
    case $each in
        *journald* | */dbus.socket) ;;
        *) ln -sf /dev/null "$units/${each##*/}" ;;
    esac
done
printf '[Unit]\nDescription=the units under test\nWants=systemd-journald.service dbus.socket\n' >"$units/lab.target"
ln -s lab.target "$units/default.target"
exec chroot "$root" /usr/bin/env -i container=lab PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    /bin/sh -euc "$prepare"'
exec /lib/systemd/systemd --system --log-target=journal'
