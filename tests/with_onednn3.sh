#!/usr/bin/env bash
# The product with oneDNN 3.2 (its build for GNU OpenMP, from the Python package index) in the place of the system's 2.6: fetched and
# built in a folder outside the tree, then the tests of kernels and of what stands on them, and the benchmarks that call oneDNN.
#   tests/with_onednn3.sh [FOLDER]     default: $TRIREME_ONEDNN3, else trireme-onednn3 in the user's cache folder
# Status 77: it cannot be fetched.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath -m "${1:-${TRIREME_ONEDNN3:-${XDG_CACHE_HOME:-$HOME/.cache}/trireme-onednn3}}")
case "$folder/" in "$PWD"/*) echo "onednn3: $folder lies in the tree: name a folder outside" >&2; exit 2 ;; esac
version=2023.2.0   # of the packages: oneDNN 3.2
if [ ! -f "$folder/lib/libdnnl.so.3" ] || [ ! -f "$folder/include/oneapi/dnnl/dnnl.hpp" ]; then
  mkdir -p "$folder"
  python=build/oracles/bin/python
  [ -x $python ] || python=python3
  $python -m pip download -q --no-deps -d "$folder" onednn-cpu-gomp==$version onednn-devel-cpu-gomp==$version ||
    { echo "SKIPPED: onednn-cpu-gomp $version cannot be fetched"; exit 77; }
  for wheel in "$folder"/*.whl; do python3 -m zipfile -e "$wheel" "$folder"; done
  ln -sfn onednn_cpu_gomp-$version.data/data/lib "$folder/lib"
  ln -sfn onednn_devel_cpu_gomp-$version.data/data/include "$folder/include"
fi
export LD_LIBRARY_PATH=$folder/lib OMP_WAIT_POLICY=passive
build=$folder/build${PWD//\//_}
[ -f "$build/build.ninja" ] || meson setup "$build" -Dcuda=disabled -Donednn="$folder" >/dev/null
tests=(kernels_heavy kernels_light ops layers memory recompute tape)
ninja -C "$build" build.ninja >/dev/null || exit 1   # which makes the links of groups
programs() { for name in "$@"; do echo "tests/$(readlink "$build/tests/test_$name")"; done | sort -u; }   # of groups of tests
ninja -C "$build" $(programs "${tests[@]}") bench/bench
[[ $(ldd "$build/libtrireme.so") == *"libdnnl.so.3 => $folder/"* ]] || { echo "onednn3: the library built in $build uses another oneDNN" >&2; exit 1; }
for level in DEFAULT AVX512_CORE AVX2 SSE41; do
  for name in "${tests[@]}"; do
    [ $level = DEFAULT ] || [[ $name == kernels_* ]] || continue
    echo "== $name, ONEDNN_MAX_CPU_ISA=$level"
    status=0
    ONEDNN_MAX_CPU_ISA=$level timeout -k 5 1800 "$build/tests/test_$name" || status=$?
    [ $status = 0 ] || [ $status = 77 ] || exit 1
  done
done
"$build/bench/resnet_step" --mode vendor --batch 2 --size 64 --steps 1 --warmup 1
"$build/bench/step" --model mnist --rounds 1 --steps 1 --repeats 1
