"""trireme plan and verify as their users meet them.
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

    def test_models_with_a_result_for_each_pixel(self):
        volumes = ["--data", "phantoms", "--data.size", "32,32,32", "--data.crop", "16,16,32"]
        for model, spatial in ((["msd", "--arch.layers", 3, "--data.image_size", 32], "h=2"), (["unet3d", "--arch.width", 2, *volumes], "d=2"),
                               (["msd", "--arch.layers", 3, *volumes], "d=2,h=2"), (["msd", "--arch.layers", 3, *volumes, "--data.task", "denoise"], "w=2")):
            for words in (["plan", "show", "--mesh", spatial, "--strategy", "spatial", "--measure"], ["plan", "search", "--ranks", 4],
                          ["plan", "verify", "--mesh", spatial, "--strategy", "spatial", "--steps", 2], ["bench", "--steps", 1],
                          ["bench", "--runs", 1, "--machine", os.devnull]):
                with self.subTest(model=model, words=words):
                    r = run(*words, *model, "--batch", 2)
                    self.assertEqual(r.returncode, 0, r.stderr)
        r = run("train", "msd")
        self.assertEqual(r.returncode, 2, r.stderr)
        for value in "data.name", "msd", "mnist", "phantoms", "volumes":
            self.assertIn(value, r.stderr)

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

    def test_split_weights(self):
        """Without --measure, too, weights are a rank's share, as simulate has them."""
        for mesh, strategy, share in (("tensor=2", "tensor", 2.40), ("data=2", "one_weird_trick", 2.44), ("h=2", "spatial", 4.80)):
            words = ["mnist_cnn", "--mesh", mesh, "--strategy", strategy, "--cost", "equal"]
            for command in ["plan", "show"], ["plan", "simulate"]:
                with self.subTest(strategy=strategy, command=command):
                    text = run(*command, *words).stdout
                    self.assertEqual(float(re.search(r"^MB per rank.*\nall +([\d.]+)", text, re.M)[1]), share, text)

    def test_batch_over_other_axes(self):
        """Ranks have the same rows, whatever their axes are called."""
        memory = []
        for mesh, strategy in (("data=4", "data_parallel"), ("a=4", "data_parallel(axis=a)"), ("data=2,b=2", "data_parallel(axis=data+b)")):
            text = run("plan", "show", "mnist_cnn", "--mesh", mesh, "--strategy", strategy, "--cost", "equal", "--batch", 32).stdout
            self.assertIn("costs of a micro-batch of 8 rows", text)
            memory.append(re.search(r"^MB per rank.*\n(all.*)", text, re.M)[1])
        self.assertEqual(len(set(memory)), 1, memory)

    def test_placements_and_moves(self):
        small = ["gpt2", "--arch.layers", 12, "--arch.width", 16, "--arch.heads", 4, "--batch", 2]
        text = run("plan", "show", *small, "--mesh", "tensor=2", "--strategy", "tensor", "--cost", "equal").stdout
        for line in (r"h\.0 to \S*h\.11, each of 12", r"attn\.c_attn\.weight +\[48, 16\] divided\(0\) over tensor",
                     r"mlp\.c_proj\.weight +\[16, 64\] divided\(1\) over tensor", r"copies: .*ln_1\.weight", r"forward +all_reduce over tensor: 2 calls",
                     r"backward +all_reduce over tensor: 2 calls", r"join\n +forward +all_reduce over tensor: 1 call"):
            self.assertRegex(text, line)
        # Totals by axis are those of the step, but for agreements.
        calls = int(re.search(r"^all layers over tensor: (\d+) calls", text, re.M)[1])
        self.assertEqual(calls, int(re.search(r"^all +tensor +(\d+)", text, re.M)[1]), text)
        text = run("plan", "show", "mnist_cnn", "--mesh", "h=2", "--strategy", "spatial", "--cost", "equal").stdout
        self.assertRegex(text, r"forward +halo over h: 1 call")
        self.assertNotIn("divided(", text)
        self.assertNotIn("layers of a rank", run("plan", "show", "mlp", "--cost", "equal").stdout)

    def test_split_layers(self):
        r = run("plan", "show", "mnist_cnn", "--mesh", "h=2", "--strategy", "spatial", "--batch", 4, "--measure")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn("times are those of the undivided model", r.stdout)
        self.assertIn("rank 1 all", r.stdout)

    def test_actions(self):
        words = ["plan", "show", "mlp", "--mesh", "pipe=2,data=2", "--strategy", "pipeline(micro=4) | zero(1)", "--batch", 16, "--cost", "equal"]
        summary, whole = run(*words).stdout, run(*words, "--actions").stdout
        for text in (" 4  compute  loss\n", "agree loss over data", "agree loss over pipe from 1", "reduce_scatter gradients over data", " elements\n"):
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
        for words, text in ((["--mesh", "data"], "'data'"), (["--strategy", "data_paralel"], "data_parallel"), (["--mesh", "pipe=3", "--ranks", 2], "--ranks is 2"),
                            (["--ranks", 2, "--plugin", "./none.so"], "./none.so"),
                            (["--cost", "free"], "cost"), (["--svg", "/nowhere/x.svg"], "/nowhere/x.svg")):
            r = run("plan", "show", "mlp", "--batch", 4, *words)
            self.assertNotEqual(r.returncode, 0, words)
            self.assertIn(text, r.stderr, words)
            self.assertEqual(len(r.stderr.strip().splitlines()), 1, r.stderr)


class Verify(unittest.TestCase):
    def test_equal(self):
        for mesh, strategy in (("data=3", "data_parallel"), ("pipe=2", "pipeline(micro=4, schedule=zb-h1)"), ("pipe=2,data=2", "pipeline(micro=2) | data_parallel")):
            r = run("plan", "verify", "--model", "mlp", "--mesh", mesh, "--strategy", strategy, "--steps", 3)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
            self.assertRegex(r.stdout, "^equal: mlp under .*\n$")   # by one rank
        if mpiexec != "none":
            r = run("plan", "verify", "mnist_cnn", "--mesh", "pipe=2", "--strategy", "pipeline(micro=2)", "--steps", 2, "--batch", 6, ranks=2)
            self.assertEqual(r.returncode, 0, r.stdout + r.stderr)
            self.assertIn("2 ranks (mpi", r.stdout)

    def test_batch_norms(self):
        resnet = ["resnet20", "--data", "synthetic", "--data.image_size", 8, "--batch", 6, "--steps", 2, "--mesh", "data=3"]
        local = "of a serial run whose batch norms see each rank's rows (batch norm: local: each rank's rows)"
        for words, text in (([], "of the serial run (batch norm: global)"), (["--parallel.norm_scope", "local"], local),
                            (["--strategy", "data_parallel(norm_scope=local)", "--parallel.norm_scope", "global"], local),
                            (["--strategy", "accumulate(micro=2) | data_parallel"],
                             "of the serial run in the same 2 micro-batches (batch norm: each micro-batch over all ranks)")):
            r = run("plan", "verify", *resnet, *words)
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
            r = run("plan", "verify", "lenet5", "--ranks", 3, "--strategy", strategy, "--steps", 3)
            lines = [line for line in r.stdout.splitlines() if not line.startswith("  ")]
            self.assertEqual(r.returncode, 0 if claims else 1, r.stdout + r.stderr)
            self.assertRegex(lines[0], "^differs, as it may: lenet5 under " if claims else "^differs: lenet5 under ")
            for line, claim in zip(lines[1:], claims, strict=True):
                self.assertTrue(line.startswith(f"ok: {strategy.split('(')[0]}: {claim}"), r.stdout)
        for strategy in "local_sgd(every=9)", "easgd(every=9)":   # workers do not meet
            r = run("plan", "verify", "mlp", "--ranks", 2, "--strategy", strategy, "--steps", 3)
            self.assertEqual(r.returncode, 2, r.stdout + r.stderr)
            for value in "'data'", "every 9 steps", "--steps 9":
                self.assertIn(value, r.stderr)

    def test_differs(self):
        for wrong in -1, "nan":
            r = run("plan", "verify", "mlp", "--ranks", 2, "--tolerance", wrong, "--steps", 1)
            self.assertEqual(r.returncode, 2, r.stderr)
            self.assertIn(f"--tolerance is {wrong}", r.stderr)
        r = run("plan", "verify", "mlp", "--ranks", 2, "--dtype", "f32", "--tolerance", 1e-12, "--steps", 5)
        self.assertEqual(r.returncode, 1, r.stdout + r.stderr)
        self.assertRegex(r.stdout, r"step \d, rank \d: the (gradient|value) of '.*' of layer '.*' differs by .*, relative ")

    def test_refusals(self):
        for words, text in ((["--mesh", "pipe=9", "--strategy", "pipeline"], "part"), (["--strategy", "nothing"], "'nothing'"),
                            (["--steps", "0"], "steps"), (["--mesh", "data=2", "--ranks", "3"], "data=2")):
            r = run("plan", "verify", "mlp", *words)
            self.assertEqual(r.returncode, 2, (words, r.stdout, r.stderr))
            self.assertIn(text, r.stderr, words)


if __name__ == "__main__":
    unittests.main([])
