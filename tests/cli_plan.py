"""trireme plan and trireme verify as their users meet them.
  cli_plan.py TRIREME MPIEXEC|none
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

trireme, mpiexec = sys.argv[1], sys.argv[2]


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
            for text in ("plan data_parallel", "all_reduce", "costs of a micro-batch of 2 rows, all alike", "predicted: a step takes",
                         "F forward", "written: " + str(svg)):
                self.assertIn(text, r.stdout)
            events = json.loads(trace.read_text())["traceEvents"]
            self.assertTrue(any(e["ph"] == "X" and e["name"].startswith("forward part 0") for e in events))
            xml.etree.ElementTree.parse(svg)
            self.assertIn("<svg", html.read_text())

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


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
