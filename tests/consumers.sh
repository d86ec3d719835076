#!/usr/bin/env bash
# Installs to a prefix, moves it, hides source and build tree, and builds a program with pkg-config, CMake and Meson, and those of the guides.
#   consumers.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
source=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
meson install -C "$build" --no-rebuild --quiet --destdir "$work/stage" >/dev/null
prefix=$work/moved
mv "$(dirname "$(dirname "$(find "$work/stage" -path '*/bin/trireme')")")" "$prefix"
rm -rf "$work/stage"
cp -r "$source/tests/consumer" "$work/consumer"
mkdir "$work/guides"
python3 "$source/tools/docs/blocks.py" "$source/tools/docs/guides" "$work/guides"

cat >"$work/body.sh" <<'BODY'
set -euo pipefail
work=$1 source=$2
[ ! -e "$source/meson.build" ] || echo "consumers: the source tree could not be hidden (no user namespaces); going on without"
prefix=$work/moved
libdir=$(dirname "$(find "$prefix" -name libtrireme.so)")
export PKG_CONFIG_PATH=$libdir/pkgconfig CMAKE_PREFIX_PATH=$prefix LD_LIBRARY_PATH=$libdir
cd "$work/consumer"
expect() {
  "$1" >said
  [ "$(grep -c '^loss [0-9]' said)" = 3 ] || { echo "consumers: $1 did not print three losses"; exit 1; }
  grep -q '^trained 12 steps: test accuracy: .*step_00000012$' said || { echo "consumers: $1's Trainer did not go on"; exit 1; }
}
c++ main.cpp -o with-pkg-config $(pkg-config --cflags --libs trireme)
expect ./with-pkg-config
cmake -G Ninja -S . -B with-cmake -DCMAKE_BUILD_TYPE=Debug >/dev/null
cmake --build with-cmake >/dev/null
expect with-cmake/consumer
meson setup with-meson >/dev/null
meson compile -C with-meson >/dev/null
expect with-meson/consumer
cd "$work/guides"
for guide in *.cpp; do
  c++ -Wall -Wextra -Werror "$guide" -o "${guide%.cpp}" $(pkg-config --cflags --libs trireme)
  "./${guide%.cpp}" >/dev/null || { echo "consumers: the program of tools/docs/guides/${guide%.cpp}.md failed"; exit 1; }
done
env -u LD_LIBRARY_PATH "$prefix/bin/trireme" info >/dev/null
BODY
hide='mount -t tmpfs none "$2" && exec bash "$1/body.sh" "$1" "$2"'
if unshare -rm true 2>/dev/null && [ "${source#/tmp}" = "$source" ]; then
  unshare -rm bash -c "cd / && $hide" hidden "$work" "$source"
else
  bash "$work/body.sh" "$work" "$source"
fi
echo "pkg-config, CMake and Meson consumers, and the programs of the guides, built and ran"
