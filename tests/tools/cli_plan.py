"""trireme plan, simulate and verify as their users meet them.
  cli_plan.py TRIREME MPIEXEC|none
"""
import os
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import unittests

trireme, mpiexec = os.environ.get("TRIREME_EXE", sys.argv[1]), sys.argv[2]


def run(*words, ranks=None):
    launch = [mpiexec, "-n", str(ranks)] if ranks else []
    return subprocess.run([*launch, trireme, *map(str, words)], capture_output=True, text=True, timeout=300)


class Plan(unittest.TestCase):
    def test_show(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, svg, html = (pathlib.Path(folder) / f"plan.{kind}" for kind in ("json", "svg", "html"))
            r = run("plan", "show", "--model", "mlp", "--mesh", "data=100000", "--strategy", "data_parallel(bucket=1000)", "--batch", 200000,
                    "--cost", "equal", "--bandwidth", 1e9, "--trace", trace, "--svg", svg, "--html", html)
            self.assertEqual(r.returncode, 0, r.stderr)
            for text in ("plan data_parallel", "all_reduce", "costs of a micro-batch of 2 rows, all alike", "predicted: a step takes", "MB per rank",
                         "F forward", "written: " + str(svg)):
                self.assertIn(text, r.stdout)
            events = json.loads(trace.read_text())["traceEvents"]
            self.assertTrue(any(e["ph"] == "X" and e["name"].startswith("forward part 0") for e in events))
            xml.etree.ElementTree.parse(svg)
            self.assertIn("<svg", html.read_text())

    def test_measure(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = pathlib.Path(folder) / "plan.svg"
            r = run("plan", "show", "mlp", "--mesh", "pipe=2,data=2", "--strategy", "pipeline(micro=2) | data_parallel", "--batch", 16, "--measure", "--svg", svg)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertIn("predicted: ", r.stdout)
            self.assertIn("\nmeasured: ", r.stdout)
            self.assertIn("rank 3 stage 1", r.stdout)
            self.assertRegex(r.stdout, r"stage 0, predicted +[\d.]+(?s:.*)  rank 0, measured +[\d.]+")
            self.assertIn("measured: ", svg.read_text())

    def test_split_layers(self):
        r = run("plan", "show", "mnist_cnn", "--mesh", "h=2", "--strategy", "spatial", "--batch", 4, "--measure")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("times are those of the undivided model", r.stdout)
        self.assertIn("rank 1 all", r.stdout)

    def test_actions(self):
        words = ["plan", "show", "mlp", "--mesh", "pipe=2,data=2", "--strategy", "pipeline(micro=4) | zero(1)", "--batch", 16, "--cost", "equal"]
        summary, whole = run(*words).stdout, run(*words, "--actions").stdout
        for text in (" 4  compute  loss\n", "agree loss over data", "agree loss over pipe from 1", "reduce_scatter over data", " elements\n"):
            self.assertIn(text, summary)
        self.assertIn("forward part 0 micro 3", whole)
        self.assertNotIn("forward part 0 micro 3", summary)
        # As many actions in all.
        counted = {}
        for line in summary[:summary.index("\ncosts of")].splitlines():
            if line.startswith("program "):
                program, in_step = line, True
                counted[program] = 0
            elif line.startswith("  on call, "):
                in_step = False
            elif line.startswith("  ") and in_step:
                counted[program] += int(line.split()[0])
        for program, count in counted.items():
            self.assertIn(f": {count} actions", program)
        self.assertEqual(len(counted), 2)
        for phase in ("set-up", "evaluation", "saving", "diagnosis"):
            self.assertEqual(summary.count(f"  on call, {phase}:\n"), 2, phase)

    def test_measured_costs(self):
        r = run("plan", "show", "mlp", "--batch", 8)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("measured here on one rank", r.stdout)

    def test_refusals(self):
        for words, text in ((["--mesh", "data"], "write for example pipe=2,data=4"), (["--strategy", "data_paralel"], "did you mean 'data_parallel'"),
                            (["--cost", "free"], "cost"), (["--svg", "/nowhere/x.svg"], "cannot write /nowhere/x.svg")):
            r = run("plan", "show", "mlp", "--batch", 4, *words)
            self.assertNotEqual(r.returncode, 0, words)
            self.assertIn(text, r.stderr, words)
            self.assertEqual(len(r.stderr.strip().splitlines()), 1, r.stderr)


class Simulate(unittest.TestCase):
    cluster = """name = "two kinds"
[[nodes]]
count = 1024
devices = 8
[[nodes]]
count = 1024
devices = 8
speed = 0.5
[links.inside]
latency = 2e-6
bandwidth = 300e9
[links.between]
latency = 8e-6
bandwidth = 25e9
"""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)
        (self.dir / "c.toml").write_text(self.cluster)

    def simulate(self, *words):
        r = run("simulate", "mlp", *words)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def seconds(self, text):
        number, unit = re.search(r"takes ([\d.e+-]+) (us|ms|s),", text).groups()
        return float(number) * {"us": 1e-6, "ms": 1e-3, "s": 1}[unit]

    def test_this_machine(self):
        text = self.simulate("--batch", 16)
        for part in ("machines like this one: 1 node of", "measured here on one rank", "a step of 16 samples on 1 ranks takes", "MB per rank", "F forward"):
            self.assertIn(part, text)

    def test_cluster(self):
        words = ["--mesh", "data=64,pipe=4,tensor=64", "--strategy", "pipeline(micro=16) | data_parallel", "--batch", 16384, "--cost", "equal",
                 "--cluster", self.dir / "c.toml"]
        svg, html, trace = (self.dir / f"s.{kind}" for kind in ("svg", "html", "json"))
        text = self.simulate(*words, "--svg", svg, "--html", html, "--trace", trace)
        for part in ("two kinds: 1024 nodes of 8 devices, 1024 nodes of 8 devices of speed 0.5", "a step of 16384 samples on 16384 ranks takes", "stage 3 ",
                     "data+pipe+tensor"):
            self.assertIn(part, text)
        self.assertEqual(len(re.findall(r"^stage \d +pipe +[\d.]+ u?m?s +\d+$", text, re.M)), 4)
        xml.etree.ElementTree.parse(svg)
        self.assertIn("<svg", html.read_text())
        self.assertTrue(json.loads(trace.read_text())["traceEvents"])
        # On devices of half the speed alone everything takes longer.
        (self.dir / "slow.toml").write_text(self.cluster.replace("devices = 8\n[[", "devices = 8\nspeed = 0.5\n[["))
        slow = self.simulate(*words[:-1], self.dir / "slow.toml")
        self.assertGreater(self.seconds(slow), 0.99 * self.seconds(text))

    def test_rows_that_do_not_divide(self):
        text = self.simulate("--mesh", "data=3", "--batch", 16, "--cost", "equal")
        self.assertIn("a step of 16 samples on 3 ranks takes", text)

    def test_what_layers_send(self):
        """Batch norm's sums over a slow link, in one step and in a sweep; on one rank there are none."""
        (self.dir / "slow.toml").write_text("[[nodes]]\ndevices = 4\n[links.inside]\nlatency = 1.0\nbandwidth = 0\n")
        def simulate(scope, *words):
            r = run("simulate", "resnet20", "--data", "synthetic", "--data.image_size", 8, "--batch", 8, "--cost", "equal", "--cluster", self.dir / "slow.toml", *words,
                    "--parallel.norm_scope", scope)
            self.assertEqual(r.returncode, 0, r.stderr)
            return r.stdout
        norms = 19 * (1 + 2)   # seconds: two ranks gather forward, and sum backward
        self.assertGreaterEqual(self.seconds(simulate("global", "--mesh", "data=2")) - self.seconds(simulate("local", "--mesh", "data=2")), 0.99 * norms)
        one, two = (re.findall(r"^ +[12] .*$", simulate(scope, "--mesh", "data=1", "--sweep", "ranks=1,2"), re.M) for scope in ("global", "local"))
        self.assertEqual(one[0], two[0])
        self.assertNotEqual(one[1], two[1])
        r = run("plan", "show", "resnet20", "--data", "synthetic", "--data.image_size", 8, "--batch", 8, "--cost", "equal", "--mesh", "data=2")
        planned = re.search(r"^all +data +\d+ +(\d+)$", r.stdout, re.M)[1]
        self.assertRegex(simulate("global", "--mesh", "data=2"), rf"(?m)^all +data +[\d.]+ u?m?s +{planned}$")

    def test_phases_of_some_steps(self):
        """The looks at all gradients are not of the step shown: that is told, with what they take and send."""
        words = ["--mesh", "data=2", "--batch", 8, "--cost", "equal"]
        text = self.simulate(*words)
        self.assertRegex(text, r"the step shown is without .* \(every \d+ steps.*\)\n")
        self.assertRegex(text, r"\na step with .* \(every \d+ steps.*\) takes [\d.]+ ")
        self.assertIn("the step shown is without", run("plan", "show", "mlp", *words).stdout)
        divided = run("plan", "show", "mlp", "--mesh", "data=2", "--batch", 8, "--cost", "equal", "--strategy", "data_parallel | zero(2)").stdout
        self.assertRegex(divided, r"(?m)^  .* \(every \d+ steps.*\) +data +\d+ +[1-9]\d*$")

    def test_steps(self):
        """Stages of a pipeline get ahead of each other; looks at all gradients are counted."""
        words = ["--mesh", "pipe=2", "--strategy", "pipeline(micro=4)", "--batch", 8, "--cost", "equal"]
        one, text = self.seconds(self.simulate(*words)), self.simulate(*words, "--steps", 5)
        self.assertIn("predicted: 5 steps of 8 samples on 2 ranks take ", text)
        self.assertLessEqual(float(re.search(r"take [\d.]+ ms, ([\d.]+) ms each, [\d.]+ samples per second", text)[1]), 1.001e3 * one)
        self.assertRegex(text, r"\n0 of the steps shown are with check gradients \(every \d+ steps\)\n")
        rows = [line.split() for line in self.simulate("--mesh", "data=1", "--cost", "equal", "--sweep", "ranks=1,2", "--steps", 3).splitlines() if re.match(r" +\d", line)]
        self.assertEqual([row[0] for row in rows], ["1", "2"])

    def test_sweep(self):
        svg, html = self.dir / "s.svg", self.dir / "s.html"
        text = self.simulate("--mesh", "data=1", "--batch", 8, "--cost", "equal", "--cluster", self.dir / "c.toml", "--sweep", "ranks=1,8,64,16384", "--svg", svg,
                             "--html", html)
        rows = [line.split() for line in text.splitlines() if re.match(r" +\d", line)]
        self.assertEqual([(row[0], row[1]) for row in rows], [("1", "8"), ("8", "64"), ("64", "512"), ("16384", "131072")])
        self.assertEqual(rows[0][-2:], ["100.0", "%"])
        self.assertEqual([float(row[-2]) for row in rows], sorted((float(row[-2]) for row in rows), reverse=True))
        xml.etree.ElementTree.parse(svg)
        for part in ("samples per second", "in proportion", "16.4k, "):
            self.assertIn(part, svg.read_text())
        self.assertIn("100.0 %", html.read_text())

    def test_refusals(self):
        (self.dir / "bad.toml").write_text(self.cluster.replace("speed = 0.5", "speed = 0"))
        (self.dir / "small.toml").write_text("[[nodes]]\ndevices = 1\n")
        for words, text in ((["--cluster", self.dir / "bad.toml"], "bad.toml:8: nodes.speed is 0, it must be at least"),
                            (["--cluster", self.dir / "none.toml"], "none.toml cannot be read"),
                            (["--cluster", self.dir / "small.toml", "--ranks", 2], "2 ranks on a cluster of 1 devices"),
                            (["--sweep", "ranks=1,x"], "write for example ranks=1,2,4,8"), (["--sweep", "1,2"], "write for example"),
                            (["--sweep", "ranks=2147483647"], "of 1 to 16777216 ranks"), (["--sweep", "ranks=99999999999"], "of 1 to 16777216 ranks"),
                            (["--allreduce", "ring"], "parallel.allreduce is ring; simulate reduces along rings"), (["--sweep", "ranks="], "write for example"),
                            (["--mesh", "pipe=2,data=1", "--strategy", "pipeline", "--sweep", "ranks=3"], "3 ranks are no multiple of the 2"),
                            (["--mesh", "pipe=2", "--strategy", "pipeline", "--sweep", "ranks=2"], "the axis data"), (["--cost", "free"], "cost"), (["--steps", 0], "steps")):
            r = run("simulate", "mlp", "--batch", 4, *words)
            self.assertNotEqual(r.returncode, 0, words)
            self.assertIn(text, r.stderr, words)
            self.assertEqual(len(r.stderr.strip().splitlines()), 1, r.stderr)


class Verify(unittest.TestCase):
    def test_equal(self):
        for mesh, strategy in (("data=3", "data_parallel"), ("pipe=2", "pipeline(micro=4, schedule=zb-h1)"), ("pipe=2,data=2", "pipeline(micro=2) | data_parallel")):
            r = run("verify", "--model", "mlp", "--mesh", mesh, "--strategy", strategy, "--steps", 3)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
            self.assertRegex(r.stdout, "^equal: mlp under .*\n$")   # by one rank
        if mpiexec != "none":
            r = run("verify", "mnist_cnn", "--mesh", "pipe=2", "--strategy", "pipeline(micro=2)", "--steps", 2, "--batch", 6, ranks=2)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
            self.assertIn("2 ranks (mpi", r.stdout)

    def test_batch_norms(self):
        resnet = ["resnet20", "--data", "synthetic", "--data.image_size", 8, "--batch", 6, "--steps", 2, "--mesh", "data=3"]
        local = "of a serial run whose batch norms see each rank's rows (batch norm: local: each rank's rows)"
        for words, text in (([], "of the serial run (batch norm: global)"), (["--parallel.norm_scope", "local"], local),
                            (["--strategy", "data_parallel(norm_scope=local)", "--parallel.norm_scope", "global"], local),
                            (["--strategy", "accumulate(micro=2) | data_parallel"],
                             "of the serial run in the same 2 micro-batches (batch norm: each micro-batch over all ranks)")):
            r = run("verify", *resnet, *words)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
            self.assertTrue(r.stdout.endswith(f"2 steps within 1e-11 {text}\n"), r.stdout)

    def test_claims(self):
        brief = "TRIREME_TEST_BRIEF" in os.environ   # parallel/test_claims.cpp has them all, too
        for strategy, claims in (("local_sgd(every=2)", ["limit: with every=1", "mean preserved"]), ("easgd(every=1)", ["mean preserved"]),
                                 ("gossip(graph=ring, mode=push_sum)", ["limit: with graph=complete, mode=sync, global_every=0", "mean preserved"]),
                                 ("parameter_server(mode=ssp, staleness=1)", ["limit: with mode=sync, backup=0 it", "limit: with mode=ssp, staleness=0, backup=0", "delayed"]),
                                 ("compress(topk, ratio=0.1)", ["limit: with ratio=1, momentum=0", "error feedback"]), ("compress(qsgd)", [])):
            if brief and "mean preserved" in claims:
                continue
            r = run("verify", "mlp", "--ranks", 3, "--strategy", strategy, "--steps", 3)
            lines = [line for line in r.stdout.splitlines() if not line.startswith("  ")]
            self.assertEqual(r.returncode, 0 if claims else 1, r.stdout + r.stderr)
            self.assertRegex(lines[0], "^differs, as it may: mlp under " if claims else "^differs: mlp under ")
            for line, claim in zip(lines[1:], claims, strict=True):
                self.assertTrue(line.startswith(f"ok: {strategy.split('(')[0]}: {claim}"), r.stdout)
        r = run("verify", "mlp", "--ranks", 3, "--strategy", "local_sgd(every=9)", "--steps", 3)   # nothing of it happens
        self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
        self.assertIn("not so: local_sgd: mean preserved", r.stdout)

    def test_differs(self):
        r = run("verify", "mlp", "--ranks", 2, "--dtype", "f32", "--tolerance", 1e-12, "--steps", 5)
        self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
        self.assertRegex(r.stdout, r"step \d, rank \d: the (gradient|value) of '.*' of layer '.*' differs by .*, relative ")

    def test_refusals(self):
        for words, text in ((["--mesh", "pipe=99", "--strategy", "pipeline"], "part"), (["--strategy", "nothing"], "there is no 'nothing'"),
                            (["--steps", "0"], "steps is 0"), (["--mesh", "data=2", "--ranks", "3"], "makes 2 ranks")):
            r = run("verify", "mlp", *words)
            self.assertEqual(r.returncode, 2, (words, r.stdout, r.stderr))
            self.assertIn(text, r.stderr, words)


if __name__ == "__main__":
    unittests.main([])
