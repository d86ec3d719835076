#!/usr/bin/env python3
"""The batch scripts of tools/slurm on a Slurm that this sets up on one machine: finished, requeued five times, at a time limit, with a
rank killed, as an array. Needs root, and Debian's slurmctld, slurmd, slurm-client, slurm-wlm-basic-plugins and munge.
  slurm.py TRIREME [TEST ...]
"""
import atexit
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "tools"))
import unittests

trireme = os.path.abspath(sys.argv[1])
recipes = pathlib.Path(__file__).resolve().parent.parent / "tools/slurm"
home = pathlib.Path(tempfile.mkdtemp(prefix="trireme-slurm-"))
host = socket.gethostname()
NODES = 2
words = ["mlp", "--data.name", "synthetic", "--data.synthetic_size", 6000, "--data.batch", 6, "--epochs", 3, "--checkpoint.steps", 50, "--optim.lr", 0.001, "--run.progress", "lines"]
environment = {**os.environ, "SLURM_CONF": str(home / "slurm.conf"), "TRIREME": trireme, "OMP_WAIT_POLICY": "passive"}
missing = [name for name in ("slurmctld", "slurmd", "sbatch", "munged") if not shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")]


def sh(*line, **options):
    return subprocess.run([str(w) for w in line], capture_output=True, text=True, env=environment, timeout=120, **options)


def start():
    for folder in "state", "munge", *(f"spool.n{i}" for i in range(1, NODES + 1)):
        (home / folder).mkdir(mode=0o700)
    (home / "munge/key").write_bytes(os.urandom(128))
    (home / "munge/key").chmod(0o400)
    home.chmod(0o755), (home / "munge").chmod(0o711)
    (home / "slurm.conf").write_text(f"""ClusterName=trireme
SlurmctldHost={host}
SlurmUser=root
AuthInfo=socket={home}/munge/socket
SlurmctldPort=17000
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool.%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
MpiDefault=none
NodeName=n[1-{NODES}] NodeHostname={host} Port=[17001-{17000 + NODES}] CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
""")
    (home / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
    path = {**environment, "PATH": os.environ["PATH"] + ":/usr/sbin"}
    daemons = [["munged", "--force", f"--key-file={home}/munge/key", f"--socket={home}/munge/socket", f"--pid-file={home}/munge/pid", f"--log-file={home}/munge/log",
                f"--seed-file={home}/munge/seed"], ["slurmctld"]]
    for line in daemons + [["slurmd", "-N", f"n{i}"] for i in range(1, NODES + 1)]:
        subprocess.run(line, env=path, check=True, timeout=60)
    atexit.register(stop)
    until(lambda: sh("sinfo", "-h", "-o", "%D %t").stdout.strip() == f"{NODES} idle", lambda: sh("sinfo").stdout + (home / "slurmctld.log").read_text()[-3000:])


def stop():
    pids = [int((home / name).read_text()) for name in [f"slurmd.n{i}.pid" for i in range(1, NODES + 1)] + ["slurmctld.pid", "munge/pid"] if (home / name).exists()]
    sh("scancel", "--full", "-u", "root")
    time.sleep(1)
    for number in signal.SIGTERM, signal.SIGKILL:
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass
        time.sleep(3)
    shutil.rmtree(home, ignore_errors=True)


def until(ready, tell=lambda: "", seconds=90):
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise AssertionError("too long: " + str(tell()))
        time.sleep(0.1)


@unittest.skipIf(os.geteuid() != 0, "needs root")
@unittest.skipIf(missing, "not installed: " + ", ".join(missing))
class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        start()

    def submit(self, script, *more, options=(), run="run", env=None):
        out = home / f"{run}.out"
        got = subprocess.run([str(w) for w in ["sbatch", "--parsable", "-o", out, "-e", out, *options, recipes / script, *words, *more]], capture_output=True, text=True, timeout=60,
                             env={**environment, "RUN": str(home / run), **(env or {})})
        self.assertEqual(got.returncode, 0, got.stderr)
        return got.stdout.strip()

    def field(self, job, name):
        found = re.search(rf"\b{name}=(\S+)", sh("scontrol", "show", "job", job).stdout)
        return found[1] if found else ""

    def ended(self, job, run="run", status="0:0"):
        until(lambda: self.field(job, "JobState") not in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"), lambda: sh("scontrol", "show", "job", job).stdout + self.said(run))
        self.assertEqual(self.field(job, "ExitCode"), status, self.said(run))

    def said(self, run="run"):
        path = home / f"{run}.out"
        return path.read_text() if path.exists() else ""

    def digests(self, run):
        newest = sorted((home / run / "checkpoints").glob("step_*"))[-1]
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in newest.glob("*.safetensors")}

    def steps(self, run="run"):
        """The last that was recorded."""
        path = home / run / "metrics.jsonl"
        return max([json.loads(line)["step"] for line in path.read_text().splitlines() if line.endswith("}")], default=0) if path.exists() else 0

    def whole(self, ranks=2):
        if not (home / f"whole{ranks}").exists():
            got = sh(trireme, "train", *words, "--ranks", ranks, "--run.dir", home / f"whole{ranks}", "--parallel.threads", 1)
            self.assertEqual(got.returncode, 0, got.stderr)
        return self.digests(f"whole{ranks}")

    def ranks(self, run):
        found = {}
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                line, env = (path / "cmdline").read_bytes().split(b"\0"), (path / "environ").read_bytes()
            except OSError:
                continue
            rank = re.search(rb"\0SLURM_PROCID=(\d+)", b"\0" + env)
            if str(home / run).encode() in line and line[0] == trireme.encode() and b"PMI_RANK=" in env and rank:
                found[int(rank[1])] = int(path.name)
        return found

    def test_one_node(self):
        self.ended(self.submit("one_node.sbatch", run="one"), "one")
        self.assertEqual(self.digests("one"), self.whole())

    def test_requeued_five_times(self):
        job = self.submit("requeue.sbatch", run="requeue")
        for i in range(5):
            # The step is asked as at a time limit; the job by its user, as a preemption does it.
            before = self.steps("requeue")
            until(lambda: self.field(job, "JobState") == "RUNNING" and self.steps("requeue") > before and len(self.ranks("requeue")) == 2, lambda: self.said("requeue"))
            asked = sh("scancel", "--signal=USR1", job) if i % 2 == 0 else sh("scontrol", "requeue", job)
            self.assertEqual(asked.returncode, 0, asked.stderr)
            until(lambda: self.field(job, "JobState") == "PENDING" and self.field(job, "Restarts") == str(i + 1), lambda: sh("scontrol", "show", "job", job).stdout + self.said("requeue"))
            until(lambda: sh("scontrol", "update", f"jobid={job}", "StartTime=now").returncode == 0)
        self.ended(job, "requeue")
        self.assertEqual(self.field(job, "Restarts"), "5")
        self.assertEqual(self.said("requeue").count("preempted after step"), 5, self.said("requeue"))
        self.assertEqual(self.digests("requeue"), self.whole())

    def test_a_time_limit(self):
        job = self.submit("one_node.sbatch", "--data.synthetic_size", 6000000, options=["--time=1", "--signal=TERM@50"], run="limit")
        self.ended(job, "limit", "85:0")
        self.assertIn("preempted after step", self.said("limit"))

    def test_a_dead_rank_ends_the_others(self):
        """srun by itself would leave them alone (five of five runs waited for 300 s)."""
        for victim in 0, 1:
            run = f"dead{victim}"
            job = self.submit("one_node.sbatch", "--data.synthetic_size", 6000000, run=run)
            until(lambda: self.steps(run) > 0 and len(self.ranks(run)) == 2, lambda: self.said(run))
            os.kill(self.ranks(run)[victim], signal.SIGKILL)
            until(lambda: self.field(job, "JobState") == "FAILED", lambda: self.said(run), 80)
            until(lambda: not self.ranks(run))

    def test_many_nodes_go_on_after_a_failure(self):
        job = self.submit("many_nodes.sbatch", run="many", env={"CHECKPOINT_STEPS": "20"})
        until(lambda: self.steps("many") > 40 and len(self.ranks("many")) == 2, lambda: self.said("many"))
        os.kill(self.ranks("many")[0], signal.SIGKILL)
        self.ended(job, "many")
        result = json.loads((home / "many/result.json").read_text())
        self.assertEqual((result["exit"], result["restarts"]), ("finished", 1), self.said("many"))
        self.assertEqual(self.digests("many"), self.whole())

    def test_a_search(self):
        space = home / "space.toml"
        space.write_text('[tune]\nalgorithm = "asha"\ntrials = 9\nepochs = 4\neta = 2\n[space]\n"optim.lr" = {type = "log", low = 1e-4, high = 0.1}\n')
        out = home / "search"
        got = sh(trireme, "study", "run", space, "--out", out, "--slurm", 2, "--", "train", *words, "--epochs", 4, "--checkpoint.steps", 0)
        self.assertEqual(got.returncode, 0, got.stderr)
        until(lambda: len(list((out / "trials").glob("*/metrics.jsonl"))) > 2, lambda: [p.read_text() for p in out.glob("slurm-*")])
        sh("scancel", "--name=study", "--state=RUNNING", "--full", "--signal=KILL")
        until(lambda: not sh("squeue", "-h", "--name=study").stdout.strip(), lambda: sh("squeue").stdout)
        until(lambda: sh("sbatch", out / "workers.sbatch").returncode == 0)
        until(lambda: not sh("squeue", "-h", "--name=study").stdout.strip(), lambda: sh("squeue").stdout)
        table = sh(trireme, "study", "report", out).stdout
        self.assertIn("9 of 9 trials", table)
        self.assertIn(" finished, 0 stopped, ", table)
        self.assertIn(" 0 failed\n", table)

    def test_array(self):
        job = self.submit("array.sbatch", run="seeds")
        until(lambda: all((home / f"seeds/seed-{seed}/result.json").exists() for seed in (1, 2)), lambda: self.said("seeds"))
        self.assertNotEqual(self.digests("seeds/seed-1"), self.digests("seeds/seed-2"))


if __name__ == "__main__":
    unittests.main(sys.argv[2:])
