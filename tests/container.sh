#!/usr/bin/env bash
# The steps of tools/containers in two fresh Debians, as the recipes take them: one builds, the other gets what that installed, and
# trains as its user. Root, debootstrap and a mirror; skipped where there is none.
set -uo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "SKIPPED: needs root"; exit 77; }
command -v debootstrap >/dev/null || DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends debootstrap >/dev/null 2>&1
command -v debootstrap >/dev/null || { echo "SKIPPED: no debootstrap"; exit 77; }
roots=$(mktemp -d)
end() {
  for root in "$roots"/*; do umount -l "$root/proc" "$root/dev" 2>/dev/null; done
  rm -rf --one-file-system "$roots"
}
trap end EXIT
mirror=$(sed -n 's/^URIs: *//p; s/^deb [^h]*\(http[^ ]*\).*/\1/p' /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list 2>/dev/null | head -1)
debootstrap --variant=minbase bookworm "$roots/build" "${mirror:-http://deb.debian.org/debian}" >"$roots/log" 2>&1 || { echo "SKIPPED: debootstrap cannot make a Debian"; exit 77; }
for settings in /etc/apt/apt.conf.d /etc/resolv.conf /etc/hosts; do cp -a --remove-destination -r "$settings" "$roots/build$(dirname "$settings")/" 2>/dev/null; done
cp -a "$roots/build" "$roots/final"
for root in build final; do
  mount -t proc proc "$roots/$root/proc" && mount --rbind /dev "$roots/$root/dev" && mount --make-rslave "$roots/$root/dev"
done
mkdir "$roots/build/src" && git archive HEAD | tar -x -C "$roots/build/src"
chroot "$roots/build" env http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" bash -c 'apt-get update -qq && /src/tools/containers/steps build' || exit 1
cp -a "$roots/build/opt/trireme/." "$roots/final/usr/local/"
cp tools/containers/steps "$roots/final/tmp/steps"
chroot "$roots/final" env http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" /tmp/steps run || exit 1
inside() { chroot --userspec=trireme:trireme "$roots/final" env -C /home/trireme HOME=/home/trireme PATH=/usr/local/bin:/usr/bin:/bin "$@"; }
inside trireme train mlp --data synthetic --epochs 1 --ranks 2 --run.dir first || exit 1
inside mpiexec -n 2 trireme train mlp --data synthetic --epochs 1 --run.dir second || exit 1
! inside sh -c 'command -v g++' || { echo "the compiler is left behind"; exit 1; }
inside trireme doctor
