#!/usr/bin/env bash
# The library, the tool and tests for aarch64: cross-compiled with Debian's toolchain and packages, without MPI and CUDA, and run under
# qemu-user. The packages are unpacked in BUILD/root, so that they take the place of none of this machine's.
#   tests/aarch64.sh [BUILD] [NAME...]      BUILD: build-aarch64; NAME: of tests, by default those below
# Status 77: the packages cannot be fetched, or the compiler or qemu is missing.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(realpath -m "${1:-build-aarch64}")
shift || true
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(kernels_attention kernels_heavy kernels_light kernels_mixed_scale ops strategies)
for program in aarch64-linux-gnu-g++ qemu-aarch64-static; do
  command -v $program >/dev/null || { echo "SKIPPED: no $program (Debian: g++-aarch64-linux-gnu qemu-user-static)"; exit 77; }
done

# apt with lists, a state and an architecture of its own.
root=$build/root
packages=(libdnnl-dev libeigen3-dev libcli11-dev libtomlplusplus-dev nlohmann-json3-dev libdlpack-dev libfmt-dev libpng-dev
  libjpeg62-turbo-dev libsqlite3-dev libtiff-dev libblosc-dev libzstd-dev zlib1g-dev libdeflate-dev catch2)
fetch() {
  local apt=$build/apt
  mkdir -p "$apt/lists/partial" "$apt/archives/partial" "$root" && : >"$apt/status" || return 1
  local options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status"
    -o "Dir::Cache=$apt" -o Debug::NoLocking=1 -o APT::Sandbox::User=)
  apt-get "${options[@]}" update && apt-get "${options[@]}" install -y --no-install-recommends --download-only "${packages[@]}" || return 1
  local deb
  for deb in "$apt"/archives/*.deb; do dpkg-deb -x "$deb" "$root" || return 1; done
  rm -r "$apt"
  touch "$build/fetched"
}
[ -f "$build/fetched" ] || fetch || { echo "SKIPPED: packages for arm64 cannot be fetched"; exit 77; }

cat >"$build/cross.ini" <<END
[binaries]
cpp = 'aarch64-linux-gnu-g++'
ar = 'aarch64-linux-gnu-gcc-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
exe_wrapper = ['qemu-aarch64-static', '-L', '$root']
[properties]
sys_root = '$root'
pkg_config_libdir = '$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig'
[built-in options]
cpp_args = ['--sysroot=$root']
cpp_link_args = ['--sysroot=$root']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
END
[ -f "$build/build/build.ninja" ] || meson setup "$build/build" --cross-file "$build/cross.ini" -Dmpi=disabled -Dcuda=disabled -Dbench=disabled >/dev/null || exit 1
build=$build/build
ninja -C "$build" build.ninja >/dev/null || exit 1   # which makes the links of groups
programs() { for name in "$@"; do echo "tests/$(readlink "$build/tests/test_$name")"; done | sort -u; }   # of groups of tests
ninja -C "$build" tools/trireme $(programs "${names[@]}") || exit 1
export OMP_WAIT_POLICY=passive
run() { timeout -k 5 3600 qemu-aarch64-static -L "$root" "$@"; }
run "$build/tools/trireme" info || exit 1
status=0
for name in "${names[@]}"; do
  echo "== $name"
  # qemu 7.2 ignores madvise(MADV_DONTNEED) for memory that mremap() has moved with MREMAP_DONTUNMAP: of [runtime] one case needs it.
  run "$build/tests/$(readlink "$build/tests/test_$name")" --group "$name" '~parts of a block*'
  case $? in 0 | 77) ;; *) status=1; echo "aarch64: $name failed" ;; esac
done
exit $status
