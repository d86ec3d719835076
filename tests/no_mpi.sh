#!/usr/bin/env bash
# The library, the tool and the tests of ranks in a build without MPI: ranks are threads, and who starts several processes is told.
#   tests/no_mpi.sh [BUILD] [NAME...]      BUILD: build-no-mpi; NAME: of tests, by default those below
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build-no-mpi}
shift || true
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(communicator threads strategies pipeline zero)
[ -f "$build/build.ninja" ] || meson setup "$build" -Dmpi=disabled -Dcuda=disabled -Dbench=disabled >/dev/null || exit 1
ninja -C "$build" build.ninja >/dev/null || exit 1   # which makes the links of groups
programs() { for name in "$@"; do echo "tests/$(readlink "$build/tests/test_$name")"; done | sort -u; }   # of groups of tests
ninja -C "$build" tools/trireme $(programs "${names[@]}") || exit 1
export OMP_WAIT_POLICY=passive
status=0
for name in "${names[@]}"; do
  echo "== $name"
  timeout -k 5 900 "$build/tests/test_$name"
  case $? in 0 | 77) ;; *) status=1; echo "no_mpi: $name failed" ;; esac
done
says() {  # WORDS COMMAND...: what the command prints must hold the words
  local words=$1 text
  shift
  text=$("$@" 2>&1)
  [[ $text == *"$words"* ]] || { echo "no_mpi: $* does not say \"$words\" but: $text"; status=1; }
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
says "none: built without MPI" "$build/tools/trireme" info
says "2 (threads)" "$build/tools/trireme" train mlp --ranks 2 --data.limit 100 --epochs 1 --run.dir "$folder/run"
says "this build has no MPI" env PMI_FD=9 PMI_RANK=0 PMI_SIZE=2 "$build/tools/trireme" train mlp --run.dir "$folder/other"
ldd "$build/libtrireme.so" | grep -i mpi && { echo "no_mpi: the library still needs MPI"; status=1; }
exit $status
