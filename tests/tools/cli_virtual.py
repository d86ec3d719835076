"""Training in virtual time: ranks as threads of one process under a simulated clock.
  cli_virtual.py TRIREME MPIEXEC|none DATA_DIR [TEST ...]
TRIREME_TEST_ALL in the environment: 64 workers on MNIST, too.
"""
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import unittest

import unittests
from cli import Case, mpiexec, run, trireme, unmeasured
from cli_runs import timings

slow = """name = "two slow nodes"
flops = 1e9
jitter = 0.1
[[nodes]]
count = 2
devices = 2
[links.inside]
latency = 1e-4
bandwidth = 1e8
[links.between]
latency = 1e-3
bandwidth = 1e7
"""
uneven = slow.replace("count = 2\ndevices = 2\n", "devices = 2\n[[nodes]]\ncount = 2\ndevices = 1\nspeed = 0.5\n")


class Virtual(Case):
    """Runs have a folder each, in which they are named alike: settings that name paths are equal, too."""
    words = ["mlp", "--data.name", "synthetic", "--data.synthetic_size", 70, "--data.batch", 6, "--epochs", 2, "--optim.lr", 0.002, "--parallel.threads", 1,
             "--checkpoint.keep", 20]   # 12 steps an epoch; the last has 4 samples

    def train(self, name, *words, status=0):
        folder = self.dir / name
        folder.mkdir(exist_ok=True)
        (folder / "slow.toml").write_text(slow)
        (folder / "uneven.toml").write_text(uneven)
        got = subprocess.run([trireme, "train", *map(str, words), "--run.dir", "run"], capture_output=True, text=True, timeout=400, cwd=folder)
        self.assertEqual(got.returncode, status, got.stderr[-2000:])
        return got

    def tree(self, name, below="run"):
        root = self.dir / name / below
        return {str(p.relative_to(root)): p.is_file() and hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(root.rglob("*"))}

    def lines(self, name):
        return [json.loads(line) for line in (self.dir / name / "run/metrics.jsonl").read_text().splitlines()]

    def newest(self, name):
        return sorted((self.dir / name / "run/checkpoints").glob("step_*"))[-1]

    def weights(self, name):
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(self.newest(name).glob("[mo]*.safetensors"))}

    def test_two_runs_write_the_same_files(self):
        for words in (["--virtual", 5], ["--virtual", 4, "--cluster", "slow.toml", "--strategy", "data_parallel | zero(2)", "--allreduce", "ring"],
                      ["--virtual", 4, "--mesh", "pipe=2,data=2", "--strategy", "pipeline(micro=2, partition=even) | data_parallel"],
                      ["--virtual", 3, "--mesh", "pipe=3", "--strategy", "pipeline(schedule=2bw, micro=3)", "--allreduce", "tree"],
                      ["--virtual", 2, "--mesh", "tensor=2", "--strategy", "tensor"]):
            with self.subTest(words=words):
                names = [f"{side}{len(words)}{words[1]}" for side in "ab"]
                one, two = (self.train(name, *self.words, *words, "--checkpoint.steps", 5, "--tensorboard") for name in names)
                self.assertEqual(one.stdout, two.stdout)
                self.assertEqual(self.tree(names[0]), self.tree(names[1]))
                files = " ".join(self.tree(names[0]))
                for name in "config.toml", "metrics.jsonl", "metrics.csv", "cluster.toml", "events.out.tfevents.0000000000.virtual", "step_00000005", "step_00000024":
                    self.assertIn(name, files)

    def test_all_that_is_told_is_simulated_time(self):
        said = self.train("run", *self.words, "--virtual", 4, "--cluster", "slow.toml", "--run.log_seconds", 0)
        self.assertIn("time      virtual: 4 ranks on cluster two slow nodes, simulated seconds\n", said.stderr)
        self.assertRegex(said.stderr, r"epoch 1/2: 5/12, loss [\d.]+, \d+ images per simulated second, [\d.]+ simulated seconds\n")
        self.assertRegex(said.stderr, r"epoch 2/2: train loss .*, \d+ images per simulated second, [\d.]+ simulated seconds so far\n")
        self.assertRegex(said.stdout, r"after 24 steps in [\d.]+ simulated seconds; [\d.]+ MB sent by all ranks\n")
        for text in " images/s", "waiting for data", " in 0.", "data 0":
            self.assertNotIn(text, said.stderr)
        lines = self.lines("run")
        self.assertEqual([line["step"] for line in lines], [12, 20, 24])
        times = [line["simulated_seconds"] for line in lines]
        self.assertEqual(times, sorted(set(times)))
        self.assertGreater(times[0], 12 * 2 * 3 * 1e-3)   # a step's gradients cross the slow link at least
        for line in lines:
            self.assertGreater(line["images_per_simulated_second"], 0)
            self.assertFalse(timings & line.keys())
        head = (self.dir / "run/run/metrics.csv").read_text().splitlines()[0].split(",")
        self.assertEqual(head[:4], ["kind", "epoch", "step", "simulated_seconds"])
        self.assertFalse(timings & set(head))
        self.train("real", *self.words)
        head = (self.dir / "real/run/metrics.csv").read_text()
        self.assertNotIn("simulated", head + said.stdout[:0] + (self.dir / "real/run/metrics.jsonl").read_text())

    def test_times_are_those_that_simulate_tells(self):
        """Of the rows that a rank has in a micro-batch, whatever the strategy; links take next to nothing. Asynchronous pipelines by the steps between two
        lengths: a run also ends what is in flight behind its last step."""
        free = "flops = 1e9\n[[nodes]]\ncount = 8\ndevices = 1\n[links.between]\nlatency = 0\nbandwidth = 1e12\n"
        cases = [("lenet5", "data=1", "serial"), ("lenet5", "data=2", "accumulate(micro=4) | data_parallel"), ("mlp", "tensor=2", "tensor"), ("lenet5", "h=2", "spatial"),
                 ("lenet5", "data=4", "one_weird_trick"), ("mlp", "data=4", "gossip(graph=ring)"), ("mlp", "data=4", "zero(1)"), ("lenet5", "data=6", "parameter_server(servers=2)"),
                 ("lenet5", "data=6", "parameter_server(backup=2)"), ("mlp", "data=5", "parameter_server(servers=2, backup=1)"), ("lenet5", "data=4", "parameter_server(mode=async)"),
                 ("lenet5", "data=2,pipe=2", "pipeline(micro=4) | data_parallel"), ("lenet5", "pipe=2", "pipeline(micro=4, schedule=interleaved, chunks=2)"),
                 ("lenet5", "pipe=3", "pipeline(schedule=pipedream)"), ("lenet5", "pipe=2", "pipeline(schedule=2bw, micro=4)")]
        cases += [("lenet5", "pipe=2", f"pipeline(micro={micro}, schedule={schedule})") for schedule, micro in (("gpipe", 1), ("1f1b", 8), ("zb-h1", 4), ("zb-v", 3))]
        for number, (model, mesh, strategy) in enumerate(cases):
            with self.subTest(model=model, mesh=mesh, strategy=strategy):
                lengths = (12, 6) if "pipedream" in strategy or "2bw" in strategy else (6,)
                found = [self.simulated_and_predicted(f"run{number}_{steps}", free, steps, model, mesh, strategy) for steps in lengths]
                virtual, predicted = (times[0] - sum(times[1:]) for times in zip(*found))
                self.assertAlmostEqual(virtual, predicted, delta=3e-3 * predicted)

    def simulated_and_predicted(self, name, cluster, steps, model, mesh, strategy):
        """Seconds of so many steps of 32 rows, in virtual time and by simulate."""
        (self.dir / name).mkdir()
        (self.dir / name / "free.toml").write_text(cluster)
        settings = [model, "--data", "synthetic", "--batch", 32, "--optim.name", "sgd", "--cluster", "free.toml", "--mesh", mesh, "--strategy", strategy, "--parallel.threads", 1]
        ranks = math.prod(int(axis.split("=")[1]) for axis in mesh.split(","))
        self.train(name, *settings, "--data.synthetic_size", 32 * steps, "--epochs", 1, "--virtual", ranks)
        got = subprocess.run([trireme, "plan", "simulate", *map(str, settings), "--cost", "counted", "--steps", str(steps)], capture_output=True, text=True, cwd=self.dir / name)
        self.assertEqual(got.returncode, 0, got.stderr)
        number, unit = re.search(rf"{steps} steps of 32 samples on \d+ ranks take ([\d.]+) (\w+)", got.stdout).groups()
        return self.lines(name)[-1]["simulated_seconds"], float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]

    def test_a_cluster_changes_times_alone(self):
        self.train("fast", *self.words, "--virtual", 4)
        self.train("slow", *self.words, "--virtual", 4, "--cluster", "slow.toml")
        self.assertEqual(self.weights("fast"), self.weights("slow"))
        self.assertLess(self.lines("fast")[-1]["simulated_seconds"], self.lines("slow")[-1]["simulated_seconds"])

    def test_weights_are_those_of_real_ranks(self):
        """Bit for bit, and with equal losses: 16 workers, whatever rows batch norms see."""
        net = ["resnet20", "--data.name", "synthetic", "--data.synthetic_size", 40, "--data.image_size", 8, "--data.batch", 18, "--epochs", 1, "--optim.name", "sgd",
               "--optim.lr", 0.05, "--parallel.threads", 1, *unmeasured]   # 3 steps: 18, 18 and 4 samples, so that ranks have 2, 1 or none
        cases = [(16, [*net, *words]) for words in ([], ["--parallel.norm_scope", "local"], ["--strategy", "data_parallel | zero(1)"])]
        if "TRIREME_TEST_ALL" in os.environ:
            cases = [(64, ["mnist_cnn", "--data.limit", 640, "--epochs", 1, "--parallel.threads", 1, "--run.max_steps", 6])]
        for number, (ranks, words) in enumerate(cases):
            with self.subTest(words=words):
                self.train(f"threads{number}", *words, "--ranks", ranks)
                self.train(f"virtual{number}", *words, "--virtual", ranks)
                self.assertEqual(self.weights(f"threads{number}"), self.weights(f"virtual{number}"))
                plain = [{k: v for k, v in line.items() if k not in timings} for line in self.lines(f"threads{number}")]
                simulated = [{k: v for k, v in line.items() if "simulated" not in k} for line in self.lines(f"virtual{number}")]
                self.assertEqual(plain, simulated)

    def test_a_resumed_run_is_the_one_that_never_stopped(self):
        """All files, clocks and messages among them, but for checkpoints that the other run has not."""
        for number, (stops, words) in enumerate((([7, 12], ["--virtual", 4]), ([12, 21], ["--virtual", 4, "--cluster", "slow.toml", "--strategy", "data_parallel | zero(2)"]),
                                                 ([7, 12, 13, 21], ["--virtual", 4, "--cluster", "slow.toml", "--mesh", "tensor=2,data=2", "--strategy", "tensor | data_parallel"]))):
            with self.subTest(words=words):
                self.train(f"whole{number}", *self.words, *words)
                self.stopped_and_resumed(f"cut{number}", stops, *words)
                differing = [f"step_{step:08}" for step in stops]   # 12: its manifest holds the setting run.max_steps
                cut, whole = ({key: value for key, value in self.tree(f"{name}{number}").items() if not any(step in key for step in differing)} for name in ("cut", "whole"))
                self.assertEqual(cut, whole)
                self.assertIn("checkpoints/step_00000024/rank-00004-of-00004.safetensors", cut)

    def stopped_and_resumed(self, name, stops, *words):
        self.train(name, *self.words, *words, "--run.max_steps", stops[0])
        for stop in stops[1:]:
            self.train(name, "--resume", "--run.max_steps", stop)
        self.train(name, "--resume")

    def test_a_resumed_pipeline_announces_its_shapes_anew(self):
        """Which takes time; else it is the run that never stopped. An asynchronous one saves there, too, since that flushes it."""
        for number, (mesh, strategy) in enumerate((("pipe=2,data=2", "pipeline(micro=2, partition=even) | data_parallel"),
                                                   ("pipe=2,data=2", "pipeline(schedule=2bw, micro=3) | data_parallel"), ("pipe=4", "pipeline(schedule=pipedream)"))):
            with self.subTest(strategy=strategy):
                words = ["--virtual", 4, "--cluster", "slow.toml", "--mesh", mesh, "--strategy", strategy, "--checkpoint.steps", 7]
                self.train(f"whole{number}", *self.words, *words)
                self.stopped_and_resumed(f"cut{number}", [7], *words)
                self.assertEqual(self.weights(f"cut{number}"), self.weights(f"whole{number}"))
                for one, two in zip(self.lines(f"cut{number}"), self.lines(f"whole{number}")):
                    self.assertGreaterEqual(one["simulated_seconds"], two["simulated_seconds"])
                    self.assertEqual(*({k: v for k, v in line.items() if "simulated" not in k} for line in (one, two)))

    def test_a_resumed_run_with_tickets_is_the_one_that_saved_there_too(self):
        """Where workers take their rows from a queue, a checkpoint is where all come together; every sample has counted once then."""
        for number, strategy in enumerate(("parameter_server(mode=async, servers=2)", "parameter_server(mode=ssp, staleness=1)", "parameter_server(backup=1)")):
            with self.subTest(strategy=strategy):
                words = ["--virtual", 4, "--cluster", "uneven.toml", "--strategy", strategy, "--checkpoint.steps", 7]
                self.train(f"whole{number}", *self.words, *words)
                self.stopped_and_resumed(f"cut{number}", [7, 21], *words)
                self.assertEqual(self.weights(f"cut{number}"), self.weights(f"whole{number}"))
                self.assertEqual(self.lines(f"cut{number}"), self.lines(f"whole{number}"))

    def test_a_resumed_run_needs_no_cluster_file_but_its_own(self):
        words = [*self.words, "--virtual", 4, "--cluster", "gone.toml"]
        for name in "whole", "cut":
            (self.dir / name).mkdir()
            (self.dir / name / "gone.toml").write_text(slow)
        self.train("whole", *words)
        self.train("cut", *words, "--run.max_steps", 7)
        (self.dir / "cut/gone.toml").unlink()
        self.train("cut", "--resume")
        self.assertEqual(self.lines("cut"), self.lines("whole"))
        self.assertEqual((self.dir / "cut/run/config.toml").read_text(), (self.dir / "whole/run/config.toml").read_text())
        self.refused(self.train("cut", "--resume", "--cluster", "gone.toml", status=66), "gone.toml", kind="file")

    def test_long_times_are_exact(self):
        """Beyond 2^53 ns, on devices of an operation per second: a checkpoint holds when its epoch began, to the nanosecond."""
        (self.dir / "run").mkdir()
        starts = []
        for seed in range(3):
            (self.dir / "run/snail.toml").write_text("seed = %d\njitter = 0.1\nflops = 1\n[[nodes]]\ndevices = 2\n[links.inside]\nlatency = 1\nbandwidth = inf\n" % seed)
            self.train("run", *self.words, "--virtual", 2, "--cluster", "snail.toml", "--run.max_steps", 13)
            for file in sorted((self.newest("run")).glob("rank-*.safetensors")):
                raw = file.read_bytes()
                length = int.from_bytes(raw[:8], "little")
                name, place = next((k, v) for k, v in json.loads(raw[8:8 + length]).items() if k.endswith("epoch_start"))
                self.assertEqual(place["dtype"], "I64", name)
                at = 8 + length + place["data_offsets"][0]
                starts.append(int.from_bytes(raw[at:at + 8], "little"))
            shutil.rmtree(self.dir / "run/run")
        self.assertGreater(min(starts), 2**53)
        self.assertTrue(any(start % 2 for start in starts), starts)

    def test_saving_takes_no_simulated_time(self):
        for number, words in enumerate((["--virtual", 3, "--cluster", "slow.toml"],
                                        ["--virtual", 4, "--cluster", "uneven.toml", "--mesh", "pipe=2,data=2", "--strategy", "pipeline(micro=2, partition=even) | data_parallel | zero(1)"])):
            with self.subTest(words=words):
                self.train(f"rarely{number}", *self.words, *words)
                self.train(f"often{number}", *self.words, *words, "--checkpoint.steps", 2)
                self.assertEqual(self.lines(f"often{number}"), self.lines(f"rarely{number}"))

    def test_what_cannot_go_on_is_refused(self):
        self.train("run", *self.words, "--virtual", 4, "--run.max_steps", 5)
        self.train("real", *self.words, "--run.max_steps", 5)
        before = self.tree("run"), self.tree("real")
        for name, ranks, had in ("run", 0, 4), ("run", 3, 4), ("real", 2, 0):
            for more in [], ["--override"]:
                self.refused(self.train(name, "--resume", "--virtual", ranks, *more, status=2), "parallel.virtual", ranks, f"--virtual {had}")
        self.refused(self.train("run", "--resume", "--cluster", "slow.toml", status=2), "run/cluster.toml", "--override")
        self.refused(self.train("run", "--resume", "--mesh", "data=2,tensor=2", "--strategy", "data_parallel | tensor", status=2), "layout")
        self.assertEqual((self.tree("run"), self.tree("real")), before)
        said = self.train("run", "--resume", "--cluster", "slow.toml", "--override")
        self.assertIn("override  the cluster differs from run/cluster.toml\n", said.stderr)
        self.assertIn('name = "two slow nodes"', (self.dir / "run/run/cluster.toml").read_text())
        self.train("run", "--resume", "--cluster", "run/cluster.toml")   # the same, from another file

    def test_its_checkpoints_are_as_others(self):
        self.train("run", *self.words, "--virtual", 4, "--mesh", "data=4")
        for words in [], ["--ranks", 2, "--mesh", ""]:
            got = run("eval", self.dir / "run/run", *words)
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertIn(f"({self.lines('run')[-1]['test_correct']} of 70)", got.stdout)

    def test_wrong_input_is_refused(self):
        def refused(words, *says, kind="usage"):
            self.refused(self.train("x", *self.words, *words, status=unittests.statuses[kind]), *says, kind=kind)
        refused(["--virtual", -1], "parallel.virtual", -1)
        refused(["--virtual", "abc"], "parallel.virtual", "abc")
        refused(["--virtual", 100000], "parallel.virtual", 100000, 65536)
        refused(["--virtual", 4, "--ranks", 3], "parallel.virtual", 4, "parallel.ranks", 3)
        refused(["--virtual", 4, "--mesh", "data=3"], "parallel.virtual", 4, "parallel.mesh", "data=3")
        refused(["--virtual", 4, "--device", "cuda"], "parallel.virtual", 4, "cuda")
        refused(["--virtual", 5, "--cluster", "slow.toml"], "parallel.virtual", 5, "slow.toml", 4)
        refused(["--virtual", 5, "--cluster", "none.toml"], "none.toml", kind="file")
        refused(["--cluster", "slow.toml"], "parallel.cluster", "--virtual")
        for old, new, says in (("latency = 1e-3\n", "", ("links.between.latency",)), ("bandwidth = 1e7", "bandwidth = -1.0", ("links.between.bandwidth", "-1")),
                               ("devices = 2", "devices = 0", ("nodes.devices", "0")), ("latency = 1e-4", "latency = nan", ("links.inside.latency",)),
                               ("latency = 1e-4", "latency = \"1e-4\"", ("links.inside.latency",)), ("flops = 1e9", "flop = 1e9", ("flop", "flops"))):
            self.assertIn(old, slow)
            (self.dir / "bad.toml").write_text(slow.replace(old, new))
            refused(["--virtual", 4, "--cluster", self.dir / "bad.toml"], "bad.toml:", *says)
        for command in ["bench", "mlp", "--steps", 1], ["plan", "verify", "mlp"], ["plan", "show", "mlp"], ["pack", self.dir / "p"]:
            self.refused(run(*command, "--virtual", 2), "parallel.virtual", command[0])
        self.refused(run("plan", "simulate", "mlp", "--virtual", 2), "parallel.virtual", "plan simulate")
        (self.dir / "c.toml").write_text(slow)
        for command in ["bench", "mlp", "--steps", 1], ["plan", "verify", "mlp"], ["plan", "show", "mlp"], ["pack", self.dir / "p"]:
            self.refused(run(*command, "--cluster", self.dir / "c.toml"), "parallel.cluster", "--virtual")
        self.assertFalse((self.dir / "x/run").exists())
        self.assertNotIn("virtual", self.train("zero", *self.words, "--virtual", 0, "--run.max_steps", 1).stderr)

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_a_launcher_is_refused(self):
        got = run("train", *self.words, "--virtual", 4, "--run.dir", self.dir / "run", ranks=2)
        self.assertEqual(got.returncode, 2, got.stderr)
        said = [line for line in got.stderr.splitlines() if line.startswith("trireme: ")]
        self.assertEqual(len(said), 1, got.stderr)
        self.assertIn("parallel.virtual", said[0])
        self.assertFalse((self.dir / "run").exists())


if __name__ == "__main__":
    unittests.main(sys.argv[4:])
