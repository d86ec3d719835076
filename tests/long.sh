#!/usr/bin/env bash
# The tests that are too long for each run of continuous integration; tools/test --all runs them after the others, in the build that
# it made. Each prints a line when it has passed, failed or been skipped, and leaves its log in build/long/.
#   tests/long.sh [--strict] [NAME...]       all of them, or those named; --strict: one that is skipped has failed
#   tests/long.sh --list
set -uo pipefail
cd "$(dirname "$0")/.."
list="pairs memory virtual64 recorded_bits nolocal plain staged mpi_failures isa kills monitor interruptions preemptions nans power_cuts slurm two_hosts container onednn3 tsan no_mpi clang aarch64 reproducible readers"
strict=0 names=()
for word in "$@"; do
  case "$word" in
    --list) echo "$list"; exit ;;
    --strict) strict=1 ;;
    *) [[ " $list " == *" $word "* ]] || { echo "long: no test $word; there are: $list" >&2; exit 2; }
       names+=("$word") ;;
  esac
done
[ ${#names[@]} -gt 0 ] || read -ra names <<<"$list"
mkdir -p build/long
mpiexec=$(command -v mpiexec.mpich || command -v mpiexec || true)
export OMP_WAIT_POLICY=passive

# Every ordered pair of strategies on meshes of 1, 2, 3, 4 and 8 ranks.
pairs() { TRIREME_TEST_ALL=1 build/tests/test_pairs; }

# The memory of every strategy with every model beside what plans predict.
memory() { TRIREME_TEST_ALL=1 build/tests/test_memory; }

# 64 workers of MNIST in virtual time end with the weights of 64 real ones.
virtual64() {
  TRIREME_TEST_ALL=1 python3 tests/tools/cli_virtual.py build/tools/trireme none datasets/mnist Virtual.test_weights_are_those_of_real_ranks
}

# The recorded bits of all strategies and pairs on processes, by each way between those of one host, and as between hosts.
recorded_bits() {
  [ -n "$mpiexec" ] || { echo "SKIPPED: no mpiexec"; return 77; }
  local ranks way
  for ranks in 2 4; do
    for way in TRIREME_SHARED_MEMORY=direct TRIREME_SHARED_MEMORY=staged TRIREME_SHARED_MEMORY=0 MPIR_CVAR_NOLOCAL=1; do
      echo "== recorded_bits on $ranks processes, $way"
      env TRIREME_TEST_ALL=1 "$way" timeout -k 5 900 "$mpiexec" -n $ranks build/tests/test_recorded_bits || return 1
    done
  done
}

# A hundred trainings of each of seven layouts of which trireme train -n lets a process be killed at a random moment.
kills() {
  TRIREME_KILLS=100 python3 tests/tools/cli_launch.py build/tools/trireme "${mpiexec:-none}" datasets/mnist Launch.test_what_is_killed_goes_on_with_the_same_bits
}

# Each fault five times on each transport; then an hour in which ranks are stopped for up to half of what they may be, the job for
# longer than that, and syncing a checkpoint takes as long.
monitor() {
  TRIREME_FAULTS=5 python3 tests/tools/cli_monitor.py build/tools/trireme "${mpiexec:-none}" datasets/mnist Monitor.test_every_fault_is_named_and_ended_in_time &&
    TRIREME_SOAK=3600 python3 tests/tools/cli_monitor.py build/tools/trireme "${mpiexec:-none}" datasets/mnist Monitor.test_delays_are_no_alarm
}
# A hundred interruptions at random steps, each with another number of ranks behind it: all samples once an epoch.
interruptions() {
  TRIREME_INTERRUPTIONS=100 python3 tests/tools/cli_monitor.py build/tools/trireme "${mpiexec:-none}" datasets/mnist Monitor.test_samples_come_once_whatever_interrupts
}

# A hundred signals at random moments to random processes of a training.
preemptions() {
  TRIREME_PREEMPTIONS=100 python3 tests/tools/cli_runs.py build/tools/trireme "${mpiexec:-none}" datasets/mnist Resume.test_preempted_at_random_moments_the_bits_stay
}

# Fifty NaNs in random layers, at random ranks and steps of random layouts.
nans() { TRIREME_NANS=50 python3 tests/tools/cli.py build/tools/trireme "${mpiexec:-none}" datasets/mnist Numbers.test_nan_anywhere_is_named_before_the_update; }

# Five hundred power cuts while checkpoints are written (root).
power_cuts() { python3 tests/power_cut.py build/tools/trireme 500; }

# The batch scripts of tools/slurm on a Slurm of the test's own (root, and Debian's packages, which it installs).
slurm() {
  [ -n "$mpiexec" ] || { echo "SKIPPED: no mpiexec"; return 77; }
  if [ "$(id -u)" = 0 ] && ! command -v slurmctld >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge >/dev/null 2>&1
  fi
  python3 tests/slurm.py build/tools/trireme
}

# Two hosts in network namespaces (root): a training loses one and gets it back.
two_hosts() { python3 tests/two_hosts.py build/tools/trireme; }

# The image recipes, in fresh Debians (root).
container() { tests/container.sh; }

# MPI as between hosts: each process is a host to MPI, so that nothing goes through shared memory.
mpi_table() {
  [ -n "$mpiexec" ] || { echo "SKIPPED: no mpiexec"; return 77; }
  local ranks name
  for ranks in 2 3 4; do
    for name in communicator step step_errors zero split_strategies strategies pipeline verify; do
      echo "== $name on $ranks processes"
      timeout -k 5 900 "$mpiexec" -n $ranks build/tests/test_$name || return 1
    done
  done
  for name in zero split_strategies strategies pipeline; do
    echo "== $name [table] on 8 processes"
    timeout -k 5 900 "$mpiexec" -n 8 build/tests/test_$name '[table]' || return 1
  done
}
nolocal() { MPIR_CVAR_NOLOCAL=1 mpi_table; }
# MPI within one host, without our own sums in shared memory; and with all of them staged there, as where processes may not reach
# each other's memory.
plain() { TRIREME_SHARED_MEMORY=0 mpi_table; }
staged() { TRIREME_SHARED_MEMORY=staged mpi_table; }
# Ranks that fail, every failure on every way.
mpi_failures() {
  [ -n "$mpiexec" ] || { echo "SKIPPED: no mpiexec"; return 77; }
  TRIREME_TEST_ALL=1 python3 tests/parallel/mpi_failures.py build/tests/mpi_failing "$mpiexec"
}

# The tests of kernels and of ops on them, as if the CPU had less than it has.
isa() {
  local level name
  for level in SSE41 AVX AVX2 AVX2_VNNI AVX512_CORE AVX512_CORE_VNNI AVX512_CORE_BF16 DEFAULT; do
    for name in kernels_heavy kernels_light ops layers recompute resnet vgg; do
      echo "== $name, ONEDNN_MAX_CPU_ISA=$level"
      ONEDNN_MAX_CPU_ISA=$level timeout -k 5 1800 build/tests/test_$name
      case $? in 0 | 77) ;; *) return 1 ;; esac
    done
    echo "== thousands of random convolutions and products, ONEDNN_MAX_CPU_ISA=$level"
    ONEDNN_MAX_CPU_ISA=$level timeout -k 5 1800 build/tests/test_kernels_heavy '[long]' || return 1
  done
}

onednn3() { tests/with_onednn3.sh; }
tsan() { tests/tsan.sh; }
no_mpi() { tests/no_mpi.sh; }
# For another family of processors, under qemu-user.
aarch64() {
  if [ "$(id -u)" = 0 ] && ! command -v aarch64-linux-gnu-g++ >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++-aarch64-linux-gnu qemu-user-static >/dev/null 2>&1
  fi
  tests/aarch64.sh
}
# Everything is built with Clang 16, warnings being errors, and the tests run that look into the kernels' code. Clang's OpenMP goes to a
# folder of its own, since Debian's packages of its versions exclude each other.
clang() (
  if [ "$(id -u)" = 0 ] && ! command -v clang++-16 >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends clang-16 >/dev/null 2>&1
  fi
  command -v clang++-16 >/dev/null || { echo "SKIPPED: no clang++-16"; return 77; }
  if ! clang++-16 -fopenmp -fsyntax-only -include omp.h -x c++ /dev/null 2>/dev/null; then
    mkdir -p build/libomp
    (cd build/libomp && apt-get download -qq libomp-16-dev libomp5-16 && for deb in *.deb; do dpkg-deb -x "$deb" .; done) ||
      { echo "SKIPPED: libomp-16-dev cannot be fetched"; return 77; }
    lib=$PWD/build/libomp/usr/lib/llvm-16/lib
    export CPATH=$lib/clang/16/include LIBRARY_PATH=$lib LD_LIBRARY_PATH=$lib
  fi
  [ -f build-clang/build.ninja ] || CC=clang-16 CXX=clang++-16 meson setup build-clang -Dcuda=disabled >/dev/null || return 1
  ninja -C build-clang all meson-test-prereq || return 1
  for name in kernels_attention kernels_heavy kernels_light kernels_mixed_scale openmp ops layers attention strategies; do
    echo "== $name"
    timeout -k 5 900 build-clang/tests/test_$name
    case $? in 0 | 77) ;; *) return 1 ;; esac
  done
)
# Two builds at different places are the same to the last byte.
reproducible() { tests/reproducible.sh; }
# Two thousand random files for each reader, next to the libraries that the files come from.
readers() { python3 tests/readers.py build/tests/read_files --python build/oracles/bin/python --count 2000; }

passed=0 failed=0 skipped=0
for name in "${names[@]}"; do
  script=$(declare -f "$name" | grep -o 'tests/[a-z0-9_]*\.sh' || true)
  if [ -n "$script" ] && [ ! -x "$script" ]; then
    echo "SKIPPED: $script is not there" >build/long/$name.log
    code=77
  else
    start=$SECONDS
    "$name" >build/long/$name.log 2>&1
    code=$?
  fi
  # What tools/setup cannot change is no failure.
  [ $code != 77 ] || [ $strict = 0 ] || grep -qE '^SKIPPED: .*(root|debootstrap|cannot be fetched)' build/long/$name.log || code=1
  case $code in
    0) passed=$((passed + 1)); echo "long: $name passed in $((SECONDS - start)) s" ;;
    77) skipped=$((skipped + 1)); echo "long: $name skipped: $(sed -n 's/^SKIPPED: *//p' build/long/$name.log | head -1)" ;;
    *) failed=$((failed + 1)); tail -25 build/long/$name.log; echo "long: $name failed; its log is build/long/$name.log" ;;
  esac
done
echo "long: $passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ]
