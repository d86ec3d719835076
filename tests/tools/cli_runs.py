"""What a run says of itself: its metrics under every strategy, and how it goes on after --resume.
  cli_runs.py TRIREME MPIEXEC|none DATA_DIR [TEST ...]
"""
import hashlib
import csv as table
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
import tomllib
import unittest
import zlib

import unittests
from cli import Case, idx, mpiexec, run, trireme, unmeasured
from unittests import statuses

timings = {"images_per_s", "wait_share", "step_ms_p50", "step_ms_p95", "memory_mb"}
settings_of_390ff92 = """
model = "mlp"
weights = ""
recompute = false
zero_gamma = false
epochs = 3
seed = 1
device = "auto"
dtype = "f32"
repeatable = true
loss_scale = 65536.0
cuda_graphs = true

[data]
name = "mnist"
root = ""
shards = ""
val_shards = ""
classes = 0
batch = 64
eval_batch = 500
workers = 1
limit = 0
shuffle = true
augment = false
augment_pad = 4
image_size = 0
synthetic_size = 1024
on_bad = "stop"

[optim]
name = "adam"
lr = 0.002
lr_per = 0
momentum = 0.9
nesterov = true
decay = 0.0
decay_biases = false
clip_norm = 0.0
label_smoothing = 0.0
schedule = "linear"
warmup_epochs = 0.0
step_epochs = 1.0
step_factor = 0.1
milestones = []

[parallel]
ranks = 1
mesh = ""
strategy = ""
allreduce = "vendor"
norm_scope = "global"
norm_group = 1
overlap = true
threads = 0

[checkpoint]
steps = 0
keep = 3

[run]
dir = ""
resume = false
override = false
progress = "auto"
log_seconds = 5.0
max_steps = 0
tensorboard = false
histograms = 1
images = 8
fault = ""
"""   # config.toml as that commit wrote it


def loaded(path):
    """[type, values] of an .npy file, as NumPy reads it."""
    program = "import json, sys, numpy; a = numpy.load(sys.argv[1]); print(json.dumps([str(a.dtype), a.tolist()]))"
    for python in sys.executable, "/usr/bin/python3":   # Debian's has NumPy
        got = subprocess.run([python, "-c", program, path], capture_output=True, text=True)
        if got.returncode == 0:
            return json.loads(got.stdout)
    raise unittest.SkipTest("needs NumPy")


class Runs(Case):
    def metrics(self, name="run"):
        """Lines by (kind, step), without what only says how fast it went."""
        lines = [json.loads(line) for line in (self.dir / name / "metrics.jsonl").read_text().splitlines()]
        found = {(line["kind"], line["step"]): {k: v for k, v in line.items() if k not in timings} for line in lines}
        self.assertEqual(len(found), len(lines), "a line twice")
        return found

    def edit_manifest(self, name, edit):
        """Changes the newest checkpoint's manifest, and its CRC."""
        path = sorted((self.dir / name / "checkpoints").glob("step_*"))[-1] / "manifest.json"
        manifest = json.loads(path.read_text())
        edit(manifest)
        del manifest["crc32"]
        manifest["crc32"] = zlib.crc32(json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode())
        path.write_text(json.dumps(manifest, sort_keys=True, indent=2, ensure_ascii=False) + "\n")

    def tree(self, name):
        return {str(p): p.is_file() and hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted((self.dir / name).rglob("*")) if p.name != "lock"}


class Metrics(Runs):
    words = ["lenet5", "--dtype", "f64", "--data.name", "synthetic", "--data.synthetic_size", 70, "--data.batch", 6, "--data.eval_batch", 30,
             "--epochs", 2, "--optim.lr", 0.003, "--parallel.threads", 1, *unmeasured]   # 12 steps an epoch; the last batch has 4, the last to test on 10
    strategies = [("accumulate(micro=3)", ""), ("pipeline(micro=2)", "pipe=2"), ("pipeline(micro=4, schedule=zb-h1)", "pipe=3"), ("data_parallel", "data=3"),
                  ("spatial", "h=2"), ("spatial", "h=2,w=2"), ("tensor", "tensor=2"), ("tensor(sequence=true)", "tensor=2"), ("place(*.weight)", "tensor=2"), ("one_weird_trick", "data=2"), ("zero(1)", "data=2"), ("zero(2)", "data=3"),
                  ("zero(3)", "data=2"), ("data_parallel | zero(3, axis=copies)", "data=2,copies=2"), ("central_storage", "data=2"), ("parameter_server", "data=3"), ("compress(codec=topk, ratio=1)", "data=2"), ("tensor | data_parallel", "tensor=2,data=2"),
                  ("spatial | data_parallel", "h=2,data=2"), ("pipeline(micro=2) | data_parallel", "pipe=2,data=2")]

    apart = ["local_sgd(every=1)", "gossip(graph=complete)", "easgd"]   # the first two meet in every step

    def test_every_strategy_counts_each_sample_once(self):
        known = set(run("info").stdout.rsplit("strategies", 1)[1].split())
        self.assertEqual(known, {"serial", "context", "experts"} | {re.match(r"\w+", text)[0] for text, mesh in self.strategies} | {re.match(r"\w+", text)[0] for text in self.apart})
        self.trained(*self.words, name="serial")
        serial = self.metrics("serial")
        self.assertEqual(sorted(serial), [("eval", 12), ("eval", 24), ("train", 20)])
        self.assertEqual([line["epoch"] for line in serial.values()], [1, 2, 2])
        for number, (strategy, mesh) in enumerate(self.strategies):
            with self.subTest(strategy=strategy, mesh=mesh):
                self.trained(*self.words, "--strategy", strategy, "--mesh", mesh, name=f"run{number}")
                found = self.metrics(f"run{number}")
                self.assertEqual(sorted(found), sorted(serial))
                for key, line in serial.items():
                    for word, value in line.items():
                        if word == "grad_norm":   # known where ranks update all
                            self.assertTrue(math.isclose(found[key].get(word, value), value, rel_tol=1e-11))
                        elif word.endswith("loss"):
                            self.assertTrue(math.isclose(found[key][word], value, rel_tol=1e-11), (key, word, found[key][word], value))
                        else:
                            self.assertEqual(found[key][word], value, (key, word))

    def test_models_with_running_statistics_train_under_every_strategy(self):
        """Statistics are of some ranks alone: those of a stage are on its ranks."""
        words = ["resnet20", "--data.name", "synthetic", "--data.image_size", 8, "--data.synthetic_size", 24, "--data.batch", 12, "--data.eval_batch", 12,
                 "--epochs", 1, "--parallel.threads", 1, "--run.digest_steps", 1, *unmeasured]
        for number, (strategy, mesh) in enumerate([("serial", ""), *self.strategies]):
            with self.subTest(strategy=strategy, mesh=mesh):
                if strategy.startswith(("spatial", "one_weird_trick")):   # pictures of 8 x 8 are too small; no layers for it
                    continue
                self.trained(*words, "--strategy", strategy, "--mesh", mesh, name=f"run{number}")
                loss = [line["test_loss"] for (kind, _), line in self.metrics(f"run{number}").items() if kind == "eval"][-1]
                got = run("eval", self.dir / f"run{number}", "--ranks", 1)
                self.assertEqual(got.returncode, 0, got.stderr)
                self.assertTrue(math.isclose(float(re.search(r"loss ([\d.]+)", got.stdout)[1]), loss, rel_tol=1e-4), (loss, got.stdout))

    def test_eval_divides_the_model(self):
        """The line of one rank, where the weights are divided; it says whether they are."""
        def line(name, *words, divided=False, ranks=None):
            got = run("eval", self.dir / name, *words, ranks=ranks)
            self.assertEqual((got.returncode, "ranks divide the model" in got.stderr), (0, divided), (words, got.stderr))
            return got.stdout.splitlines()[0], got.stderr.count("note: ")
        self.trained(*self.words, name="serial")
        self.trained(*self.words, "--mesh", "tensor=2", "--strategy", "tensor", name="parts")
        alone, parts = line("serial"), line("parts", divided=True)
        tensor = ["--mesh", "tensor=2", "--strategy", "tensor"]
        for layout in (tensor, ["--ranks", 3, "--strategy", "zero(3)"], ["--mesh", "pipe=2", "--strategy", "pipeline(micro=2)"],
                       ["--mesh", "data=2,tensor=2", "--strategy", "tensor | zero(3)"]):
            self.assertEqual(line("serial", *layout, divided=True), alone, layout)
        for layout in ["--ranks", 3], ["--ranks", 2, "--strategy", "zero(1)"], ["--ranks", 3, "--strategy", "parameter_server"], ["--mesh", "h=2", "--strategy", "spatial"], ["--mesh", "data=2"]:
            self.assertEqual(line("serial", *layout), alone, layout)
        newest = sorted((self.dir / "parts/checkpoints").glob("step_*"))[-1]
        self.assertEqual(line("serial", *tensor, "--weights", next(newest.glob("model.safetensors*")), divided=True), parts)
        self.assertEqual(line("parts", "--ranks", 1), parts)   # with one of them, the run's others do not hold
        for environment in '{"ranks": 3}', '{"ranks": "two"}':   # of another number of ranks; damaged
            (self.dir / "parts/environment.json").write_text(environment)
            self.assertEqual(line("parts", divided="two" in environment), (parts[0], "two" not in environment))
        for layout, *says in ((["--mesh", "tensor=2"], "tensor"), (["--ranks", 2, *tensor[:1], "tensor=3"], 2, 3), (["--strategy", "tensr"], "tensr"), (["--strategy", "auto"], "auto")):
            self.refused(run("eval", self.dir / "serial", *layout), *says)
        self.refused(run("eval", self.dir / "serial", *tensor, "--weights", self.dir / "none"), "none", kind="file")

    def test_commands_without_a_use_for_strategies_refuse_them(self):
        for command in ["pack", "file"], ["predict", "none.png"], ["export", "none"], ["infer", "none"], ["report", "none"], ["doctor"], ["info"]:
            self.refused(run(*command, "--strategy", "tensor"), "--strategy")
        for command in ["pack", "file", "--ranks", 2], ["pack", "file", "--mesh", "data=2"], ["bench", "--machine=x", "--mesh", "tensor=2"], ["predict", "none.png", "--ranks", 2], ["infer", "none", "--ranks", 2]:
            self.refused(run(*command), command[2])
        self.refused(run("plan", "simulate", "--backtest", "none.csv"), "bench/backtest")
        for layout in ["--mesh", "tensor=2", "--strategy", "tensor"], ["--mesh", "tensor=2"], ["--strategy", "serial"]:
            self.refused(run("bench", "mlp", "--infer", *layout), "--infer", layout[-1])

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_eval_divides_the_model_over_processes(self):
        self.trained(*self.words, "--strategy", "zero(3)", name="run", ranks=2)
        for ranks, divided in (2, True), (3, False), (None, False):   # the run's ranks, others
            got = run("eval", self.dir / "run", ranks=ranks)
            self.assertEqual(("ranks divide the model" in got.stderr, got.stderr.count("note: the run has 2 ranks")), (divided, not divided), got.stderr)
            found = re.match(r"test accuracy: .*, loss [\d.]+", got.stdout)[0]
            self.assertEqual(found, alone := found if ranks == 2 else alone)

    def test_workers_that_train_apart_count_each_sample_once(self):
        words = [*self.words, "--optim.name", "sgd", "--optim.lr", 0.05, "--optim.momentum", 0, "--optim.nesterov", "false"]
        self.trained(*words, name="serial")
        serial = self.metrics("serial")
        for number, strategy in enumerate(self.apart):
            with self.subTest(strategy=strategy):
                self.trained(*words, "--strategy", strategy, "--mesh", "data=3", name=f"run{number}")
                found = self.metrics(f"run{number}")
                self.assertEqual(sorted(found), sorted(serial))
                for key in ("eval", 12), ("eval", 24):   # a step's loss is that of the first worker's rows
                    self.assertEqual(found[key]["test_samples"], serial[key]["test_samples"])
                    same = [math.isclose(found[key][word], serial[key][word], rel_tol=1e-11) for word in ("train_loss", "train_top1", "test_loss")]
                    self.assertEqual(all(same), "easgd" not in strategy, (key, found[key], serial[key]))

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_processes_count_each_sample_once(self):
        self.trained(*self.words, name="serial")
        self.trained(*self.words, "--strategy", "spatial", "--mesh", "h=2", name="mpi", ranks=2)
        serial, found = self.metrics("serial"), self.metrics("mpi")
        for key in ("eval", 12), ("eval", 24):
            self.assertEqual([found[key][word] for word in ("train_top1", "test_top1", "test_top5", "test_correct")],
                             [serial[key][word] for word in ("train_top1", "test_top1", "test_top5", "test_correct")])

    def test_each_epoch_is_counted_anew(self):
        folder = self.dir / "mnist"
        folder.mkdir()
        images, labels = random.Random(5).randbytes(60 * 784), bytes(i % 10 for i in range(60))
        for kind in "train", "t10k":   # trained on and tested on the same, with weights that stay
            (folder / f"{kind}-images-idx3-ubyte").write_bytes(idx(3, (60, 28, 28), images))
            (folder / f"{kind}-labels-idx1-ubyte").write_bytes(idx(1, (60,), labels))
        for ranks in 1, 3:
            self.trained("lenet5", "--dtype", "f64", "--data.root", folder, "--data.batch", 7, "--epochs", 3, "--optim.lr", 0, *unmeasured, "--ranks", ranks, name=f"run{ranks}")
            found = [line for line in self.metrics(f"run{ranks}").values() if line["kind"] == "eval"]
            self.assertEqual([line["epoch"] for line in found], [1, 2, 3])
            for line in found:
                self.assertEqual(line["train_top1"], line["test_top1"])
                self.assertTrue(math.isclose(line["train_loss"], line["test_loss"], rel_tol=1e-11), line)


class BatchNorms(Runs):
    words = ["resnet20", "--dtype", "f64", "--data.name", "synthetic", "--data.synthetic_size", 48, "--data.image_size", 8, "--data.batch", 7, "--epochs", 2,
             "--run.max_steps", 8, "--optim.name", "sgd", "--optim.lr", 0.05, "--parallel.threads", 1, *unmeasured]

    def weights(self, name):
        newest = sorted((self.dir / name / "checkpoints").glob("step_*"))[-1]
        raw = (newest / "model.safetensors").read_bytes()
        size, = struct.unpack("<Q", raw[:8])
        head, body = json.loads(raw[8:8 + size]), raw[8 + size:]
        head.pop("__metadata__", None)
        found = {}
        for key, what in head.items():
            begin, end = what["data_offsets"]
            if what["dtype"] == "F64":
                found[key] = struct.unpack(f"<{(end - begin) // 8}d", body[begin:end])
        return found

    def apart(self, a, b):
        a, b = self.weights(a), self.weights(b)
        self.assertEqual(a.keys(), b.keys())
        return max(max(abs(x - y) for x, y in zip(a[key], b[key])) / max(map(abs, a[key])) for key in a)

    def test_one_and_three_ranks_train_the_same_residual_network(self):
        for name, told, words in (("one", "global", ["--ranks", 1]), ("three", "global", ["--ranks", 3]),
                                  ("local", "local: each rank's rows", ["--ranks", 3, "--parallel.norm_scope", "local"]),
                                  ("group", "group: the rows of every 3 ranks", ["--ranks", 3, "--parallel.norm_scope", "group", "--parallel.norm_group", 3])):
            log = self.trained(*self.words, *words, name=name).stderr
            self.assertIn(f"\nbatch norm: {told}\n", log)
        self.assertLess(self.apart("one", "three"), 1e-11)
        self.assertLess(self.apart("one", "group"), 1e-11)
        self.assertGreater(self.apart("one", "local"), 1e-3)
        self.assertNotIn("batch norm", self.trained("mlp", "--data.name", "synthetic", "--data.synthetic_size", 20, "--run.max_steps", 1, "--ranks", 2, name="mlp").stderr)
        self.refused(run("train", *self.words, "--parallel.norm_scope", "globl", "--run.dir", self.dir / "x"), "globl", "global")

    def test_a_resumed_run_keeps_their_rows(self):
        """However they come to be others: by the strategy's text, the number of ranks or micro-batches."""
        def refused(now, before, *words):
            kept = self.tree("run")
            self.refused(run("train", "--resume", "--run.dir", self.dir / "run", *words), now, before, "--override")
            self.assertEqual(self.tree("run"), kept)
        self.trained(*self.words, "--ranks", 2, "--run.max_steps", 1)
        local, whole = "the rows of each of 2 ranks in the global batch", "the global batch"
        refused(local, whole, "--strategy", "data_parallel(norm_scope=local)")
        refused("each of 2 micro-batches", whole, "--ranks", 1, "--strategy", "accumulate(micro=2)")
        refused("the rows of every 2 of 4 ranks in each of 2 micro-batches", whole, "--ranks", 4, "--strategy",
                "accumulate(micro=2) | data_parallel(norm_scope=group, norm_group=2)")
        self.trained("--resume", "--ranks", 3, "--strategy", "data_parallel(norm_scope=group, norm_group=3) | zero(1)", "--run.max_steps", 2)
        log = self.trained("--resume", "--ranks", 2, "--strategy", "data_parallel(norm_scope=local)", "--override", "--run.max_steps", 3).stderr
        self.assertIn(f"override  batch norms see {local}, in the run {whole}\n", log)
        self.assertTrue((self.dir / "run/config.until_00000002.toml").exists())
        refused("the rows of each of 3 ranks in the global batch", local, "--ranks", 3)
        refused(whole, local, "--ranks", 1)
        self.trained("--resume", "--strategy", "data_parallel(norm_scope=group, norm_group=1)", "--run.max_steps", 4)


class Resume(Runs):
    """A run of 12 steps an epoch on synthetic data (it does not depend on data files), lr constant."""
    words = ["mlp", "--data.name", "synthetic", "--data.synthetic_size", 70, "--data.batch", 6, "--epochs", 2, "--optim.schedule", "constant",
             "--optim.lr", 0.002, "--parallel.threads", 1, "--checkpoint.keep", 20, *unmeasured]

    def resumed(self, *words, name="run", **options):
        return self.trained("--resume", *words, name=name, **options)

    def cut(self, at, name="cut", *words):
        self.trained(*self.words, *words, "--run.max_steps", at, name=name)

    def settings(self, name="run"):
        return tomllib.loads((self.dir / name / "config.toml").read_text())

    def manifest(self, name="run"):
        return json.loads((sorted((self.dir / name / "checkpoints").glob("step_*"))[-1] / "manifest.json").read_text())

    def test_a_run_is_resumed_by_its_name_alone(self):
        """Weights, optimizer and metrics end as those of a run that was never cut: in mid-epoch, at the end of an epoch, often, on ranks."""
        for ranks in 1, 2:
            words = ["--ranks", ranks, "--checkpoint.steps", 5, "--run.max_steps", 23]
            self.trained(*self.words, *words[:4], name=f"whole{ranks}")
            whole = self.metrics(f"whole{ranks}")
            self.assertEqual(sorted(whole), [("eval", 12), ("eval", 24), ("train", 20)])
            for stops in [7], [12], [1, 11, 12, 13, 20, 23]:
                name = f"cut{ranks}-{stops[0]}"
                self.cut(stops[0], name, *words[:4])
                for stop in stops[1:]:
                    self.resumed("--run.max_steps", stop, name=name)
                got = self.resumed(name=name)
                self.assertNotIn("train loss 0.0000", got.stderr)
                self.assertEqual(self.metrics(name), whole)
                self.assertEqual(self.digests(name), self.digests(f"whole{ranks}"))
                csv = lambda name: [{k: v for k, v in row.items() if k not in timings} for row in table.DictReader((self.dir / name / "metrics.csv").read_text().splitlines())]
                self.assertEqual(csv(name), csv(f"whole{ranks}"))
            # What was written after the checkpoint that a run goes on from is written anew, not twice.
            shutil.rmtree(sorted((self.dir / f"whole{ranks}/checkpoints").glob("step_*"))[-1])
            shutil.rmtree(sorted((self.dir / f"whole{ranks}/checkpoints").glob("step_*"))[-1])
            self.resumed(name=f"whole{ranks}")
            self.assertEqual(self.metrics(f"whole{ranks}"), whole)
            self.assertEqual(csv(f"whole{ranks}"), csv(name))
        again = self.resumed(name="whole1")   # nothing is left to do
        self.assertNotIn("epoch 3", again.stderr)
        self.assertNotIn("train loss", again.stderr)
        self.assertIn("after 24 steps", again.stdout)

    def test_a_signal_stops_all_ranks_behind_one_step_that_is_saved(self):
        self.trained(*self.words, "--ranks", 2, name="whole")
        for name, words, ranks in [("threads", ["--ranks", 2], None)] + ([("processes", [], 2)] if mpiexec != "none" else []):
            for step in 5, 10:   # flags are told in steps 10, 20, ...
                got = run("train", *self.words, *words, "--run.fault", f"term:1:{step}", "--run.dir", self.dir / f"{name}{step}", ranks=ranks)
                said = [line for line in got.stderr.splitlines() if line.startswith("trireme: ")]
                self.assertEqual(got.returncode, 85)
                self.assertEqual(said, ["trireme: SIGTERM: all ranks stop after a step and save",
                                        "trireme: preempted after step 10; the state is saved, and --resume continues from it"])
                self.assertIn("not evaluated, after 10 steps", got.stdout)
                self.assertEqual(json.loads((self.dir / f"{name}{step}/result.json").read_text())["status"], "preempted")
                self.assertEqual(self.manifest(f"{name}{step}")["step"], 10)
                self.trained("--run.resume", "auto", *words, name=f"{name}{step}", ranks=ranks)
                self.assertEqual(json.loads((self.dir / f"{name}{step}/result.json").read_text())["status"], "finished")
                self.assertEqual(self.digests(f"{name}{step}"), self.digests("whole"))
                self.assertEqual(self.metrics(f"{name}{step}"), self.metrics("whole"))

    def test_signals_ask_for_checkpoints(self):
        # Without an end of its own; no checkpoint comes by itself.
        words = [*self.words, "--data.synthetic_size", 600000, "--epochs", 1, "--run.dir", self.dir / "run"]
        process = subprocess.Popen([trireme, "train", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        saved = lambda: {p.name for p in (self.dir / "run").glob("checkpoints/step_*[0-9]")}
        try:
            for count in 1, 2:
                while not (self.dir / "run/metrics.jsonl").exists() or len(saved()) < count:
                    if (self.dir / "run/metrics.jsonl").exists() and len(saved()) == count - 1:
                        process.send_signal(signal.SIGUSR2)
                    self.assertIsNone(process.poll())
                    time.sleep(0.05)
            process.terminate()
            said = process.communicate(timeout=60)[1]
            self.assertIn("preempted after step", said)
            self.assertEqual(process.returncode, 85)
        finally:
            process.kill()
            process.communicate()

    def endless(self, *words, name="run", ranks=None, env=None):
        """A training without an end of its own, once it has recorded a step."""
        line = ([mpiexec, "-n", ranks] if ranks else []) + [trireme, "train", *self.words, "--data.synthetic_size", 600000, "--epochs", 1, "--run.dir", self.dir / name, *words]
        process = subprocess.Popen([str(w) for w in line], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        self.until(lambda: process.poll() is not None or "train" in self.text(name, "metrics.jsonl"))
        return process

    def text(self, name, file):
        path = self.dir / name / file
        return path.read_text() if path.exists() else ""

    def until(self, ready):
        end = time.monotonic() + 60
        while not ready():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def test_signals_and_limits_leave_with_their_own_status(self):
        for name, signals in ("interrupt", [signal.SIGINT]), ("usr1", [signal.SIGUSR1]), ("preempted", [signal.SIGCONT, signal.SIGTERM]):
            process = self.endless(name=name)
            for each in signals:
                process.send_signal(each)
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 85, said)
            self.assertRegex(said, r"preempted after step \d+; the state is saved")
            self.assertEqual(json.loads(self.text(name, "result.json"))["status"], "preempted")
        process = self.endless(name="limit", ranks=2 if mpiexec != "none" else None)
        self.assertIsNone(process.poll())   # without a limit it goes on
        process.kill()
        process.wait()
        for name, words, env in ("own", ["--run.time_limit", 2], {}), ("slurm", [], {"SLURM_JOB_END_TIME": str(int(time.time()) + 6)}):
            process = self.endless(*words, name=name, env=env)
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 85, said)
            self.assertIn("the time limit is near", said)
        self.refused(run("train", *self.words, "--run.time_limit", -1), "run.time_limit")

    def test_preempted_at_random_moments_the_bits_stay(self):
        """By any of the signals, to one process, all or the launcher, again and again. TRIREME_PREEMPTIONS: how often (4)."""
        more, seed = ["--data.synthetic_size", 9000, "--epochs", 1, "--checkpoint.steps", 0], time.time_ns()   # 1500 steps
        self.trained(*self.words, *more, "--ranks", 2, name="whole")
        draw, preempted, runs, slowest = random.Random(seed), 0, 0, 0
        wanted = int(os.environ.get("TRIREME_PREEMPTIONS", 4))
        while preempted < wanted:
            name, first = f"run{runs}", True
            runs += 1
            while True:
                mpi = mpiexec != "none" and draw.random() < 0.5
                line = [*([mpiexec, "-n", 2] if mpi else []), trireme, "train", *([*self.words, *more] if first else []), *([] if mpi else ["--ranks", 2]), "--run.dir", self.dir / name,
                        "--run.resume", "auto"]
                process = subprocess.Popen([str(w) for w in line], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                self.addCleanup(process.kill)
                takes = lambda pid: int(re.search(r"SigBlk:\s+(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1], 16) >> (signal.SIGTERM - 1) & 1
                def ready():
                    try:
                        ranks = [pid for pid in self.of(name) if takes(pid)]
                        return process.poll() is not None or len(ranks) == (2 if mpi else 1)
                    except OSError:
                        return False
                self.until(ready)
                time.sleep(draw.uniform(0, 0.3))
                ranks = self.of(name)
                signals = draw.choice([[signal.SIGTERM], [signal.SIGINT], [signal.SIGUSR1], [signal.SIGCONT, signal.SIGTERM]])
                told = [] if preempted == wanted else [process.pid] if mpi and draw.random() < 0.3 and signals != [signal.SIGINT] else draw.sample(ranks, draw.randrange(1, len(ranks) + 1)) if ranks else []
                for pid in told:
                    for each in signals:
                        try:
                            os.kill(pid, each)
                        except ProcessLookupError:
                            pass
                start, said = time.monotonic(), process.communicate(timeout=60)[1]
                first = False
                with self.subTest(seed=seed, signals=signals, mpi=mpi, said=said):
                    self.assertIn(process.returncode, (0, 85))
                if json.loads((self.dir / name / "result.json").read_text())["status"] == "finished":
                    break
                if told != [process.pid]:   # MPICH's mpiexec, ended itself, may say 0 of ranks that end with another status
                    self.assertEqual(process.returncode, 85, said)
                preempted, slowest = preempted + 1, max(slowest, time.monotonic() - start)
                self.assertLess(slowest, 10)
            self.assertEqual(self.digests(name), self.digests("whole"), (seed, mpi, signals, told == [process.pid], said))
        print(f"preemptions: {preempted} in {runs} runs, gone after {slowest:.2f} s at most, seed {seed}", file=sys.stderr)

    def of(self, name):
        """The processes of a run."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == str(trireme).encode() and str(self.dir / name).encode() in words:
                found.append(int(path.parent.name))
        return found

    def test_a_second_interrupt_ends_at_once(self):
        process = self.endless("--run.fault", "sleep:0:21")   # a step that does not end
        process.send_signal(signal.SIGINT)
        self.assertIn("send it again to stop at once", next(line for line in process.stderr if "SIGINT" in line))
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT)

    def test_one_run_at_a_time_writes_a_directory(self):
        process = self.endless("--data.synthetic_size", 6000, "--epochs", 100000, "--checkpoint.steps", 5)   # the last command evaluates
        self.until(lambda: any((self.dir / "run").glob("checkpoints/step_*[0-9]")))
        for words in [], ["--resume"], ["--run.resume", "auto"]:
            got = run("train", *self.words, "--run.dir", self.dir / "run", *words)
            self.refused(got, f"process {process.pid}", kind="file")
        process.kill()
        process.wait()
        self.assertEqual(run("train", "--resume", "--run.dir", self.dir / "run", "--run.max_steps", 1).returncode, 0)   # a dead one holds nothing

    @unittest.skipIf(mpiexec == "none", "without MPI")
    def test_ranks_end_with_their_launcher(self):
        process = self.endless(name="orphans", ranks=2)
        ranks = set()
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if str(self.dir / "orphans").encode() in words and words[0] == trireme.encode():
                ranks.add(int(path.parent.name))
        self.assertEqual(len(ranks), 2)
        proxies = {int(pathlib.Path(f"/proc/{rank}/stat").read_text().rsplit(")")[-1].split()[1]) for rank in ranks}
        for proxy in proxies:
            os.kill(proxy, signal.SIGKILL)
        self.until(lambda: not any(pathlib.Path(f"/proc/{rank}").exists() for rank in ranks))

    def test_resume_auto_and_words_that_stand_alone(self):
        self.trained(*self.words, name="whole")
        # Where nothing is, or what has not come to its first checkpoint, it begins; metrics are those of this run.
        (self.dir / "run/checkpoints/step_00000003.tmp").mkdir(parents=True)
        (self.dir / "run/metrics.jsonl").write_text('{"kind": "train", "step": 1}\n')
        self.trained("--run.resume", "auto", "--run.max_steps", 7, *self.words)
        with (self.dir / "run/metrics.jsonl").open("a") as file:   # damaged lines are left out
            file.write('{"kind": 3, "step": "x"}\n{"kind": "eval", "step": "x", "epoch": []}\n{"kind": "eval"}\n')
        self.trained("--resume=auto", *self.words)
        self.assertEqual(self.digests("run"), self.digests("whole"))
        self.assertEqual(self.metrics("run"), self.metrics("whole"))
        # What stands behind it is the model, not its value.
        got = run("train", "--tensorboard", "--resume", self.words[0], "--run.dir", self.dir / "none")
        self.refused(got, self.dir / "none", kind="file")
        got = run("train", "--run.override", *self.words)
        self.refused(got, "run.override", "run.resume")
        self.refused(run("train", *self.words, "--run.resume", "maybe"), "maybe")
        self.refused(run("train", *self.words, "--resume=true"), "run.resume", "true", "yes")
        self.refused(run("train", *self.words, "--run.resume", "auto"), "--run.dir")
        for path in (self.dir / "run/checkpoints").glob("step_*/model*.safetensors"):   # damaged is not absent
            path.write_bytes(path.read_bytes()[:-1])
        got = run("train", "--run.resume", "auto", *self.words, "--run.dir", self.dir / "run")
        self.assertEqual(got.returncode, 65, got.stderr)

    def shards(self, name):
        newest = sorted((self.dir / name / "checkpoints").glob("step_*"))[-1]
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in newest.glob("*.safetensors")}

    def test_shards_survive_kills_and_serve_any_layout(self):
        """Each rank writes its own; whatever moment it is killed at, the run goes on and ends with the bits of one that was not."""
        # Of ranks that share their work: each has something of the weights, the optimizer, or both.
        for i, (mesh, strategy) in enumerate((("data=2", "data_parallel | zero(3)"), ("pipe=2", "pipeline(micro=2, partition=even)"))):
            words = [*self.words, "--mesh", mesh, "--strategy", strategy, "--checkpoint.steps", 3, "--checkpoint.keep", 2]
            begin = time.monotonic()
            self.trained(*words, name=f"whole{i}")
            seconds = time.monotonic() - begin
            whole = self.shards(f"whole{i}")
            self.assertEqual(sorted(whole), [f"{kind}-0000{n}-of-00002.safetensors" for kind in ("model", "optimizer") for n in (1, 2)])
            name, kills, dice = f"cut{i}", 0, random.Random(i)
            while True:
                resume = ["--resume"] if list((self.dir / name).glob("checkpoints/step_*[0-9]")) else []
                if not resume:
                    shutil.rmtree(self.dir / name, ignore_errors=True)
                process = subprocess.Popen([trireme, "train", *map(str, [*words, *resume, "--run.dir", self.dir / name])], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                try:
                    said = process.communicate(timeout=None if kills == 12 else dice.uniform(0, seconds) if kills > 0 else 0)[1]
                    self.assertEqual(process.returncode, 0, said[-2000:])
                    break
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.communicate()
                    kills += 1
            self.assertGreater(kills, 0)
            self.assertEqual(self.shards(name), whole)
            self.assertEqual(list((self.dir / name / "checkpoints").glob("*.tmp")), [])
        # Read as one: by eval on any ranks, export, and where another run starts or goes on.
        newest = sorted((self.dir / "cut0/checkpoints").glob("step_*"))[-1]
        index = newest / "model.safetensors.index.json"
        self.assertEqual(set(json.loads(index.read_text())["weight_map"].values()), {p for p in whole if p.startswith("model")})
        found = [run("eval", self.dir / "cut0", "--ranks", ranks, *words).stdout.splitlines()[0] for ranks, words in ((1, []), (2, []), (1, ["--weights", index]))]
        self.assertEqual(len(set(found)), 1, found)
        self.assertIn("test accuracy", found[0])
        self.assertIn("m.onnx", run("export", self.dir / "cut0", "--onnx", self.dir / "m.onnx").stdout)
        self.assertEqual(run("import", index, "--out", self.dir / "one.safetensors").returncode, 0)
        self.trained(*self.words, "--weights", self.dir / "one.safetensors", "--run.max_steps", 1, name="started")
        self.trained(*self.words, "--mesh", "data=3", "--strategy", "data_parallel | zero(2)", "--run.max_steps", 7, name="layouts")
        for step, mesh, strategy in ((9, "data=1", "serial"), (13, "pipe=2,data=2", "pipeline(micro=2) | data_parallel | zero(1)"), (16, "tensor=2", "tensor"),
                                     (19, "data=2,copies=2", "data_parallel | zero(3, axis=copies)"), (24, "data=2", "data_parallel")):
            self.resumed("--mesh", mesh, "--strategy", strategy, "--run.max_steps", step, name="layouts")
        self.trained(*self.words, name="serial")
        for key, line in self.metrics("serial").items():
            got = self.metrics("layouts")[key]
            self.assertEqual([got[k] for k in line if k.endswith(("top1", "correct"))], [line[k] for k in line if k.endswith(("top1", "correct"))])
        # What is not whole is told in one line.
        newest = sorted((self.dir / "cut1/checkpoints").glob("step_*"))[-1]
        self.refused(run("eval", self.dir / "cut1", "--weights", newest / "model-00001-of-00002.safetensors"), "model-00001-of-00002.safetensors", kind="data")
        for p in (self.dir / "cut1/checkpoints").glob("step_*/model-00002-of-00002.safetensors"):
            p.unlink()
        self.refused(run("train", "--resume", "--run.dir", self.dir / "cut1"), "cut1", "model-00002-of-00002.safetensors", kind="file")

    def test_more_epochs_where_the_schedule_does_not_ask_for_them(self):
        self.trained(*self.words, name="whole")
        self.trained(*self.words, "--epochs", 1, name="cut")
        self.resumed("--epochs", 2, name="cut")
        self.assertEqual(self.metrics("cut"), self.metrics("whole"))
        self.assertEqual(self.settings("cut")["epochs"], 2)
        self.cut(12, "linear", "--optim.schedule", "linear")
        self.refused(run("train", "--resume", "--run.dir", self.dir / "linear", "--epochs", 3), "epochs is 3", "2", "--override")

    def test_other_settings_are_refused_by_name(self):
        self.cut(7)
        before = self.tree("cut")
        base = ["train", "--resume", "--run.dir", self.dir / "cut"]
        other = {"model": ("lenet5", '"lenet5"', '"mlp"'), "optim.lr": (0.01, "0.01", "0.002"), "data.batch": (7, 7, 6), "data.name": ("mnist", '"mnist"', '"synthetic"'),
                 "data.limit": (9, 9, 0), "data.shuffle": ("false", "false", "true"), "optim.schedule": ("cosine", '"cosine"', '"constant"'),
                 "optim.weight_decay": (0.1, "0.1", "0.0"), "optim.label_smoothing": (0.1, "0.1", "0.0"), "optim.z_loss": (0.1, "0.1", "0.0"), "dtype": ("f64", '"f64"', '"f32"'), "seed": (2**60 + 1, 2**60 + 1, 1),
                 "optim.name": ("sgd", '"sgd"', '"adam"'), "parallel.norm_scope": None}
        all_words, all_texts = [], []
        for key, what in other.items():
            if what is None:
                now = re.search(r'norm_scope = "(\w+)"', (self.dir / "cut/config.toml").read_text())[1]
                new = {"local": "global", "global": "local"}[now]
                what = (new, f'"{new}"', f'"{now}"')
            words = [what[0]] if key == "model" else ["--" + key, what[0]]
            text = f"{key} is {what[1]}, but the run has {what[2]}"
            if key in ("model", "optim.lr", "seed"):   # the others in one start below
                self.refused(run(*base, *words), text, "--override")
            all_words, all_texts = all_words + words, all_texts + [text]
        line = self.refused(run(*base, *all_words), *all_texts, "--override")
        self.assertEqual(line.count(" the run has "), len(other))
        (self.dir / "c.toml").write_text("[optim]\nlr = 0.5\n")
        self.refused(run(*base, "--config", self.dir / "c.toml"), "optim.lr", 0.5, 0.002)
        self.assertEqual(self.tree("cut"), before)
        config = self.dir / "cut/config.toml"   # edited by hand it is compared with the checkpoint
        config.write_text(config.read_text().replace("lr = 0.002", "lr = 0.004"))
        self.refused(run(*base), "optim.lr is 0.004, but the run has 0.002")

    def test_what_does_not_change_the_training_may_differ(self):
        self.cut(7)
        self.resumed("--data.workers", 2, "--ranks", 2, "--strategy", "data_parallel | zero(1)", "--checkpoint.keep", 1, "--run.tensorboard", "--run.max_steps", 9,
                     "--allreduce", "ring", name="cut")
        self.assertEqual(self.settings("cut")["parallel"]["strategy"], "data_parallel | zero(1)")
        self.resumed("--mesh", "pipe=2", "--strategy", "pipeline", "--run.max_steps", 14, name="cut")
        got = self.resumed("--mesh", "tensor=2", "--strategy", "tensor", name="cut")
        self.assertIn("after 24 steps", got.stdout)
        self.trained(*self.words, name="whole")
        for key, line in self.metrics("whole").items():
            found = self.metrics("cut")[key]
            same = [k for k in line if k == "lr" or k.endswith(("top1", "correct"))]
            self.assertEqual([found[k] for k in same], [line[k] for k in same])
        self.assertEqual(list((self.dir / "cut").glob("config.until*")), [])

    def test_what_is_damaged_or_missing_of_a_run(self):
        self.cut(7)
        config = self.dir / "cut/config.toml"
        whole = config.read_text()
        for damaged in "[optim\n", whole.replace("lr = ", "rl = "), whole.replace("epochs = ", "epochs = -"), "\0":
            config.write_text(damaged)
            self.refused(run("eval", self.dir / "cut"), "config.toml", kind="data")
            self.refused(run("train", "--resume", "--run.dir", self.dir / "cut"), "config.toml", kind="data")
        config.write_text("#" * 2**20 + whole)
        self.refused(run("eval", self.dir / "cut"), "config.toml", 2**20, kind="data")
        config.write_text(whole)
        metrics = self.dir / "cut/metrics.jsonl"   # a pipe has no end until somebody writes to it, and this device has none
        for make in (lambda: os.mkfifo(metrics)), (lambda: metrics.symlink_to("/dev/zero")):
            metrics.unlink()
            make()
            self.refused(run("train", "--resume", "--run.dir", self.dir / "cut"), "metrics.jsonl", kind="file")
            got = run("report", self.dir / "cut", "--out", self.dir / "page.html")
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertIn("metrics.jsonl cannot be read", (self.dir / "page.html").read_text())   # among the document's warnings
        shutil.rmtree(self.dir / "cut/checkpoints")
        (self.dir / "cut/checkpoints").write_text("")   # root reads any folder: so it is none
        self.refused(run("eval", self.dir / "cut"), "cut/checkpoints", kind="file")

    def test_a_run_directory_that_is_removed_or_renamed(self):
        remove = lambda path: [shutil.rmtree(path, ignore_errors=True) for _ in range(3)]   # it writes meanwhile
        for how in remove, lambda path: path.rename(self.dir / "elsewhere"):
            process = self.endless("--checkpoint.steps", 0)
            how(self.dir / "run")
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, statuses["file"], said)
            self.assertIn(str(self.dir / "run"), said.splitlines()[-1])
            self.assertTrue(said.splitlines()[-1].startswith("trireme: "), said)
            shutil.rmtree(self.dir / "run", ignore_errors=True)   # what the crash report made

    def test_override_is_taken_told_and_kept(self):
        self.cut(7)
        old = (self.dir / "cut/config.toml").read_text()
        got = self.resumed("--optim.lr", 0.01, "--data.eval_batch", 99, "--override", "--run.max_steps", 9, name="cut")
        self.assertIn("override  optim.lr is 0.01, but the run has 0.002\n", got.stderr)
        self.assertIn("override  data.eval_batch is 99, but the run has 500\n", got.stderr)
        self.assertEqual(self.settings("cut")["optim"]["lr"], 0.01)
        self.assertEqual(tomllib.loads(self.manifest("cut")["config"]), self.settings("cut"))
        self.assertEqual((self.dir / "cut/config.until_00000007.toml").read_text(), old)
        self.refused(run("train", "--resume", "--run.dir", self.dir / "cut", "--optim.lr", 0.002), "optim.lr", 0.002, 0.01)
        self.resumed(name="cut")
        rates = {line["lr"] for line in self.metrics("cut").values() if "lr" in line}
        self.assertEqual(rates, {0.01})
        self.assertNotIn("another order", got.stderr)
        self.cut(7, "order")
        got = self.resumed("--seed", 2, "--override", "--run.max_steps", 8, name="order")
        self.assertIn("epoch 1 continues at sample 42 of other data or in another order", got.stderr)
        got = self.resumed("--data.name", "mnist", "--override", "--epochs", 3, "--data.limit", 12, name="cut")
        line = re.match(r"test accuracy: .* of 10000.*, loss [\d.]+", got.stdout)[0]
        got = run("eval", self.dir / "cut")
        self.assertIn(line, got.stdout)
        self.assertIn("mnist, 10000 test samples", got.stdout)

    def test_another_batch_goes_on_at_the_right_sample(self):
        """Each sample of the epoch counts once: with lr 0 loss and accuracy of the epoch are those of the uncut run."""
        words = ["--optim.lr", 0, "--dtype", "f64"]
        self.trained(*self.words, *words, name="whole")
        whole = self.metrics("whole")
        for first, batch in (7, 9), (5, 40), (11, 1), (3, 100):
            self.cut(first, f"cut{first}", *words)
            got = self.resumed("--data.batch", batch, "--override", name=f"cut{first}")
            self.assertIn(f"epoch 1, sample {6 * first}", got.stderr)
            found = [line for line in self.metrics(f"cut{first}").values() if line["kind"] == "eval"]
            self.assertEqual([line["step"] for line in found], [first + -(-(70 - 6 * first) // batch), first + -(-(70 - 6 * first) // batch) + -(-70 // batch)])
            for line, other in zip(found, [whole["eval", 12], whole["eval", 24]]):
                self.assertEqual(line["train_top1"], other["train_top1"])
                self.assertTrue(math.isclose(line["train_loss"], other["train_loss"], rel_tol=1e-11))
        self.cut(7, "less", *words)
        got = self.resumed("--data.limit", 42, "--override", name="less")   # 42 samples are done: the epoch is over
        self.assertNotIn(" 0 images/s", got.stderr)
        self.assertNotIn("epoch 1/2:", got.stderr)
        self.assertIn("epoch 2/2: train loss 2", got.stderr)

    def test_checkpoints_that_count_batches_only(self):
        """As they were written before there were counts of samples: the place is right, and that sums are missing is told."""
        self.cut(7)
        self.trained(*self.words, name="whole")
        self.edit_manifest("cut", lambda m: (m.pop("samples"), [m["metrics"].pop(k) for k in list(m["metrics"]) if k.startswith("epoch_")]))
        got = self.resumed(name="cut")
        self.assertIn("no sums of epoch 1", got.stderr)
        self.assertIn("epoch 1, sample 42", got.stderr)
        self.assertEqual(self.digests("cut"), self.digests("whole"))
        self.assertEqual(self.metrics("cut")["eval", 24], self.metrics("whole")["eval", 24])

    def test_a_pipeline_is_cut_where_it_was(self):
        """Costs are measured at each start, so the cut would be another one by chance; here it is another on purpose."""
        words = ["--mesh", "pipe=2", "--strategy", "pipeline(micro=2, partition=auto)"]
        self.cut(3, "cut", *words)
        first = self.manifest("cut")["partition"]
        other = "3" if first.startswith("1") else "1"   # a layer's name
        self.edit_manifest("cut", lambda m: m.update(partition=other))
        self.resumed("--run.max_steps", 5, name="cut")
        self.assertEqual(re.match(r"\w+", self.manifest("cut")["partition"])[0], other)
        self.resumed("--mesh", "", "--strategy", "", "--run.max_steps", 6, name="cut")
        self.assertNotIn("partition", self.manifest("cut"))

    def test_a_run_from_before_settings_were_renamed(self):
        """Its config.toml and its checkpoints have the old names (commit 390ff92); everybody else is told the new ones."""
        renamed = {"optim.decay": "optim.weight_decay", "optim.lr_per": "optim.lr_base_size", "optim.step_factor": "optim.gamma", "repeatable": "deterministic"}
        last = lambda name: name.rsplit(".", 1)[-1]
        self.trained(*self.words, "--optim.weight_decay", 0.01, name="whole")
        self.cut(7, "cut", "--optim.weight_decay", 0.01)
        def aged(text):
            for old, new in renamed.items():
                text, found = re.subn(f"(?m)^{last(new)} = ", f"{last(old)} = ", text)
                self.assertEqual(found, 1, new)
            for new in "parallel.virtual", "parallel.cluster", "parallel.plugin", "parallel.bind", "run.replay", "run.time_limit", "run.on_nan", "run.finite_steps", "run.spike", "run.digest_steps", "run.log_format", "run.profile", "run.predict", "run.mllog", "checkpoint.minutes", "checkpoint.keep_every", "checkpoint.best", "checkpoint.async", "data.tokenizer", "data.context", "data.windows", "data.separator", "data.test_split", "data.validation_split", "data.task", "data.size", "data.crop", "data.samples", "data.test_samples", "data.phantoms", "data.angles", "data.missing", "data.noise", "data.mean", "data.std", "optim.beta1", "optim.beta2", "optim.min_lr", "optim.warmup_steps", "optim.z_loss", "recompute_offload":   # that commit had none of them
                text, found = re.subn(f"(?m)^{last(new)} = .*\n", "", text)
                self.assertEqual(found, 1, new)
            return re.sub(r"\[arch\]\n(?:\w+ = .*\n)+\n", "", text)
        config = self.dir / "cut/config.toml"
        config.write_text(aged(config.read_text()))
        self.assertEqual(tomllib.loads(config.read_text()).keys(), tomllib.loads(settings_of_390ff92).keys())
        for section, keys in tomllib.loads(settings_of_390ff92).items():
            if isinstance(keys, dict):
                self.assertEqual(keys.keys(), tomllib.loads(config.read_text())[section].keys())
        self.edit_manifest("cut", lambda m: m.update(config=aged(m["config"])))
        self.assertEqual(run("eval", self.dir / "cut").returncode, 0)
        self.assertEqual(run("export", self.dir / "cut", "--onnx", self.dir / "m.onnx").returncode, 0)
        self.refused(run("train", "--resume", "--run.dir", self.dir / "cut", "--optim.weight_decay", 0.5), "optim.weight_decay", 0.5, 0.01)
        self.resumed(name="cut")
        self.assertEqual(self.digests("cut"), self.digests("whole"))
        self.assertIn("weight_decay = 0.01\n", config.read_text())   # today's names from now on
        config.unlink()   # then an old checkpoint is asked
        self.edit_manifest("cut", lambda m: m.update(config=aged(m["config"])))
        self.resumed(name="cut")
        for old, new in renamed.items():
            value = "true" if old == "repeatable" else 1
            self.refused(run("train", "mlp", "--" + old, value), old, new)
            (self.dir / "c.toml").write_text((f"[{old.split('.')[0]}]\n" if "." in old else "\n") + f"{last(old)} = {value}\n")
            self.refused(run("train", "--config", self.dir / "c.toml"), "c.toml:2", old, new)

    def test_without_config_toml_the_checkpoint_tells(self):
        self.cut(7)
        (self.dir / "cut/config.toml").unlink()
        got = self.resumed(name="cut")
        self.assertIn("config.toml is missing", got.stderr)
        self.trained(*self.words, name="whole")
        self.assertEqual(self.digests("cut"), self.digests("whole"))
        self.assertEqual(self.settings("cut"), {**self.settings("whole"), "run": self.settings("cut")["run"]})
        self.refused(run("train", "--resume"), "--run.dir", status=2)
        self.refused(run("train", "--resume", "--run.dir", self.dir / "nothing"), "nothing", kind="file")

    def test_the_final_line_is_of_the_last_step(self):
        line = self.trained(*self.words, "--run.max_steps", 17, name="cut").stdout.splitlines()[0]   # evaluated after 12 steps, too
        self.assertIn(re.match(r"test accuracy: .*, loss [\d.]+", line)[0], run("eval", self.dir / "cut").stdout)

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_processes(self):
        self.trained(*self.words, "--mesh", "tensor=2", "--strategy", "tensor", name="whole", ranks=2)
        self.trained(*self.words, "--mesh", "tensor=2", "--strategy", "tensor", "--run.max_steps", 7, name="cut", ranks=2)
        got = run("train", "--resume", "--run.dir", self.dir / "cut", "--optim.lr", 1, ranks=2)
        self.assertEqual(got.stderr.count("optim.lr is 1.0, but the run has 0.002"), 1)
        self.resumed(name="cut", ranks=2)
        self.assertEqual(self.metrics("cut"), self.metrics("whole"))
        self.assertEqual(self.digests("cut"), self.digests("whole"))

    def test_measured_algorithms_are_kept_with_the_run(self):
        self.cut(5, "cut", "--ranks", 3, "--allreduce", "auto")
        kept = lambda name: (self.dir / name / "algorithms.txt")
        copied = lambda name: shutil.copytree(self.dir / "cut", self.dir / name)
        table = kept("cut").read_text()
        self.assertRegex(table, r"\A(all_reduce 3 [0-9]+ [a-z_]+\n)+\Z")
        # A run that is resumed reads it, however often, and takes what stands there: three ranks' sums show their order.
        for name, stops in ("once", []), ("often", [7, 9]):
            copied(name)
            for stop in stops:
                self.resumed("--run.max_steps", stop, name=name)
            self.assertNotIn("algorithms", self.resumed(name=name).stderr)
            self.assertEqual(kept(name).read_text(), table)
        self.assertEqual(self.digests("once"), self.digests("often"))
        for algorithm in "default", "ring":
            copied(f"named-{algorithm}"), copied(algorithm)
            kept(algorithm).write_text(f"all_reduce 3 1024 {algorithm}\n")
            self.resumed(name=algorithm)
            self.resumed("--allreduce", algorithm, name=f"named-{algorithm}")
            self.assertEqual(self.digests(algorithm), self.digests(f"named-{algorithm}"))
        self.assertNotEqual(self.digests("default"), self.digests("ring"))
        # Without one, and on other ranks, processes too, it is measured anew; one that is broken is refused.
        kept("once").unlink()
        got = self.resumed("--override", "--epochs", 3, "--run.max_steps", 25, name="once")
        self.assertIn("algorithms.txt is missing; all-reduce algorithms are measured again", got.stderr)
        got = self.resumed("--override", "--epochs", 3, "--run.max_steps", 26, name="once", ranks=2)
        self.assertIn("algorithms.txt is of 3 ranks; all-reduce algorithms are measured again on 2", got.stderr)
        self.assertRegex(kept("once").read_text(), r"\A(all_reduce 2 [0-9]+ [a-z_]+\n)+\Z")
        self.assertNotIn("measured again", self.resumed("--epochs", 3, name="once", ranks=2).stderr)
        for text in "all_reduce 3 1k ring\n", "all_reduce 3 1024 rong\n", "", "\x00\xff\n":
            kept("cut").write_text(text)
            self.refused(run("train", "--resume", "--run.dir", self.dir / "cut"), "algorithms.txt", kind="data")
        self.refused(run("train", "--resume", "--run.dir", self.dir / "cut", ranks=2), "algorithms.txt", kind="data")


class Inputs(Runs):
    """What can be wrong with what a run is given: one clear line each."""
    words = ["mlp", "--data.name", "synthetic", "--data.synthetic_size", 20, "--data.batch", 10, "--epochs", 1, "--parallel.threads", 1]

    def test_settings_files_that_nest_too_deeply(self):
        key, quoted = ".".join(["a"] * 20000), ".".join(['"a"'] * 20000)
        for text in f"{key} = 1\n", f"[{key}]\n", f"\nx = {{{key} = 1}}\n", f"\n{quoted} = 1\n", f'y = ["""q"""", {{{key} = 1}}]\n':
            (self.dir / "c.toml").write_text(text)
            line = self.refused(run("train", "--config", self.dir / "c.toml", "--print-config"), "c.toml:", 32)
            self.assertLess(len(line), 300)
        dots = "." * 100
        (self.dir / "c.toml").write_text(f"""# {dots}\n[run]\ndir = "\\"{dots}"   # {dots}\n[data]\nroot = '{dots}'\nshards = \"\"\"\n{dots}\"\"\"\n[optim]\nmilestones = [{", ".join(["1.5"] * 50)}]\n""")
        got = run("train", "--config", self.dir / "c.toml", "--print-config")
        self.assertEqual((got.returncode, got.stdout.count(dots)), (0, 3), got.stderr)

    def test_values_that_cannot_be(self):
        for key, value, says in (("optim.lr", "inf", "optim.lr"), ("optim.weight_decay", "nan", "optim.weight_decay"), ("run.log_seconds", "-1", "run.log_seconds"),
                                 ("data.batch", 2**62, "4611686018427387904"), ("data.eval_batch", 2**62, "data.eval_batch"),
                                 ("data.workers", 1000000, "data.workers"), ("parallel.ranks", 1000000, "parallel.ranks"),
                                 ("parallel.threads", 65537, "parallel.threads"),
                                 ("optim.warmup_epochs", "-1", "optim.warmup_epochs"), ("optim.milestones", "1,-1", "optim.milestones"),
                                 ("optim.milestones", "1,inf", "optim.milestones"), ("run.dir", b"\xff\xfe", "run.dir"),
                                 ("strategy", "[" * 9000, ("parallel.strategy", "9000")), ("data.batch", "9" * 9000, "9000 ")):
            got = subprocess.run([pathlib.Path(trireme).absolute(), "train", "mlp", "--" + key, value if isinstance(value, bytes) else str(value)], capture_output=True, text=True, cwd=self.dir)
            line = self.refused(got, *((says,) if isinstance(says, str) else says))
            self.assertLess(len(line), 300)
        for words, says in ((["--" + "x" * 9000, "1"], "'xxx"), (["mlp", "y" * 9000], "'yyy"),
                            (["imagenet_resnet50"], "--config imagenet_resnet50"), (["--override"], "run.override")):
            self.assertLess(len(self.refused(run("train", *words), says)), 400)
        for command in ("predict", "--weights", "w", "x.png"), ("export", "--weights", "w", "--onnx", "x.onnx"):
            self.refused(run(*command, "--model", "imagenet_resnet50"), "--config imagenet_resnet50")
        self.assertEqual(list(self.dir.iterdir()), [])

    def test_each_optimizer_is_the_one_that_was_asked_for(self):
        found = {}
        for decay in 0, 0.1:
            for name in "sgd", "adagrad", "adadelta", "adam", "adamw", "lars":
                self.trained(*self.words, "--optim.name", name, "--optim.weight_decay", decay, name=f"{name}{decay}")
                found[name, decay] = self.digests(f"{name}{decay}")[1]
        self.assertEqual(found.pop(("adamw", 0)), found["adam", 0])   # they differ by how they decay
        self.assertEqual(len(set(found.values())), 11)

    def test_output_that_does_not_arrive(self):
        with open("/dev/full", "w") as full:
            for words in ["info"], ["--help"], ["train", "--print-config"], ["train", *self.words, "--run.dir", self.dir / "run"]:
                got = subprocess.run([trireme, *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True)
                self.assertEqual(got.returncode, 66, words)
                self.assertRegex(got.stderr.splitlines()[-1], "trireme: standard output: .*No space left on device")
        read, write = os.pipe()
        os.close(read)   # a reader that has gone, as of train | head -1
        got = subprocess.run([trireme, "train", *map(str, self.words), "--run.dir", self.dir / "gone"], stdout=write, stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
        os.close(write)
        self.assertEqual(got.returncode, 66)
        self.assertIn("standard output", got.stderr)
        self.assertTrue(self.digests("gone"))

    def test_a_finished_run_has_nothing_left(self):
        words = [*self.words, "--optim.schedule", "constant"]
        self.trained(*words, "--epochs", 3, name="at_once")
        self.trained(*words, "--epochs", 2)
        before = self.digests()
        for epochs in 2, 1:   # as many as it has, and fewer
            got = run("train", "--run.dir", self.dir / "run", "--resume", "--epochs", epochs)
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertIn("after 4 steps", got.stdout)
            self.assertIn("no step was left", got.stdout)
            self.assertEqual((self.digests(), len(self.metrics())), (before, 2))
        got = run("train", "--run.dir", self.dir / "run", "--resume", "--epochs", 3)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual((self.digests(), len(self.metrics())), (self.digests("at_once"), 3))

    def test_more_ranks_than_samples(self):
        for samples, ranks in (1, 2), (3, 4):
            got = run("train", *self.words, "--data.synthetic_size", samples, "--ranks", ranks, "--run.dir", self.dir / "run", "--run.predict", "false")
            self.refused(got, f"{ranks} ranks", f"{samples} samples", f"at most {samples}")

    def test_metrics_that_are_removed_are_made_anew(self):
        with open(self.dir / "said", "w") as said:
            words = [*self.words, "--data.synthetic_size", 20000, "--epochs", 1000000, "--run.dir", self.dir / "run"]
            process = subprocess.Popen([trireme, "train", *map(str, words)], stderr=said)
            try:
                def await_lines():
                    while not (metrics := self.dir / "run/metrics.jsonl").exists() or metrics.stat().st_size == 0:
                        self.assertIsNone(process.poll(), (self.dir / "said").read_text()[-500:])
                        time.sleep(0.02)
                await_lines()
                (self.dir / "run/metrics.jsonl").unlink()
                await_lines()
            finally:
                process.kill()
                process.wait()
        self.assertIn("run/metrics.jsonl", (self.dir / "said").read_text())

    def test_metrics_follow_no_link(self):
        (self.dir / "run").mkdir()
        (self.dir / "run/metrics.jsonl").symlink_to(self.dir / "target")
        self.refused(run("train", *self.words, "--run.dir", self.dir / "run"), "metrics.jsonl", kind="file")
        self.assertFalse((self.dir / "target").exists())

    def test_predict(self):
        self.trained(*self.words)
        def chunk(kind, body):
            return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        def rgb(name, pixel, width=40, height=30):
            rows = b"".join(b"\0" + pixel * width for _ in range(height))
            (self.dir / name).write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
                                          chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
            return self.dir / name
        predict = ["predict", "--run", self.dir / "run"]
        sea, fog, night = rgb("sea.png", b"\x10\x20\xf0"), rgb("fog.png", b"\x90\x90\x90"), rgb("night.png", b"\x05\x05\x05", 30, 40)
        self.refused(run(*predict, sea), "sea.png", "28 x 28", "--gray", kind="data")
        self.refused(run(*predict, rgb("wide.png", b"\x90\x90\x90", 57, 28)), "wide.png", "28 x 57", "28 x 28", kind="data")
        self.refused(run(*predict, rgb("high.png", b"\x90\x90\x90", 28, 57)), "high.png", "57 x 28", kind="data")
        self.assertEqual(run(*predict, rgb("twice.png", b"\x90\x90\x90", 56, 28)).returncode, 0)
        got = run(*predict, "--grey", sea, fog, night)
        self.assertEqual((got.returncode, [line.split("\t")[0] for line in got.stdout.splitlines()]), (0, [str(sea), str(fog), str(night)]), got.stderr)
        self.assertRegex(got.stderr, r"\Apredict: resized to 28 x 28, grey, / 255, minus mean [\d.]+, over std [\d.]+\n\Z")
        self.assertIn(", grey, light and dark swapped, / 255", run(*predict, "--invert", fog).stderr)
        row = run(*predict, fog, "--topk", 50).stdout.split("\t")
        self.assertEqual(len(row), 21)

        def answers(*words):
            got = run(*predict, "--json", *words, fog, night)
            self.assertEqual(got.returncode, 0, got.stderr)
            found = [json.loads(line) for line in got.stdout.splitlines()]
            self.assertEqual([one["image"] for one in found], [str(fog), str(night)])
            return found
        likely, logits = answers("--topk", 3), answers("--logits")
        self.assertNotEqual(likely[0]["probabilities"], likely[1]["probabilities"])
        for one, other in zip(likely, logits):
            p = one["probabilities"]
            self.assertEqual(len(p), 10)
            self.assertAlmostEqual(sum(p), 1, 5)
            best = sorted(range(10), key=lambda c: -p[c])[:3]
            self.assertEqual(one["top"], [{"class": c, "probability": p[c]} for c in best])
            self.assertEqual(other["top"], [{"class": best[0], "logit": other["logits"][best[0]]}])
            e = [math.exp(x - max(other["logits"])) for x in other["logits"]]
            for x, y in zip(e, p):
                self.assertAlmostEqual(x / sum(e), y, 5)
        self.assertEqual([row[2], row[4].strip()], [f"{x['probability']:.4f}" for x in likely[0]["top"][:2]])
        self.assertEqual(run(*predict, "--logits", fog).stdout, "{}\t{class}\t{logit:.6g}\n".format(fog, **logits[0]["top"][0]))

        npy = self.dir / "answers.npy"
        for words, expected in (((), [one["probabilities"] for one in likely]), (("--logits",), [one["logits"] for one in logits])):
            got = run(*predict, "--npy", npy, *words, fog, night)
            self.assertEqual((got.returncode, got.stdout), (0, ""), got.stderr)
            with self.subTest("numpy"):
                self.assertEqual(loaded(npy), ["float32", expected])
        npy.unlink()
        self.refused(run(*predict, "--npy", "/proc/answers.npy", fog), "/proc/answers.npy", kind="file")
        self.refused(run(*predict, "--npy", npy, self.dir / "none.png"), "none.png", kind="file")
        self.assertFalse(npy.exists())
        for words, says in ((["--topk", 0], "--topk"), (["--npy", npy, "--json"], "--json"),
                            (["--npy", npy, "--topk", 2], "--topk"), (["--model", "resnet18"], "--model")):
            self.refused(run(*predict, fog, *words), says)
        self.refused(run("predict", "--model", "resnet18", fog), "--run", "--weights")
        names = [f"n{i}" for i in range(10)]
        for coding, end in (("utf-8", "\n"), ("utf-8-sig", "\r\n")):   # the second as Windows' editors write it
            (self.dir / "names").write_text(end.join(names) + end, encoding=coding, newline="")
            got = run(*predict, fog, "--labels", self.dir / "names", "--topk", 10)
            self.assertEqual(sorted(got.stdout.split("\t")[1::2]), names, got.stderr)
        (self.dir / "names").write_text("one\ntwo\n")
        self.refused(run(*predict, fog, "--labels", self.dir / "names"), 2, 10, kind="data")
        self.refused(run(*predict, fog, "--labels", self.dir), self.dir, kind="file")

        broken = self.dir / "broken.safetensors"
        broken.write_bytes(next((self.dir / "run/checkpoints").glob("step_*/model.safetensors")).read_bytes()[:-4] + struct.pack("<f", math.nan))
        self.refused(run(*predict, fog, "--json", "--weights", broken), "fog.png", kind="numerics")

        # Weights that others wrote are told by what they hold.
        entry = lambda name: b"PK\3\4" + struct.pack("<5H3I2H", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0) + name
        for name, holds, says in (("a.pt", entry(b"a/data.pkl"), "trireme import {0}/a.pt --out"),
                                  ("old.bin", bytes.fromhex("80028a0a6cfc9c46f920"), "trireme import {0}/old.bin --out"),
                                  ("b.npz", entry(b"w.npy"), "trireme import {0}/b.npz --out"),
                                  ("c.npy", b"\x93NUMPY\1\0v\0{", "trireme import {0}/c.npy --out"),
                                  ("d.safetensors", entry(b"a/data.pkl"), "trireme import {0}/d.pt --out")):
            (self.dir / name).write_bytes(holds + bytes(200))
            weights = "--weights", self.dir / name
            for words in (predict + [fog], ["train", "mlp", "--run.dir", self.dir / "other", *self.words[1:]], ["eval", self.dir / "run"],
                          ["export", self.dir / "run", "--onnx", self.dir / "m.onnx"])[:4 if name == "a.pt" else 1]:
                self.refused(run(*words, *weights), says.format(self.dir), kind="data")


@unittest.skipIf(mpiexec == "none", "no MPI")
class Ranks(Runs):
    def together(self, first, second):
        """Two ranks, each with a command line of its own."""
        one, two = ([trireme, *map(str, words)] for words in (first, second))
        start = time.time()
        got = subprocess.run([mpiexec, "-n", "1", *one, ":", "-n", "1", *two], capture_output=True, text=True, timeout=60)
        self.assertLess(time.time() - start, 30)
        self.assertNotEqual(got.returncode, 0, got.stderr)
        said = [line for line in got.stderr.splitlines() if line.startswith("trireme: ")]
        self.assertEqual(len(said), 1, got.stderr)
        return said[0]

    def test_ranks_with_other_settings_are_refused(self):
        words = ["train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", 60, "--data.batch", 20, "--epochs", 2, "--run.dir", self.dir / "run"]
        for key, value, says in (("optim.lr", 0.5, ("optim.lr = 0.002", "optim.lr = 0.5")), ("data.batch", 32, ("data.batch = 20", "data.batch = 32")),
                                 ("epochs", 3, ("epochs = 2", "epochs = 3")), ("data.limit", 40, ("data.limit = 0", "data.limit = 40")),
                                 ("data.name", "mnist", ('data.name = "synthetic"', 'data.name = "mnist"')), ("mesh", "pipe=2", ("parallel.mesh",)),
                                 ("allreduce", "ring", ("parallel.allreduce",)), ("checkpoint.steps", 2, ("checkpoint.steps",))):
            line = self.together(words, [*words, "--" + key, value])
            for text in says:
                self.assertIn(text, line)
        self.assertFalse((self.dir / "run").exists())
        for folder, count in ("a", 60), ("b", 50):   # equal settings, other data under one name
            (self.dir / folder / "mnist").mkdir(parents=True)
            for kind in "train", "t10k":
                (self.dir / folder / f"mnist/{kind}-images-idx3-ubyte").write_bytes(idx(3, (count, 28, 28), bytes(count * 784)))
                (self.dir / folder / f"mnist/{kind}-labels-idx1-ubyte").write_bytes(idx(1, (count,), bytes(count)))
        one, two = (["train", "mlp", "--data.batch", 20, "--epochs", 1, "--data.root", self.dir / folder / "mnist", "--run.dir", self.dir / "run"] for folder in "ab")
        line = self.together(one, two)
        self.assertIn("60 samples", line)
        self.assertIn("50 samples", line)

    def test_asynchronous_runs_are_repeated_by_their_arrivals(self):
        words = ["train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", 120, "--data.batch", 20, "--epochs", 2, "--strategy", "parameter_server(mode=async)",
                 "--parallel.threads", 1, "--run.progress", "off", *unmeasured]
        first = self.dir / "first"
        got = subprocess.run([mpiexec, "-n", "4", trireme, *map(str, words), "--run.dir", str(first)], capture_output=True, text=True, timeout=120)
        self.assertEqual(got.returncode, 0, got.stderr)

        def weights(folder):
            return [f.read_bytes() for f in sorted((folder / "checkpoints/step_00000012").glob("model*.safetensors"))]
        self.assertTrue(weights(first))
        for name, where in ("threads", ["--ranks", 4]), ("virtual", ["--virtual", 4]):
            got = run(*words, *where, "--run.dir", self.dir / name, "--run.replay", first)
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertEqual(weights(self.dir / name), weights(first))
        for words, says, status in ((["--ranks", 4, "--run.replay", self.dir / "none"], str(self.dir / "none"), 66),
                            (["--ranks", 3, "--run.replay", first], "layout", 2),
                            (["--ranks", 4, "--checkpoint.steps", 5, "--run.replay", first], "checkpoint.steps", 2), (["--strategy", "data_parallel", "--ranks", 2, "--run.replay", first], "replay", 2)):
            got = run("train", "mlp", "--data.name", "synthetic", "--data.batch", 20, "--strategy", "parameter_server(mode=async)", *words, "--run.dir", self.dir / "refused")
            self.assertEqual((got.returncode, len(got.stderr.strip().splitlines())), (status, 1), got.stderr)
            self.assertIn(says, got.stderr)

    def test_asynchronous_gossip_trains_to_its_end_on_every_transport(self):
        words = ["train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", 256, "--data.batch", 32, "--epochs", 2, "--run.progress", "lines", *unmeasured]
        for graph, ranks in ("ring", 4), ("random", 3):
            strategy = ["--strategy", f"gossip(mode=async, graph={graph})"]
            for name, where in ("threads", ["--ranks", ranks]), ("virtual", ["--virtual", ranks]), ("mpi", None):
                folder = self.dir / f"{name}_{graph}"
                line = [trireme, *words, *strategy, *(where or []), "--run.dir", folder]
                if where is None:
                    line = [mpiexec, "-n", ranks, *line]
                got = subprocess.run([str(w) for w in line], capture_output=True, text=True, timeout=120, env={**os.environ, "TRIREME_TIMEOUT": "60"})
                self.assertEqual(got.returncode, 0, got.stderr)
                self.assertIn("after 16 steps", got.stdout)
                self.assertIn("evaluated and saved: the mean of all workers' weights", got.stdout + got.stderr)
        got = run("plan", "show", "mlp", "--ranks", 4, "--strategy", "gossip(mode=async)", "--measure")
        self.assertEqual(got.returncode, 0, got.stderr)

    def test_ranks_that_meet_by_messages_stop_where_they_meet(self):
        words = ["train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", 70, "--data.batch", 6, "--epochs", 3, "--run.progress", "lines", "--ranks", 4, *unmeasured]
        for strategy, rank in ("parameter_server(mode=async)", 0), ("parameter_server(mode=async)", 3), ("parameter_server", 3), ("gossip(mode=async)", 1):
            folder = self.dir / f"{strategy[:6]}{len(strategy)}{rank}"
            got = run(*words, "--strategy", strategy, "--run.fault", f"term:{rank}:3", "--run.dir", folder)
            self.assertEqual(got.returncode, 85, got.stderr)
            self.assertIn("preempted after step 12; the state is saved", got.stderr)
            got = run("train", "--resume", "--run.dir", folder, "--ranks", 4)
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertIn("after 36 steps", got.stdout)
        got = run(*words, "--strategy", "parameter_server(mode=async)", "--run.fault", "throw:3:3", "--run.dir", self.dir / "thrown")
        self.assertEqual((got.returncode, len(got.stderr.strip().splitlines()[-1:])), (71, 1), got.stderr)
        self.assertIn("rank 3: run.fault", got.stderr)

    def test_what_a_rank_has_for_itself_may_differ(self):
        words = ["train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", 60, "--data.batch", 20, "--epochs", 1, "--run.dir", self.dir / "run"]
        got = subprocess.run([mpiexec, "-n", "1", trireme, *map(str, words), ":", "-n", "1", trireme, *map(str, words), "--data.workers", "0", "--parallel.threads", "1"],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(got.returncode, 0, got.stderr)

    def test_ranks_are_bound_to_cores_of_their_own(self):
        allowed = sorted(os.sched_getaffinity(0))
        words = ["train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", 60, "--data.batch", 20, "--epochs", 1, *unmeasured]
        bound = lambda folder: [re.findall(r"bound     rank \d to CPUs? ([\d, -]+) of", (folder / f"logs/rank_{r}.log").read_text()) for r in range(2)]
        threads, processes, numa = self.dir / "threads", self.dir / "processes", self.dir / "numa"
        got = run(*words, "--ranks", 2, "--parallel.bind", "core", "--run.dir", threads)
        self.assertEqual(got.returncode, 0, got.stderr)
        got = subprocess.run([mpiexec, "-n", "2", trireme, *map(str, words), "--parallel.bind", "core", "--run.dir", processes], capture_output=True, text=True, timeout=60)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(bound(threads), bound(processes))
        self.assertEqual([len(lines) for lines in bound(threads)], [1, 1])
        if len(allowed) == 2:
            self.assertEqual(bound(threads), [[str(cpu)] for cpu in allowed])
        elif len(allowed) > 2:
            self.assertNotEqual(*bound(threads))
        # Processes that the launcher has bound do not divide what is theirs.
        line = [f"taskset -c {allowed[-1 - r]} {trireme} {' '.join(map(str, words))} --parallel.bind numa --run.dir {numa}" for r in range(2 if len(allowed) > 1 else 0)]
        if line:
            got = subprocess.run([mpiexec, "-n", "1", *line[0].split(), ":", "-n", "1", *line[1].split()], capture_output=True, text=True, timeout=60)
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertEqual(bound(numa), [[str(allowed[-1])], [str(allowed[-2])]])
        self.refused(run(*words, "--parallel.bind", "socket"), "parallel.bind", "socket", "none, numa, core")


if __name__ == "__main__":
    unittests.main(sys.argv[4:])
