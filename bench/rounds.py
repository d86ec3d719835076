"""Interleaved rounds of processes that print one JSON line each, for bench/peers and bench/resnet."""
import glob
import json
import os
import statistics
import subprocess

tcmalloc = next(iter(sorted(glob.glob("/usr/lib/*/libtcmalloc_minimal.so.4"))), None)
cores = sorted(os.sched_getaffinity(0))


def launch(command, preload=None, cpus=None):
    env = dict(os.environ)
    if preload:
        env["LD_PRELOAD"] = preload
    if cpus is not None:
        command = ["taskset", "-c", str(cpus)] + command
    return subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=env)


def read(process):
    out, _ = process.communicate()
    lines = [line for line in out.splitlines() if line.startswith("{")]
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
