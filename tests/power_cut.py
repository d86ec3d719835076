#!/usr/bin/env python3
"""Power cuts while a run saves: an ext4 in a file, copied at random moments as the disk would have been left (what nobody synced is not in
it), and mounted again. What was durable loads, with the weights that were saved; nothing else is taken for a checkpoint. Needs root.
  power_cut.py TRIREME [CUTS]      CUTS: 20 unless given
"""
import hashlib
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

trireme, cuts = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20
words = [trireme, "train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", "4000", "--data.batch", "10", "--epochs", "1000", "--checkpoint.steps", "1", "--optim.lr", "0.001",
         "--parallel.threads", "1", "--run.progress", "off", "--optim.name", "sgd"]


def call(*line):
    return subprocess.run([str(w) for w in line], capture_output=True, text=True)


def skip(why):
    print("SKIPPED:", why)
    sys.exit(77)


def step_of(folder):
    return int(folder.rsplit("_", 1)[1])


def weights(checkpoint):
    return hashlib.sha256(b"".join(p.read_bytes() for p in sorted(checkpoint.glob("model*.safetensors")))).hexdigest()


def main():
    if os.geteuid() != 0:
        skip("needs root")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trireme-power-"))
    disk, image, live, after = folder / "disk", folder / "image", folder / "live", folder / "after"
    live.mkdir(), after.mkdir()
    with open(disk, "wb") as f:
        f.truncate(64 << 20)
    mount = ["-o", "loop,commit=300,noatime"]
    if call("mkfs.ext4", "-q", "-F", disk).returncode != 0 or call("mount", *mount, disk, live).returncode != 0:
        shutil.rmtree(folder)
        skip("no ext4 on a loop device can be mounted here")
    run, seen, counts = live / "run", {}, {"same": 0, "newer": 0, "none yet": 0}
    try:
        process = subprocess.Popen([*words, "--run.dir", str(run)], stderr=subprocess.PIPE, text=True)
        while not (run / "checkpoints" / "latest").exists():
            assert process.poll() is None, process.stderr.read()
            time.sleep(0.01)
        for cut in range(cuts):
            time.sleep(random.expovariate(20))
            if (latest := run / "checkpoints" / "latest").exists():   # what was durable before the cut; it may be gone the moment it is read
                durable = latest.read_text().strip()
            os.kill(process.pid, signal.SIGSTOP)
            while pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(") ", 1)[1][0] != "T":   # behind a sync that is under way
                assert process.poll() is None, process.stderr.read()
            shutil.copyfile(disk, image)
            for checkpoint in (run / "checkpoints").glob("step_*[0-9]"):
                if not checkpoint.name.endswith("tmp") and checkpoint.name not in seen:
                    seen[checkpoint.name] = weights(checkpoint)
            os.kill(process.pid, signal.SIGCONT)
            assert call("mount", *mount, image, after).returncode == 0
            try:
                got = call(trireme, "eval", after / "run", "--run.progress", "off", "--data.limit", "10")
                assert got.returncode == 0, (cut, durable, got.stderr, [p.name for p in (after / "run" / "checkpoints").iterdir()])
                taken = pathlib.Path(re.search(r"(?m)^weights: +(.*)$", got.stdout)[1])
                assert step_of(taken.name) >= step_of(durable), (cut, durable, taken)
                if taken.name in seen:
                    assert weights(taken) == seen[taken.name], (cut, taken)
                counts["same" if taken.name == durable else "newer"] += 1
            finally:
                call("umount", after)
        process.kill()
        process.wait()
    finally:
        call("umount", live)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"power cuts: {cuts}; the newest durable checkpoint {counts['same']} times, a newer one {counts['newer']} times; {len(seen)} checkpoints seen")


main()
