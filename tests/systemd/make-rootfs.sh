#!/usr/bin/env bash
# make-rootfs.sh - a minimal Debian root with systemd, for boot-systemd.sh and boot-qemu.sh.
#
#   make-rootfs.sh [-q] [-i PKG,PKG...] SUITE DEST
#
#   SUITE   bookworm (systemd 252), trixie (257), ...
#   DEST    a directory, or *.tar.zst (to cache; boot-systemd.sh takes it as it is)
#   -q      also Debian's cloud kernel, so that boot-qemu.sh can boot the tree, and
#           qemu itself, so that `boot-qemu.sh -Q DEST` needs none on the host
#   -i      more packages
#
# Uses the mirror apt is configured with here (or $MIRROR).  Needs root, mmdebstrap.
set -euo pipefail
pkgs=systemd,systemd-sysv,dbus,libpam-systemd,dbus-user-session,python3,procps
while getopts qi: o; do case $o in
    q) pkgs+=,linux-image-cloud-amd64,qemu-system-x86;;
    i) pkgs+=,$OPTARG;;
    *) sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 125;;
esac; done
shift $((OPTIND - 1)); [[ $# == 2 ]] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 125; }
suite=$1 dest=$2
mirror=${MIRROR:-$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' 'Label: Debian' | head -n 1)}
[[ -n $mirror ]] || { echo "make-rootfs: set MIRROR" >&2; exit 125; }
[[ ! -e $dest ]] || { echo "make-rootfs: $dest exists" >&2; exit 0; }
part=$(dirname "$dest")/.part.$$.$(basename "$dest")        # same suffix: it tells mmdebstrap the format
trap 'rm -rf --one-file-system "$part"' EXIT
mmdebstrap --quiet --variant=minbase --include="$pkgs" \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' "$suite" "$part" "$mirror"
mv "$part" "$dest"
