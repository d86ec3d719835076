"""The job monitor: ranks that stop, hang, leave or call another collective are named and ended in time, and nothing else is; trireme
doctor; each rank's log.
  cli_monitor.py TRIREME MPIEXEC|none DATA_DIR [TEST ...]
TRIREME_FAULTS: how often each fault is tried on each transport, at random steps; without it once on one of them.
"""
import contextlib
import csv
import io
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import unittest
import xml.etree.ElementTree

import cli
import runs
import unittests
from cli import mpiexec, processes, run, trireme, unmeasured

limit = 3   # seconds, of TRIREME_TIMEOUT
transports = {"threads": None, "mpi": {}, "hosts": {"MPIR_CVAR_NOLOCAL": "1"}} if mpiexec != "none" else {"threads": None}
repeats = int(os.environ.get("TRIREME_FAULTS", 0))
words = ["mlp", "--data.name", "synthetic", "--data.synthetic_size", 600, "--data.batch", 20, "--epochs", 2, "--optim.lr", 0.001, "--parallel.threads", 1, "--run.progress", "lines",
         "--checkpoint.steps", 10, *unmeasured]   # 60 steps


def listening(pid):
    """Local addresses (hexadecimal) and ports on which a process accepts TCP connections."""
    own = set()
    for path in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            own.add(os.readlink(path))
        except OSError:
            pass
    found = []
    for table in "tcp", "tcp6":
        for line in pathlib.Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in own:
                address, port = columns[1].split(":")
                found.append((address, int(port, 16)))
    return found


def tell(pid, what):
    """Sends a signal to a process, which may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


class Monitor(cli.Case):
    def start(self, *more, name="run", ranks=2, env=None):
        line = [*([mpiexec, "-n", ranks] if ranks else []), trireme, "train", *words, "--run.dir", self.dir / name, *more]
        process = subprocess.Popen([str(w) for w in line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, **(env or {})})

        def end():
            for pid in processes(self.dir, program=trireme):
                tell(pid, signal.SIGKILL)
            process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def until(self, ready, seconds=60):
        end = time.monotonic() + seconds
        while not ready():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def live(self):
        """Of a run whose second process has told what it does."""
        path = self.dir / "run" / "live.json"
        self.until(lambda: path.exists() and json.loads(path.read_text())["processes"][1]["ranks"])
        return json.loads(path.read_text())

    def steps(self, name="run"):
        path = self.dir / name / "metrics.jsonl"
        return path.read_text().count("\n") if path.exists() else 0

    def test_every_fault_is_named_and_ended_in_time(self):
        named = {"stop": r"watchdog: rank {rank} \(.*, process \d+\) has been silent for \d+ s; its last report: phase \w+ after step \d+, action \d+: .*"
                         r"waiting for others: rank {other} \(.* after step {before}\)",
                 "hang": r"watchdog: rank {rank} \(.*, process \d+\) made no progress for .* s in phase step after step {before}; last: ",
                 "sleep": r"watchdog: rank {rank} \(.*, process \d+\) made no progress for .* s in phase step after step {before}; last: ",
                 "exit": r"rank {rank}: run.fault: injected before step {step}", "throw": r"injected on rank {rank} before step {step}",
                 "kind": r"rank {rank}[ :].*broadcast of 2 f64|broadcast of 2 f64 from rank 0.*rank {rank}", "count": r"all_reduce of 3 f64", "dtype": r"all_reduce of 2 i64"}
        for fault, said in named.items():
            ways = [way for way in transports if way != "threads" or fault not in ("stop", "exit")]   # of threads these end all: there is nobody to tell
            for way in ways if repeats else random.sample(ways, min(1, len(ways))):
                env = transports[way]
                for _ in range(max(1, repeats)):
                    rank, ranks, step = random.randrange(2), 2, random.choice([1, random.randrange(2, 60)])   # in a first step each rank alone has more patience
                    with self.subTest(fault=fault, way=way, rank=rank, step=step):
                        name = f"{fault}-{way}-{rank}-{step}-{random.random()}"
                        threads = env is None
                        start = time.monotonic()
                        process = self.start(*(["--ranks", ranks] if threads else []), "--run.fault", f"{fault}:{rank}:{step}", name=name, ranks=None if threads else ranks,
                                             env={**(env or {}), "TRIREME_TIMEOUT": str(limit)})
                        err = process.communicate(timeout=60)[1]
                        self.assertNotEqual(process.returncode, 0, err)
                        self.assertLess(time.monotonic() - start, 8 + limit + 10, err)   # 8 s: to start, and 60 steps, on a busy machine
                        self.until(lambda: not processes(self.dir / name, program=trireme), 2)
                        ours = [line for line in err.splitlines() if line.startswith("trireme: ")]
                        self.assertRegex("\n".join(ours), said.format(rank=rank, other=1 - rank, step=step, before=step - 1), err)
                        if fault in ("kind", "count", "dtype"):   # both sides
                            for other in 0, 1:
                                self.assertRegex("\n".join(ours), rf"rank {other}[ :]", err)

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_a_process_that_leaves_without_a_word(self):
        """As under srun, which does not end the others: here nobody of mpiexec's is left to do it."""
        process = self.start("--epochs", 100000, "--checkpoint.steps", 0, ranks=2, env={"TRIREME_TIMEOUT": "30"})
        self.until(lambda: self.steps() > 1)
        live = self.live()
        pids = {p["rank"]: p["pid"] for p in live["processes"]}
        proxy = {int((pathlib.Path(f"/proc/{pid}/stat")).read_text().rsplit(") ", 1)[1].split()[1]) for pid in pids.values()}
        for pid in proxy:   # who would end the others
            os.kill(pid, signal.SIGSTOP)
            self.addCleanup(lambda pid=pid: os.path.exists(f"/proc/{pid}") and os.kill(pid, signal.SIGKILL))
        os.kill(pids[1], signal.SIGKILL)
        self.until(lambda: not processes(self.dir / "run", program=trireme), 20)
        # Whichever comes first: the watchdog, or a sum that reads the memory of a process that is gone.
        reached = r"the memory of rank 1 cannot be reached \(No such process\): did its process end\?"
        self.assertRegex(json.loads((self.dir / "run" / "crash" / "rank_0.json").read_text())["reason"], "ended without an error message|" + reached)
        for pid in proxy:
            os.kill(pid, signal.SIGCONT)
        err = process.communicate(timeout=30)[1]
        self.assertRegex(err, r"watchdog: rank 1 \(.*, process %d\) ended without an error message; its last report: phase \w+ after step \d+|%s" % (pids[1], reached))

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_suspend_and_resume_is_no_alarm(self):
        """The job for longer than its limits, twice; at random moments one process a little later than the other."""
        more = ["--data.synthetic_size", 60000, "--checkpoint.steps", 2500]   # some seconds: the second stop finds it running
        whole = run("train", *words, *more, "--run.dir", self.dir / "whole", "--ranks", 2)
        self.assertEqual(whole.returncode, 0, whole.stderr)
        process = self.start(*more, env={"TRIREME_TIMEOUT": str(limit)})
        self.until(lambda: self.steps() > 1)
        for _ in range(2):
            time.sleep(random.uniform(0, 0.2))
            pids = list(processes(self.dir / "run", program=trireme))
            random.shuffle(pids)
            for what in signal.SIGSTOP, signal.SIGCONT:
                for pid in pids:
                    tell(pid, what)
                    time.sleep(random.uniform(0, 0.5))
                if what == signal.SIGSTOP:
                    time.sleep(limit + 1)
        err = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 0, err)
        self.assertNotIn("watchdog", err)
        weights = [sorted(p for p in (self.dir / name / "checkpoints").iterdir())[-1] for name in ("whole", "run")]
        self.assertEqual(*[[f.read_bytes() for f in sorted(w.glob("model*.safetensors"))] for w in weights])

    @unittest.skipIf(mpiexec == "none" or not shutil.which("cc"), "no MPI, or no compiler")
    def test_delays_are_no_alarm(self):
        """TRIREME_SOAK seconds (10) of ranks that are stopped for up to half the limit, jobs that are stopped for longer than it (every fourth stop), and checkpoints and a live.json that take longer than it to write."""
        source, slow = self.dir / "slow.c", self.dir / "slow.so"
        source.write_text("#include <unistd.h>\n#include <sys/syscall.h>\nint fsync(int f) { usleep(%d); return (int)syscall(SYS_fsync, f); }\n" % (limit * 150_000) +   # some ten of them a checkpoint
                          "#include <string.h>\nint rename(const char* a, const char* b) { if (strstr(b, \"live.json\")) usleep(%d); return (int)syscall(SYS_rename, a, b); }\n" % (limit * 1_300_000))
        subprocess.run(["cc", "-shared", "-fPIC", "-o", slow, source], check=True)
        end, rounds, stops, saves = time.monotonic() + float(os.environ.get("TRIREME_SOAK", 10)), 0, 2, 0
        while rounds == 0 or time.monotonic() < end:
            rounds += 1
            name, ranks = f"run{rounds}", random.choice([2, 3])
            process = self.start("--data.synthetic_size", 120000, "--epochs", 1, "--checkpoint.steps", 100, "--run.digest_steps", 0, name=name, ranks=ranks,
                                 env={"TRIREME_TIMEOUT": str(limit), "LD_PRELOAD": str(slow), **random.choice(list(transports.values())[1:])})
            self.until(lambda: self.steps(name) > 0)
            until = min(time.monotonic() + 45, max(end, time.monotonic() + 8))
            while process.poll() is None and time.monotonic() < until:
                time.sleep(random.uniform(1, 2))   # what one delay has held up is done before the next
                pids = list(processes(self.dir / name, program=trireme))
                random.shuffle(pids)
                whole = stops % 4 == 3
                chosen = pids if whole else pids[:1]
                for what, pause in (signal.SIGSTOP, limit + 1 if whole else random.uniform(0, limit / 2)), (signal.SIGCONT, 0):
                    for pid in chosen:
                        tell(pid, what)
                    time.sleep(pause)
                stops += 1
            if process.poll() is None:
                for pid in processes(self.dir / name, program=trireme):
                    tell(pid, signal.SIGTERM)
            err = process.communicate(timeout=90)[1]
            self.assertIn(process.returncode, (0, 85), err)
            self.assertNotIn("watchdog", err)
            self.assertNotIn("waited", err)
            saves += len(list((self.dir / name / "checkpoints").iterdir()))
        print(f"delays: {rounds} runs, {stops - 2} stops, {saves} checkpoints kept", file=sys.stderr)

    def test_samples_come_once_whatever_interrupts(self):
        """TRIREME_INTERRUPTIONS stops (4) at random steps, behind each another number of ranks: in f64 the weights and the epochs' losses of a run that nothing has stopped, which another sample would change."""
        stops = int(os.environ.get("TRIREME_INTERRUPTIONS", 4))
        net = ["mlp", "--dtype", "f64", "--data.name", "synthetic", "--data.synthetic_size", 157, "--data.batch", 13, "--epochs", max(2, stops // 6), "--optim.name", "sgd", "--optim.lr", 0.01,
               "--parallel.threads", 1, "--checkpoint.steps", 0]   # 13 steps an epoch, the last of one row
        total = 13 * max(2, stops // 6)
        self.assertEqual(run("train", *net, "--run.dir", self.dir / "whole").returncode, 0)
        at, ranks = 0, 0
        places = sorted(random.sample(range(1, total), stops))
        for i, stop in enumerate([*places, total]):
            ranks = random.choice([r for r in (1, 2, 3, 4, 5) if r != ranks])
            threads = mpiexec == "none" or ranks == 1 or random.random() < 0.5
            got = run("train", *(net if i == 0 else []), "--run.dir", self.dir / "cut", "--run.max_steps", stop if stop < total else 0, *(["--resume"] if i else []), *(["--ranks", ranks] if threads else []),
                      ranks=None if threads else ranks)
            self.assertEqual(got.returncode, 0, (stop, ranks, got.stderr))
        def weights(name):
            numbers = {}
            newest = sorted(p for p in (self.dir / name / "checkpoints").iterdir() if p.name.startswith("step_"))[-1]
            for path in newest.glob("model*.safetensors"):
                raw = path.read_bytes()
                size, = struct.unpack("<Q", raw[:8])
                for key, entry in json.loads(raw[8:8 + size]).items():
                    if key != "__metadata__":
                        begin, end = entry["data_offsets"]
                        numbers[key] = struct.unpack(f"<{(end - begin) // 8}d", raw[8 + size + begin:8 + size + end])
            return numbers
        a, b = weights("whole"), weights("cut")
        self.assertEqual(a.keys(), b.keys())
        worst = max(abs(x - y) for key in a for x, y in zip(a[key], b[key]))
        self.assertLess(worst, 1e-12)
        losses = [[(m["step"], m["train_loss"], m["test_correct"]) for m in map(json.loads, (self.dir / name / "metrics.jsonl").read_text().splitlines()) if m["kind"] == "eval"] for name in ("whole", "cut")]
        self.assertEqual([(step, correct) for step, _, correct in losses[0]], [(step, correct) for step, _, correct in losses[1] if step % 13 == 0])
        for (_, x, _), (_, y, _) in zip(losses[0], [m for m in losses[1] if m[0] % 13 == 0]):
            self.assertAlmostEqual(x, y, delta=1e-11)
        print(f"interruptions: {stops}, the largest difference of a weight {worst:.2g}", file=sys.stderr)

    def test_doctor_refuses_a_damaged_live_json(self):
        live = self.dir / "live.json"
        for damaged in "", "[]", '{"processes": 3}', '{"processes": [{"pid": "x"}]}', '{"processes": [{"ranks": 3}]}', '{"processes": [{"ranks": [{"rank": "x"}]}]}':
            live.write_text(damaged)
            self.refused(run("doctor", "--live", self.dir), live, kind="data")

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_doctor_tells_of_a_live_run(self):
        self.start("--epochs", 100000, "--checkpoint.steps", 0, env={"TRIREME_TIMEOUT": "100"})
        live = self.dir / "run" / "live.json"
        self.until(lambda: self.steps() > 1 and all(p["ranks"][0]["phase"] != "start" for p in self.live()["processes"]))   # a report is up to 0.5 s old
        self.assertEqual(live.stat().st_mode & 0o777, 0o600)
        got = run("doctor", "--live", self.dir / "run")
        self.assertEqual((got.returncode, got.stdout.splitlines()[-1]), (0, "verdict: the run moves"), got.stdout + got.stderr)
        for rank in 0, 1:
            self.assertRegex(got.stdout, rf"(?m)^rank {rank}    \(.*, process \d+\) +(step|save|evaluate) +step \d+ .*")
        pid = json.loads(live.read_text())["processes"][1]["pid"]
        os.kill(pid, signal.SIGSTOP)
        waits = lambda: max([0, *(rank["waits"] for rank in json.loads(live.read_text())["processes"][0]["ranks"])])
        self.until(lambda: waits() > 5)   # what the doctor takes for a long wait
        got = run("doctor", "--live", self.dir / "run")
        self.assertEqual(got.returncode, 1, got.stdout)
        self.assertRegex(got.stdout, rf"(?m)^verdict: rank 1 \(.*, process {pid}\) is stopped")
        self.assertRegex(got.stdout, r"(?m)^waiting for others: rank 0")
        os.kill(pid, signal.SIGCONT)
        self.refused(run("doctor", "--live", self.dir / "none"), self.dir / "none", kind="file")

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_strangers_are_dropped(self):
        """Whoever does not know the token gets no answer, and disturbs nothing; on one host only the loopback listens."""
        process = self.start("--data.synthetic_size", 8000, "--epochs", 1, "--checkpoint.steps", 0, "--run.fault", "stop:1:300")   # of 400: until all were dropped
        self.until(lambda: self.steps() > 1)
        live = self.live()
        port = live["port"]
        doors = [address for pid in processes(self.dir / "run", program=trireme) for address, own in listening(pid) if own == port]   # MPI has others
        self.assertEqual(doors, ["0100007F"])
        made = []
        for i in range(40):
            s = socket.create_connection(("127.0.0.1", port))
            s.settimeout(8)
            made.append(s)
            s.sendall([b"", b"0" * 32 + b"\n0\n", os.urandom(200) + b"\n", b"x" * (1 << 17), b"\n\n", b'{"verdict": "end", "pid": 1}\n'][i % 6])
        answers = set()
        for s in made:
            try:
                answers.add(s.recv(100))
            except OSError:
                answers.add(b"")
            s.close()
        stopped = live["processes"][1]["pid"]
        self.until(lambda: processes(self.dir / "run", program=trireme)[stopped] == "T")
        os.kill(stopped, signal.SIGCONT)
        self.assertEqual(answers, {b""})
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertFalse((self.dir / "run" / "live.json").exists())

    def test_doctor(self):
        got = run("doctor", "--dir", self.dir, "--json")
        self.assertEqual(got.returncode, 0, got.stdout)
        found = {f["name"]: f for f in json.loads(got.stdout)}
        self.assertEqual(list(self.dir.iterdir()), [])
        got = run("doctor", "--dir", self.dir / "new/er", "--json")
        self.assertEqual(got.returncode, 0, got.stdout)
        self.assertEqual(list(self.dir.iterdir()), [])
        for name in "processor", "cores", "memory", "limits", "shared memory", "process memory", "GPUs", "clock", "user", "environment", "disk", "disk speed", "file system", "MPI", "job", "host names":
            self.assertIn(name, found)
            self.assertTrue(found[name]["what"])
            self.assertEqual(found[name]["verdict"] == "ok", found[name]["remedy"] == "", found[name])
        left = pathlib.Path("/dev/shm/mpich_shar_tmp-of-a-test")
        left.write_text("")
        self.addCleanup(left.unlink)
        self.assertRegex(run("doctor", "--dir", self.dir).stdout, rf"(?m)^warning  shared memory .*{left.name}")
        got = run("doctor", "--dir", self.dir, env={"TRIREME_TIMEOT": "3", "ONEDNN_MAX_CPU_ISA": "AVX2"})
        self.assertIn("did you mean 'TRIREME_TIMEOUT'", got.stdout)
        self.assertRegex(got.stdout, r"(?m)^warning  processor .*ONEDNN_MAX_CPU_ISA=AVX2")
        (self.dir / "file").write_text("")
        got = run("doctor", "--dir", self.dir / "file")
        self.assertEqual(got.returncode, 1)
        self.assertRegex(got.stdout, r"(?m)^fault    disk ")
        if mpiexec != "none":
            got = subprocess.run([mpiexec, "-n", "1", trireme, "doctor", "--dir", str(self.dir), ":", "-n", "1", "-env", "OMP_DYNAMIC", "true", trireme, "doctor", "--dir", str(self.dir)], capture_output=True, text=True)
            self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
            self.assertRegex(got.stdout, r"(?m)^warning  environment +rank 1: .*OMP_DYNAMIC")
            self.assertRegex(got.stdout, r"(?m)^ok       binary +the same on all ranks")
            self.assertRegex(got.stdout, r"(?m)^ok       clocks +at most ")

    def test_each_rank_has_a_log(self):
        for ranks in [None, 2] if mpiexec != "none" else [None]:
            got = run("train", *words, "--run.dir", self.dir / f"run{ranks}", *([] if ranks else ["--ranks", 2]), "--run.log_format", "json", "--run.log_seconds", 0.01, "--run.mllog", ranks=ranks)
            self.assertEqual(got.returncode, 0, got.stderr)
            lines = [json.loads(line) for line in got.stderr.splitlines()]
            self.assertTrue(all(abs(line["time"] - time.time()) < 120 and line["message"] for line in lines))
            steps = [line for line in lines if "done" in line]
            self.assertTrue(steps)
            for line in steps:
                self.assertTrue(0 <= line["done"] <= line["total"] and re.search("images/s|evaluate", line["message"]), line)
            logged = (self.dir / f"run{ranks}" / "logs" / "rank_0.log").read_text()
            self.assertTrue(any(re.search(r"ranks     own work [\d.]+ to [\d.]+ ms a step, most on rank \d \(.*\); longest waits for others [\d.]+ ms, on rank \d", line) for line in logged.splitlines()), logged)
            for rank in 0, 1:
                log = (self.dir / f"run{ranks}" / "logs" / f"rank_{rank}.log").read_text().splitlines()
                self.assertTrue(all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ ", line) for line in log) and log, log)
            metrics = [json.loads(line) for line in (self.dir / f"run{ranks}" / "metrics.jsonl").read_text().splitlines()]
            epoch = [m for m in metrics if m["kind"] == "eval"]
            self.assertEqual(len(epoch), 2, metrics)
            self.assertTrue(all(0 < m["step_ms_p50"] <= m["step_ms_p95"] and m["memory_mb"] > 10 for m in epoch), epoch)
            self.assertTrue(any(m.get("grad_norm") for m in metrics), metrics)
            ml = [json.loads(line.removeprefix(":::MLLOG ")) for line in (self.dir / f"run{ranks}" / "mllog.txt").read_text().splitlines()]
            self.assertEqual([m["value"] for m in ml if m["key"] == "global_batch_size"], [20])
            self.assertEqual([m["key"] for m in ml].count("eval_accuracy"), 2)


    def test_the_norm_of_a_gradient_is_the_step_s_own(self):
        """Where gradients are clipped each step's norm is known; a bound that none reaches leaves the weights as they are."""
        settings = ["lenet5", "--data", "synthetic", "--data.synthetic_size", 328, "--data.batch", 8, "--epochs", 1, "--optim.name", "sgd", "--optim.lr", 0.05, *unmeasured]

        def norms(name):
            lines = [json.loads(line) for line in (self.dir / name / "metrics.jsonl").read_text().splitlines()]
            return {line["step"]: line["grad_norm"] for line in lines if line["kind"] == "train"}

        def train(name, *more):
            got = run("train", *more, "--run.dir", self.dir / name)
            self.assertEqual(got.returncode, 0, got.stderr)
        train("known", *settings, "--optim.clip_norm", 1e9)
        self.assertEqual(sorted(norms("known")), [20, 40])
        train("plain", *settings)
        self.assertEqual(norms("plain"), norms("known"))
        train("cut", *settings, "--run.max_steps", 19)
        train("cut", "--resume", "--run.max_steps", 0)
        self.assertEqual(norms("cut"), norms("known"))
        train("ranks", *settings, "--ranks", 2)
        for step, norm in norms("ranks").items():
            self.assertAlmostEqual(norm, norms("known")[step], delta=1e-4 * norm)

    def test_mllog_has_each_mark_once(self):
        settings = ["lenet5", "--data", "synthetic", "--data.synthetic_size", 96, "--data.batch", 8, "--epochs", 3, "--optim.warmup_steps", 6, "--optim.name", "sgd", "--optim.schedule", "linear",
                    "--run.mllog", *unmeasured]

        def marks(*more):
            got = run("train", *more, "--run.dir", self.dir / "run")
            self.assertEqual(got.returncode, 0, got.stderr)
            return [json.loads(line.removeprefix(":::MLLOG ")) for line in (self.dir / "run/mllog.txt").read_text().splitlines()]

        def ends(lines):
            return [line["metadata"]["status"] for line in lines if line["key"] == "run_stop"]
        first = marks(*settings, "--run.max_steps", 17)
        self.assertEqual(ends(first), ["aborted"])
        self.assertEqual({line["value"] for line in first if "warmup_epochs" in line["key"]}, {0.5})
        self.assertEqual([line["value"] for line in first if "decay_steps" in line["key"]], [30])
        for again in range(2):   # a run that is whole stays so
            last = marks("--resume", "--run.max_steps", 0)
            self.assertEqual(ends(last), ["success"])
            self.assertEqual(last[-1]["key"], "run_stop")
            for key in "epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_accuracy":
                self.assertEqual([line["metadata"]["epoch_num"] for line in last if line["key"] == key], [1, 2, 3], key)
            self.assertEqual([line["key"] for line in last].count("run_start"), 1)

    def test_report(self):
        """Pages, JSON and CSV of one run, of three, and of a study, whatever the names and the damage; and pairs of runs."""
        names = ["plain", "<b>&amp;'", "stopped"]
        for name, more in zip(names, ([], ["--ranks", 2, "--run.profile", "10-12", "--run.predict", "true"], ["--run.max_steps", 7])):
            self.assertEqual(run("train", *words, "--run.dir", self.dir / name, *more).returncode, 0)
        (self.dir / "stopped" / "trace.json").write_text('{"traceEvents": [{"ph": "X", "name"')
        with open(self.dir / "stopped" / "metrics.jsonl", "a") as f:
            f.write('{"kind": "train", "st\n[]\nnull\n{"step": "x"}\n{"kind": "eval", "step": 3, "test_loss": 1e999}\n')
        (self.dir / "stopped" / "environment.json").write_text("[3")

        def document(*paths):
            """What a page draws: the same as --out .json, in a page that is XML and loads nothing."""
            page, plain = self.dir / "page.html", self.dir / "page.json"
            for out in page, plain:
                got = run("report", *paths, "--out", out)
                self.assertEqual((got.returncode, got.stdout), (0, f"{out}\n"), got.stderr)
            tree = xml.etree.ElementTree.fromstring(page.read_text())
            self.assertFalse({"src", "href", "onload"} & {name for tag in tree.iter() for name in tag.attrib})
            self.assertEqual(json.loads(tree.find(".//script[@id='data']").text), json.loads(plain.read_text()))
            return json.loads(plain.read_text())

        one = document(self.dir / "plain")
        self.assertEqual((one["kind"], one["title"], len(one["rows"]), one["synthetic"]), ("runs", "plain", 1, True))
        many = document(*[self.dir / name for name in names])
        self.assertEqual([r["name"] for r in many["rows"]], names)
        read = runs.load_run(self.dir / "plain")
        for key in "test_top1", "test_loss", "images_per_s":
            self.assertEqual(one["rows"][0]["last"][key], read["eval"][-1][key])
            self.assertEqual(one["rows"][0]["curves"]["test"][key], [[line["step"], line[key]] for line in read["eval"]])
        self.assertEqual(one["rows"][0]["settings"]["optim.lr"], read["config"]["optim"]["lr"])
        self.assertEqual(one["rows"][0]["status"], read["result"]["status"])
        profiled = many["rows"][1]
        self.assertAlmostEqual(sum(percent for what, percent in profiled["budget"]), 100, delta=1)
        self.assertEqual((profiled["traced_ranks"], {span[0] for span in profiled["traced_step"]}), (2, {0, 1}))
        told = "\n".join(many["warnings"])
        for said in "lines of metrics.jsonl cannot be read", "environment.json", "trace.json cannot be read":
            self.assertIn(said, told)
        rows = list(csv.DictReader(io.StringIO(self.out_of("report", *[self.dir / name for name in names], "--out", self.dir / "x.csv"))))
        self.assertEqual([row["name"] for row in rows], names)
        self.assertEqual(float(rows[0]["last.test_top1"]), read["eval"][-1]["test_top1"])
        self.refused(run("report", self.dir, "--out", self.dir / "x.html"), self.dir, kind="file")
        self.assertFalse((self.dir / "x.html").exists())
        self.refused(run("report", self.dir / names[0], "--out", self.dir / "x.xls"), "x.xls", ".csv")
        # Of a study: what cannot be kept is said.
        study = self.dir / "study"
        self.assertEqual(run("study", "run", "--ranks", "1,2", "--seeds", 2, "--target", 5, "--out", study, "--", "train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", 60, "--data.batch", 12, "--epochs", 2).returncode, 0)
        found = document(study)
        self.assertEqual((found["kind"], found["synthetic"], found["question"]["target"], len(found["rows"])), ("study", True, 5, 4))
        self.assertEqual({c["accuracy"]["level"] for c in found["cells"]}, {0.5})   # two runs
        self.assertGreaterEqual(sum(rule["broken"] != "" for rule in found["rules"]), 3)
        read = runs.load_study(study)
        self.assertEqual(found["ledger"]["head"], read["ledger"][-1]["hash"])
        self.assertEqual({(r["run"], r["status"]) for r in found["rows"]}, {(r["path"], r["status"]) for r in read["runs"]})
        for row in found["rows"]:
            other = next(r for r in read["runs"] if r["path"] == row["run"])
            self.assertEqual((row["accuracy"], row["seed"], row["attempts"]), (other["run"]["eval"][-1]["test_top1"], other["run"]["config"]["seed"], other["attempts"]))
        self.refused(run("report", study, self.dir / "plain", "--out", self.dir / "x.html"), study)
        # Pairs of runs by seed.
        cells = [study / "runs" / name for name in ("serial", "strong-r2-data_parallel")]
        got = run("report", "--compare", *cells)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("2 pairs, of the seeds 1, 2", got.stdout)
        self.assertIn("parallel.ranks 1 / 2", got.stdout)
        values = [[runs.load_run(cell / f"seed_{s}")["eval"][-1]["test_loss"] for s in (1, 2)] for cell in cells]
        row = next(line for line in got.stdout.splitlines() if line.startswith("last test_loss")).split()
        self.assertAlmostEqual(float(row[2]), sum(values[0]) / 2, delta=1e-5)
        self.assertAlmostEqual(float(row[3]), sum(values[1]) / 2, delta=1e-5)
        self.assertEqual(row[-3:-1], ["50", "%"])
        self.assertIn("no test", self.out_of("report", "--compare", cells[0] / "seed_1", cells[1]))
        self.refused(run("report", "--compare", cells[0] / "seed_1", cells[1] / "seed_2"), "seed")
        self.refused(run("report", "--compare", cells[0]), "--compare", 1)
        self.refused(run("report", "--compare", cells[0], self.dir / "nowhere"), "nowhere", kind="file")

    def out_of(self, *words):
        """What a command prints, or writes to its --out."""
        got = run(*words)
        self.assertEqual(got.returncode, 0, got.stderr)
        return pathlib.Path(words[-1]).read_text() if "--out" in words else got.stdout

    def test_profile(self):
        """A trace of all ranks whose events nest, with flows, and a table that closes to the steps' time."""
        for ranks in [None, 4] if mpiexec != "none" else [None]:
            out = self.dir / f"run{ranks}"
            got = run("train", *words, "--parallel.mesh", "pipe=2,data=2", "--parallel.strategy", "pipeline(micro=2)|data_parallel", "--run.dir", out, "--run.profile", "25-40", ranks=ranks)
            self.assertEqual(got.returncode, 0, got.stderr)
            rate = re.search(r"products and convolutions: (\S+) GFLOP/s on all ranks, (\S+) % of (\S+) at best", got.stdout + got.stderr)
            self.assertAlmostEqual(100 * float(rate[1]) / float(rate[3]), float(rate[2]), delta=0.02 * float(rate[2]) + 0.06)
            trace = json.loads((out / "trace.json").read_text())["traceEvents"]
            lanes, flows, open_events, steps = {}, {}, {}, {}
            for e in trace:
                if e["ph"] == "X":
                    lanes.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"], e["name"]))
                    if e["name"].startswith("step "):
                        steps.setdefault(e["pid"], []).append(int(e["name"][5:]))
                if e["ph"] in "sf":
                    flows.setdefault(e["id"], []).append(e)
                if e["ph"] in "be":
                    open_events.setdefault(e["id"], []).append(e)
            self.assertEqual(steps, {rank: list(range(25, 41)) for rank in range(4)})
            self.assertEqual({pid for pid, _ in lanes}, set(range(4)))
            for lane, events in lanes.items():
                stack = []
                for begin, end, name in sorted(events, key=lambda e: (e[0], -e[1])):
                    while stack and stack[-1] <= begin + 0.01:
                        stack.pop()
                    self.assertTrue(not stack or end <= stack[-1] + 0.01, (lane, name))
                    stack.append(end)
            self.assertEqual(len(flows), 16 * 2 * 2 * 2)   # steps, micro-batches, directions, pipelines
            for pair in flows.values():
                start, finish = sorted(pair, key=lambda e: e["ph"], reverse=True)
                self.assertEqual((start["ph"], finish["ph"]), ("s", "f"))
                self.assertLessEqual(start["ts"], finish["ts"] + 1)
                self.assertEqual(abs(start["pid"] - finish["pid"]), 2)
            self.assertTrue(open_events and all([e["ph"] for e in pair] == ["b", "e"] and pair[0]["ts"] <= pair[1]["ts"] for pair in open_events.values()))
            self.assertEqual(len([e for e in trace if e["ph"] == "C"]), 64)
            table = (out / "profile.txt").read_text()
            rows = [(line[:44].strip(), *map(float, line[44:].split()[:2])) for line in table.splitlines()[1:]]
            self.assertEqual(rows[-1][0], "all")
            self.assertAlmostEqual(rows[-1][2], 100, delta=0.05)
            self.assertAlmostEqual(sum(row[1] for row in rows[:-1]), rows[-1][1], delta=0.02)
            walls = [max(e[1] for e in lanes[rank, 0]) - min(e[0] for e in lanes[rank, 0]) for rank in range(4)]
            self.assertAlmostEqual(rows[-1][1], sum(walls) / 4 / 16 / 1e3, delta=0.02 * rows[-1][1] + 0.02)
            for row in rows:
                self.assertGreaterEqual(row[2], -0.5, table)
            names = [row[0] for row in rows]
            for name in "compute: linear", "compute: optimizer", "messages: pipe", "messages: data", "waiting for data", "checkpoint", "host (between kernels)":
                self.assertIn(name, names)
            for line in table.splitlines():
                self.assertIn(line, got.stderr)
        self.refused(run("train", *words, "--run.dir", self.dir / "no", "--run.profile", "7-3"), "run.profile", "7-3")


if __name__ == "__main__":
    unittests.main(sys.argv[4:])
