"""Interleaved rounds of processes that print one JSON line each, for bench/peers and bench/resnet."""
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

tcmalloc = next(iter(sorted(glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4"))), None)
cores = sorted(os.sched_getaffinity(0))


def launch(command, preload=None, cpus=None):
    env = dict(os.environ)
    if preload:
        env["LD_PRELOAD"] = preload
    if cpus is not None:
        command = ["taskset", "-c", str(cpus)] + command
    errors = tempfile.TemporaryFile("w+")
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=errors, text=True, env=env)
    process.errors = errors
    return process


def read(process):
    out, _ = process.communicate()
    lines = [line for line in out.splitlines() if line.startswith("{")]
    with process.errors as errors:
        errors.seek(0)
        said = errors.read() if not lines else ""
    if not lines:
        print(f"{process.args[0]} ended with {process.returncode}: {said[-500:].strip()}", file=sys.stderr)
    return json.loads(lines[-1]) if lines else None


def rounds(contenders, count):
    """{name: (command, preload)} -> {name: what each round printed}, A B C A B C ..."""
    results = {name: [] for name in contenders}
    for _ in range(count):
        for name, (command, preload) in contenders.items():
            if got := read(launch(command, preload)):
                results[name].append(got)
    return results


def middle(runs, key):
    return statistics.median(r[key] if isinstance(key, str) else key(r) for r in runs)


def table(results, first):
    """Prints a line per contender; times of `first` are 1."""
    mine = middle(results[first], "median_ms")
    print(f"{'':42} {'ms':>9} {'spread':>20} {'x ' + first:>10} {'peak MB':>9} {'of it steps':>12}")
    for name, runs in results.items():
        if not runs:
            print(f"{name:42} did not run")
            continue
        times = [r["median_ms"] for r in runs]
        t, peak = statistics.median(times), middle(runs, "peak_mb")
        own = middle(runs, lambda r: r["peak_mb"] - r["base_mb"])
        label = f"{name} ({runs[0]['version']})" if "version" in runs[0] else name
        print(f"{label:42} {t:9.2f} {f'[{min(times):.2f}, {max(times):.2f}]':>20} {t / mine:10.2f} {peak:9.0f} {own:12.0f}", flush=True)
