#!/usr/bin/env bash
# Installs to a prefix, moves it, hides source and build tree, and builds a program with pkg-config, CMake and Meson, those of the guides, and an op with kernels for CUDA.
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
mkdir "$work/guides" "$work/snake"
cp "$prefix"/share/doc/trireme/examples/snake_op* "$work/snake"
python3 "$source/tools/docs/blocks.py" "$prefix/share/doc/trireme/guides" "$work/guides" "$source/README.md"

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
# Strategies, a codec and kinds of actions from outside, in all that the binary does.
flags=$(pkg-config --cflags --libs trireme)
c++ -Wall -Wextra -Werror -shared -fPIC plugin.cpp -o plugin.so $flags
c++ -Wall -Wextra -Werror -shared -fPIC -I "$prefix/share/doc/trireme/examples" strategies.cpp -o strategies.so $flags
own() {  # "COMMAND" STRATEGY ARGUMENTS
  plugin=strategies
  [ "${2#local_means}" = "$2" ] || plugin=plugin
  "$prefix/bin/trireme" $1 "${@:3}" mlp --plugin ./$plugin.so --strategy "$2" --ranks 2 >said 2>&1
}
fails() { echo "consumers: $1"; cat said; exit 1; }
for strategy in 'local_means(every=3)' 'data_parallel | rounded' 'diloco(every=2)' choco adasum; do
  own "plan show" "$strategy" --cost equal || fails "plan show $strategy"
  grep -q "${strategy%%(*} over data\|all_reduce gradients over data, on ready as rounded" said || fails "the plan of $strategy"
  own "plan simulate" "$strategy" --cost equal --ranks 4 || fails "simulate $strategy"
  grep -q 'a step' said || fails "simulate $strategy"
  train() { own train "$strategy" "$@" --data synthetic --data.synthetic_size 256 --run.progress off || fails "train $strategy $*"; }
  train --run.max_steps 6 --run.dir whole
  train --run.max_steps 3 --run.dir parts  # stopped in the middle and resumed: what the strategy keeps comes back
  train --resume --run.max_steps 6 --run.dir parts
  cmp whole/checkpoints/step_00000006/model.safetensors parts/checkpoints/step_00000006/model.safetensors || fails "$strategy does not go on with the same bits"
  rm -r whole parts
done
# Averaged after every step, plain SGD is that of data parallelism; more seldom it is not.
own 'plan verify' 'local_means(every=1)' --steps 5 --optim.momentum 0 --optim.nesterov false || fails "verify local_means(every=1)"
! own 'plan verify' 'local_means(every=2)' --steps 5 --optim.momentum 0 --optim.nesterov false || fails "verify finds nothing in local_means(every=2)"
# Programs at ranges of ranks that messages start: parameter servers.
c++ -Wall -Wextra -Werror -shared -fPIC servers.cpp -o servers.so $flags
served() {  # "COMMAND" STRATEGY ARGUMENTS
  "$prefix/bin/trireme" $1 "${@:3}" mlp --plugin ./servers.so --strategy "$2" >said 2>&1
}
served plan servers show --ranks 4 --cost equal || fails "plan show servers"
grep -q 'send gradients to data 3 on gradients' said || fails "the plan of servers"
served "plan simulate" 'servers(every=1, staleness=1)' --ranks 4 --cost equal || fails "simulate servers"
served "plan verify" 'servers(servers=2)' --ranks 4 --steps 5 || fails "verify servers"
for steps in 16 7 16; do  # at once, and in two parts, in virtual time: messages, clocks and counts of updates come back
  [ "$steps" = 7 ] && resume= || resume=--resume
  [ ! -e run ] && resume=
  served train 'servers(servers=2, every=1, staleness=1)' $resume --virtual 5 --epochs 4 --data synthetic --data.synthetic_size 256 --run.max_steps $steps --run.dir run \
    --run.progress off || fails "train servers $resume"
  [ "$steps" = 16 ] && [ ! -e whole ] && mv run whole || true
done
diff -q whole/metrics.jsonl run/metrics.jsonl >/dev/null || fails "servers do not go on with the same bits"
for file in whole/checkpoints/step_00000016/*.safetensors; do cmp "$file" "run/${file#whole/}" || fails "servers do not go on with the same bits"; done
rm -r whole run
! served train servers --ranks 1 --data synthetic || fails "a server without workers"
grep -q '1 servers leave none of 1 ranks to train' said || fails "a server without workers"
! "$prefix/bin/trireme" plan verify mlp --steps 1 --plugin missing.so --strategy serial >said 2>&1 || fails "a missing plugin"
grep -q 'parallel.plugin: missing.so cannot be opened' said || fails "a missing plugin"
cd "$work/guides"
for guide in *.cpp; do
  c++ -Wall -Wextra -Werror -fopenmp-simd "$guide" -o "${guide%.cpp}" $(pkg-config --cflags --libs trireme)
  "./${guide%.cpp}" >/dev/null || { echo "consumers: the program of ${guide%.cpp}.md failed"; exit 1; }
done
# An op with kernels for the CPU and, where there is nvcc, for CUDA.
cd "$work/snake"
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc) cuda=
if [ -x "$nvcc" ]; then
  "$nvcc" --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1 -c snake_op_cuda.cu $(pkg-config --cflags trireme)
  lib64=$(dirname "$(dirname "$nvcc")")/lib64
  cuda="snake_op_cuda.o -L$lib64 -Wl,-rpath,$lib64 -lcudart"
fi
c++ -Wall -Wextra -Werror snake_op.cpp $cuda -o snake_op $(pkg-config --cflags --libs trireme)
./snake_op >said || fails "snake_op"
[ -z "$cuda" ] || ! grep -q 'without snake_op_cuda.cu' said || fails "snake_op has no kernels for CUDA"
env -u LD_LIBRARY_PATH "$prefix/bin/trireme" info >/dev/null
BODY
hide='mount -t tmpfs none "$2" && exec bash "$1/body.sh" "$1" "$2"'
if unshare -rm true 2>/dev/null && [ "${source#/tmp}" = "$source" ]; then
  unshare -rm bash -c "cd / && $hide" hidden "$work" "$source"
else
  bash "$work/body.sh" "$work" "$source"
fi
echo "pkg-config, CMake and Meson consumers, strategies from outside, the programs of the guides, and an op of a program's own, built and ran"
