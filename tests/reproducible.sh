#!/usr/bin/env bash
# Two builds of what is committed, in folders of other names and one after the other, have the same program and library to the last byte.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export CCACHE_DISABLE=1
for place in one another/place; do
  mkdir -p "$folder/$place"
  git archive HEAD | tar -x -C "$folder/$place"
  (cd "$folder/$place" && meson setup build -Dtests=disabled -Dbench=disabled >/dev/null && ninja -C build tools/trireme | tail -1)
  (cd "$folder/$place/build" && sha256sum tools/trireme libtrireme.so.?.*[0-9]) >"$folder/sums.${place%%/*}"
done
cat "$folder/sums.one"
diff "$folder/sums.one" "$folder/sums.another" && echo "two builds are the same"
