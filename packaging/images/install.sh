#!/bin/sh
# install.sh PACKAGE...: runs in the image while it is built. Installs packages, ours from /packages, starts nothing, and takes
# away what only an installation needs and what differs between two builds.
set -eu
export DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1
if ! grep -q '^rspdns:' /etc/passwd; then
    # Everything runs as this user. A number that does not change: volumes and Kubernetes know users by number.
    groupadd --gid 10053 rspdns
    useradd --uid 10053 --gid rspdns --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin rspdns
    printf 'path-exclude=%s\n' '/usr/share/man/*' '/usr/share/locale/*' '/usr/share/info/*' '/usr/share/doc/*' \
        >/etc/dpkg/dpkg.cfg.d/images
    printf 'path-include=/usr/share/doc/*/copyright\n' >>/etc/dpkg/dpkg.cfg.d/images
fi
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
wanted=
for package in "$@"; do
    ours=$(echo /packages/"$package"_*.deb)
    if [ -e "$ours" ]; then package=$ours; fi
    wanted="$wanted $package"
done
apt-get -qq update
sh /images/pinned.sh /
# systemd itself is not needed for the users that the packages make.
# shellcheck disable=SC2086 # a list of packages
apt-get -qq install --no-install-recommends --yes systemd-standalone-sysusers systemd-standalone-tmpfiles $wanted >/dev/null
# It counts only where the container has CAP_NET_RAW, too: there an ordinary user's sctp-run can start sctpd.
sctpd=$(readlink -f /usr/bin/sctpd)
if [ -z "$(getcap "$sctpd" 2>/dev/null)" ]; then
    command -v setcap >/dev/null || apt-get -qq install --no-install-recommends --yes libcap2-bin >/dev/null
    setcap cap_net_raw+p "$sctpd"
fi
rm -rf /usr/sbin/policy-rc.d /var/lib/apt/lists/* /var/cache/* /var/log/* /var/lib/dpkg/*-old /etc/*- /etc/machine-id /tmp/* \
    /var/lib/systemd /var/lib/rspdns/* /run/* 2>/dev/null || true
