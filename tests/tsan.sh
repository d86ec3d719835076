#!/usr/bin/env bash
# Ranks as threads, loaders and pipelines under the thread sanitizer: a build of its own, without MPI, which is not built for it. OpenMP
# is not, either: on one core (taskset) nobody asks it for threads, so that races between our own threads are all that is looked for.
#   tests/tsan.sh [BUILD] [NAME...]      BUILD: build-tsan; NAME: of tests, by default those below
set -uo pipefail
cd "$(dirname "$0")/.."
build=${1:-build-tsan}
shift || true
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(communicator collectives threads loader step strategies pipeline)
[ -f "$build/build.ninja" ] || meson setup "$build" -Dmpi=disabled -Dcuda=disabled -Dbench=disabled -Db_sanitize=thread -Db_lundef=false \
  -Doptimization=1 -Db_ndebug=false -Dwerror=false -Dcpp_args='-g1 -Wno-tsan' >/dev/null || exit 1
ninja -C "$build" build.ninja >/dev/null || exit 1   # which makes the links of groups
programs() { for name in "$@"; do echo "tests/$(readlink "$build/tests/test_$name")"; done | sort -u; }   # of groups of tests
ninja -C "$build" $(programs "${names[@]}") || exit 1
export OMP_WAIT_POLICY=passive
export TSAN_OPTIONS="ignore_noninstrumented_modules=1 exitcode=66 suppressions=$PWD/tests/tsan.supp"
core=$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')   # the first that we may use
status=0
for name in "${names[@]}"; do
  echo "== $name"
  taskset -c "$core" timeout -k 5 1800 "$build/tests/test_$name"
  case $? in 0 | 77) ;; *) status=1; echo "tsan: $name failed" ;; esac
done
exit $status
