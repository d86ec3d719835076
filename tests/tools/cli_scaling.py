"""trireme study: a scaling study that is killed and interrupted at random moments, and comes to its end all the same; its ledger, its numbers, its refusals.
  cli_scaling.py TRIREME MPIEXEC|none DATA_DIR [TEST ...]
"""
import hashlib
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
import tomllib

import cli
import unittests
from cli import mpiexec, run, trireme, unmeasured

small = ["train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", 60, "--data.batch", 12, "--epochs", 2, "--optim.lr", 0.003, "--parallel.threads", 1, *unmeasured]
ranks = ["--ranks", "1,2"]


class Scaling(cli.Case):
    def setUp(self):
        super().setUp()
        self.out = self.dir / "study"

    def words(self, *options, train=small):
        return ["study", "run", *options, "--out", self.out, *(["--", *train] if train else [])]

    def study(self, *options, train=small, status=0):
        got = run(*self.words(*options, train=train))
        self.assertEqual(got.returncode, status, got.stderr)
        return got

    def ledger(self):
        """Its lines, which a reader of the format as it is documented finds whole."""
        entries, before = [], ""
        for line in (self.out / "ledger.jsonl").read_bytes().splitlines():
            body, end = line.rsplit(b',"hash":"', 1)
            entry = json.loads(line)
            self.assertEqual(end, hashlib.sha256(body).hexdigest().encode() + b'"}')
            self.assertEqual((entry["previous"], entry["number"]), (before, len(entries) + 1))
            before = entry["hash"]
            entries.append(entry)
        self.assertEqual((self.out / "ledger.head").read_text(), f"{len(entries)} {before}\n")
        return entries

    def cells(self):
        return tomllib.loads((self.out / "study.toml").read_text())["cell"]

    def evaluations(self, name):
        lines = [json.loads(line) for line in (self.out / "runs" / name / "metrics.jsonl").read_text().splitlines()]
        return [line for line in lines if line["kind"] == "eval"]

    def row(self, printed, *words):
        found = [line for line in printed.splitlines() if line.startswith(words[0] + " ") and all(f" {word} " in line for word in words[1:])]
        self.assertEqual(len(found), 1, printed)
        return found[0]

    def test_a_study_that_is_killed_and_interrupted_comes_to_its_end(self):
        seed = random.randrange(10 ** 6)
        print("seed", seed, file=sys.stderr)
        dice = random.Random(seed)
        asked = [*ranks, "--strategy", "pipeline(micro=2)", "--seeds", 2, "--target", 5]
        train = [*small, "--data.synthetic_size", 900, "--data.batch", 6, "--checkpoint.steps", 100]
        command = [str(w) for w in [trireme, *self.words(*asked, train=train)]]
        ends = []
        for number in (signal.SIGKILL, signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(dice.uniform(0.2, 1))
            ends.append(self.signalled(process, number, self.out))
        last = self.study(*asked, train=train)
        entries, cells = self.ledger(), self.cells()
        self.assertEqual([c["name"] for c in cells], ["serial", "serial-all_cores", "strong-r2-pipe_2_pipeline_micro_2"])
        runs = {f"runs/{c['name']}/seed_{s}": c for c in cells for s in (1, 2)}
        self.assertEqual({e["run"] for e in entries}, set(runs))
        for name, cell in runs.items():
            own = [e for e in entries if e["run"] == name]
            self.assertEqual([e["status"] for e in own[::2]], ["started"] * (len(own) // 2))
            self.assertEqual([e["status"] for e in own[1::2]], ["interrupted"] * (len(own) // 2 - 1) + ["finished"])
            for e in own:
                self.assertEqual({k: e[k] for k in cell if k != "name"}, {k: cell[k] for k in cell if k != "name"})
                self.assertEqual(e["device_seconds"], e["seconds"] * cell["ranks"])
            config = tomllib.loads((self.out / name / "config.toml").read_text())
            self.assertEqual((config["seed"], config["parallel"]["mesh"]), (own[0]["seed"], cell["mesh"]))
            self.assertEqual([e["step"] for e in self.evaluations(name[5:])], [150, 300])
        self.assertEqual(sum(e["status"] == "interrupted" for e in entries) > 0, any(ends), ends)
        again = self.study(*asked, train=train)   # nothing is left
        self.assertEqual(again.stdout, last.stdout)
        self.assertEqual(self.ledger(), entries)
        self.assertEqual(self.study(train=[]).stdout, last.stdout)   # as study.db has it

    def test_the_table_says_what_the_runs_say(self):
        (self.dir / "asked.toml").write_text('''model = "mlp"\nepochs = 3\n[data]\nname = "synthetic"\nsynthetic_size = 90\nbatch = 9\n[parallel]\nthreads = 1\n[run]\npredict = false\n
[study]\nranks = [1, 2]\nstrategies = ["", "pipe=2; pipeline(micro=3)", "accumulate(micro=3)"]\nseeds = 5\nweak = true\nscale_lr = true\ntarget = 12\n''')
        got = self.study(self.dir / "asked.toml", train=["train", "--seed", 7, "--data.synthetic_size", 72])
        cells = {c["name"]: c for c in self.cells()}
        self.assertEqual({(c["scaling"], c["ranks"], c["mesh"], c["strategy"]) for c in cells.values()}, {
            ("strong", 1, "", ""), ("strong", 1, "", "accumulate(micro=3)"), ("strong", 2, "", ""), ("strong", 2, "pipe=2", "pipeline(micro=3)"),
            ("weak", 2, "", ""), ("weak", 2, "pipe=2", "pipeline(micro=3)")})
        self.assertEqual(len(cells), 7)   # the serial run with one thread, and with those of all cores
        self.assertEqual(len({c["config_hash"] for c in cells.values()}), 7)
        self.assertIn("SYNTHETIC", got.stdout)
        strong, weak = got.stdout.split("\nweak scaling")
        best = max(self.speed("serial", 9), self.speed("serial-all_cores", 9))
        for name, cell in cells.items():
            config = tomllib.loads((self.out / f"runs/{name}/seed_9/config.toml").read_text())
            batch = 9 if cell["scaling"] == "strong" else 9 * cell["ranks"]
            self.assertEqual((config["data"]["batch"], config["data"]["synthetic_size"], config["optim"]["lr_base_size"]), (batch, 72, 0 if batch == 9 else 9))
            if cell["strategy"]:
                shown = [cell["strategy"], cell["mesh"] or "1"]
            else:
                shown = ["data_parallel" if cell["ranks"] > 1 else name, str(cell["ranks"])]
            row = self.row(strong if cell["scaling"] == "strong" else weak, *shown)
            last = [self.evaluations(f"{name}/seed_{s}")[-1]["test_top1"] for s in range(7, 12)]
            self.assertIn(f" {statistics.mean(last):.2f} +- {statistics.stdev(last):.2f} ", row)
            rate = self.speed(name, batch)
            self.assertIn(f" {1e3 * batch / rate:.2f} [", row)
            self.assertIn(f" {rate:.0f} ", row)
            self.assertTrue(row.endswith(" 1 (base)" if rate == best else f" {rate / best:.2f}"), (row, rate / best))
            times = sorted(self.time_to(f"{name}/seed_{s}", 0.12) for s in range(7, 12))
            reached = sum(t < float("inf") for t in times)
            self.assertIn(f" {times[2]:.1f} s ({reached}/5)" if reached > 2 else f" never ({reached}/5)", row)
        self.assertEqual(sum(line.startswith("serial") for line in weak.splitlines()), 2)   # in both tables
        order = [e["run"] for e in self.ledger() if e["status"] == "started"]
        for at in range(0, len(order), 7):   # seed by seed, all cells each time
            self.assertEqual({r.split("/")[1] for r in order[at:at + 7]}, set(cells))
            self.assertEqual(len({r.split("/")[2] for r in order[at:at + 7]}), 1)
        self.assertNotEqual([r.split("/")[1] for r in order[:7]], [r.split("/")[1] for r in order[7:14]])
        # A run directory with other settings than the study's does not count.
        path = self.out / "runs/serial/seed_8/config.toml"
        path.write_text(path.read_text().replace("epochs = 3", "epochs = 4"))
        got = self.study(train=[], status=1)
        self.assertIn("WARNING runs/serial/seed_8: its settings differ from the study's", got.stdout)
        self.assertIn(" 4 runs ", self.row(got.stdout.split("\nweak scaling")[0], "serial"))

    def speed(self, cell, batch):
        """Samples per second at the median step of its runs."""
        return batch / statistics.median(statistics.median(batch / e["images_per_s"] for e in self.evaluations(f"{cell}/seed_{s}")) for s in range(7, 12))

    def time_to(self, name, target):
        begin = next(e["time"] for e in self.ledger() if e["run"] == "runs/" + name)
        begin = time.mktime(time.strptime(begin[:19] + " UTC", "%Y-%m-%dT%H:%M:%S %Z")) - time.timezone + float(begin[19:-1])
        for line in (self.out / "runs" / name / "mllog.txt").read_text().splitlines():
            line = json.loads(line.removeprefix(":::MLLOG "))
            if line["key"] == "eval_accuracy" and line["value"] >= target:
                return line["time_ms"] / 1000 - begin
        return float("inf")

    def test_a_run_that_fails_stops_no_other_and_is_told(self):
        words = [*ranks, "--strategy", "data_parallel", "--strategy", "zero(1)", "--seeds", 1]
        blocked = self.out / "runs/strong-r2-zero_1/seed_1/config.toml"
        blocked.mkdir(parents=True)   # a directory where a run writes a file
        got = self.study(*words, status=1)
        self.assertIn("1 run failed", got.stderr)
        entries = self.ledger()
        ends = {e["cell"]: e for e in entries if e["status"] != "started"}
        self.assertEqual({c: e["status"] for c, e in ends.items()}, {"serial": "finished", "serial-all_cores": "finished", "strong-r2-data_parallel": "finished",
                                                                     "strong-r2-zero_1": "failed"})
        self.assertIn("config.toml", ends["strong-r2-zero_1"]["why"])
        self.assertIn(" single run ", self.row(got.stdout, "serial"))
        row = self.row(got.stdout, "zero(1)").split()
        self.assertEqual(row[2:], ["none", "1", "-", "-", "-", "-", "-"])   # no speed-up of what has no accuracy
        self.assertIn("4 runs started, 3 finished, 1 failed, 0 interrupted", got.stdout)
        blocked.rmdir()
        got = self.study(*words)
        self.assertIn(" single run, 1 after a failure ", self.row(got.stdout, "zero(1)"))
        self.assertEqual(self.ledger()[:len(entries)], entries)
        self.assertEqual([e["status"] for e in self.ledger()[len(entries):]], ["started", "finished"])
        self.assertIn("5 runs started, 4 finished, 1 failed, 0 interrupted", got.stdout)

    def test_what_cannot_be_run_is_refused_before_anything_starts(self):
        def refused(*words, says, more=(), kind="usage"):
            self.refused(run(*self.words(*ranks, *words, train=[*small, *more])), *says, kind=kind)
            self.assertFalse(self.out.exists())
        refused("--strategy", "nothing", says=["'nothing'", "2", "serial"])
        refused("--strategy", "zero(9)", says=["'zero(9)'", "2", "9"])
        refused("--strategy", "pipe=9; pipeline", says=["pipe=9", "9", "4"])
        refused("--strategy", "pipe=2,data=N; pipeline", "--ranks", "1,3", says=["3", "2"])
        refused("--strategy", "x; pipeline", says=["'x'"])
        refused("--strategy", "zero(1)", "--strategy", "zero(1)", says=["zero(1)"])
        refused("--strategy", "zero(1)", "--ranks", "1", says=["zero(1)"])
        refused("--ranks", "1,x", says=["--ranks", "1,x"])
        if os.cpu_count() > 1:   # the baseline would not have all cores
            self.refused(run(*self.words(*ranks, train=small), env={"OMP_NUM_THREADS": "1"}), "OMP_NUM_THREADS=1", f"1 of {os.cpu_count()} cores")
            self.assertFalse(self.out.exists())
        refused("--ranks", "0", says=["--ranks", "'0'"])
        refused("--scale_lr", says=["--scale_lr", "--weak"])
        refused("--seeds", 0, says=["--seeds"])
        refused("--target", 101, says=["--target"])
        refused(more=["--mesh", "data=2"], says=["mesh", "--strategy"])
        refused(more=["--run.dir", self.dir], says=["--run.dir"])
        refused(self.dir / "none.toml", says=["none.toml"], kind="file")
        for text, says in {"[study]\nseed = 3": ["s.toml:2", "study.seed", "seeds"], "study = 3": ["s.toml:1", "[study]"], "[study]\nstrategies = 'x'": ["s.toml:2", "strategies"],
                           "[study]\nranks = [0]": ["s.toml:2", "study.ranks"], "[study]\nranks = [1.5]": ["s.toml:2", "study.ranks"], "[stud]\nranks = [2]": ["s.toml", "stud.ranks"], "[parallel]\nranks = 2": ["parallel.ranks"]}.items():
            (self.dir / "s.toml").write_text(text)
            refused(self.dir / "s.toml", says=says)
        for path in (pathlib.Path(__file__).resolve().parents[2] / "bench/studies").glob("*.toml"):   # those that ship
            got = run("study", "run", path, "--out", self.out, "--dry_run")
            self.assertEqual((got.returncode, got.stderr), (0, ""), path)
        got = run(*self.words(*ranks, "--dry_run"))
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertIn("15 runs are left", got.stdout)
        self.assertFalse(self.out.exists())

    def test_a_directory_is_one_question(self):
        asked = [*ranks, "--seeds", 1, "--target", 50]
        self.study(*asked)
        for more, train, says in ([], ["--optim.lr", 0.1], ["optim.lr", "0.003", "0.1"]), (["--target", 60], [], ["study.target", "50.0", "60.0"]), \
                (["--strategy", "zero(1)"], [], ["study.strategies"]), (["--seeds", 2], [], ["study.seeds"]), ([], ["--seed", 2], ["seed", "1", "2"]):
            self.refused(run(*self.words(*asked, *more, train=[*small, *train])), *says)
        self.assertIn("0 runs are left", self.study(*asked, "--dry_run").stdout)
        self.refused(run(*self.words(*asked, "--strategy", "zero(1)", "--dry_run")), "study.strategies")
        entries, path = self.ledger(), self.out / "ledger.jsonl"
        text, head = path.read_text(), (self.out / "ledger.head").read_text()
        (self.out / "runs/serial/seed_1").rename(self.dir / "gone")
        path.write_text(text.replace('"seconds":0.', '"seconds":1.', 1))
        self.refused(run(*self.words(*asked)), "ledger.jsonl:1", "runs/", kind="data")
        for file in path, self.out / "ledger.head":   # without a ledger, study.db still knows its last line
            file.unlink()
        self.refused(run(*self.words(*asked)), "ledger.jsonl", entries[-1]["hash"][:12], kind="data")
        path.write_text(text)
        (self.out / "ledger.head").write_text(head)
        self.study(*asked)   # what is gone is run again
        self.assertEqual(len(self.ledger()), len(entries) + 2)
        question = (self.out / "study.toml").read_text()
        (self.out / "study.toml").write_text(question.replace("target = 50.0", "target = 40.0"))
        self.refused(run(*self.words(*asked)), "study.toml", "study.db", kind="data")
        (self.out / "study.toml").write_text(question)
        os.remove(self.out / "study.db")
        self.assertIn("study.db is gone", run("study", "report", self.out).stdout)
        self.refused(run(*self.words(*asked)), "study.db")

    def test_results_that_are_changed_later_are_found(self):
        self.study(*ranks, "--seeds", 1)
        metrics = self.out / "runs/serial/seed_1/metrics.jsonl"
        text = metrics.read_text()
        metrics.write_text(text.replace('"test_top1":', '"test_top1":9'))
        self.assertNotEqual(metrics.read_text(), text)
        got = run("study", "report", self.out)
        self.assertIn("WARNING runs/serial/seed_1: its files were changed", got.stdout)
        metrics.write_text(text)
        report = lambda folder=self.out: run("study", "report", folder).stdout
        self.assertNotIn("changed", report())
        self.assertRegex(report(), r"load: other programs used \d+ %")
        # Lines at the ledger's end that study.db has; another record of the data; a folder that is run again.
        ledger, head = self.out / "ledger.jsonl", self.out / "ledger.head"
        kept = ledger.read_text(), head.read_text()
        lines = kept[0].splitlines(keepends=True)[:-2]
        ledger.write_text("".join(lines))
        head.write_text(f"{len(lines)} {json.loads(lines[-1])['hash']}\n")
        self.assertIn(f"WARNING ledger.jsonl has {len(lines)} lines, and study.db has {len(lines) + 2} events", report())
        ledger.write_text(kept[0])
        head.write_text(kept[1])
        data = self.out / "runs/serial/seed_1/data.json"
        text = data.read_text()
        data.write_text(text + " ")
        self.assertIn("WARNING runs/serial/seed_1: its files were changed", report())
        data.write_text(text)
        shutil.rmtree(self.out / "runs/serial/seed_1")
        self.assertIn(" single run, 1 repeated ", self.row(self.study(*ranks, "--seeds", 1).stdout, "serial"))
        # Runs of another folder, in place before their first start.
        other = self.dir / "other"
        shutil.copytree(self.out / "runs/strong-r2-data_parallel", other / "runs/strong-r2-data_parallel")
        got = run("study", "run", *ranks, "--seeds", 1, "--out", other, "--", *small)
        self.assertEqual(got.returncode, 1)
        self.assertIn("its folder has files of no run of this study", got.stderr)
        self.assertEqual(run("study", "run", *ranks, "--seeds", 1, "--out", other, "--", *small).returncode, 1)
        self.assertRegex(report(other), r"data_parallel +2 +none +1 ")

    def test_ranks_as_processes(self):
        if mpiexec == "none":
            self.skipTest("needs MPI")
        got = run(*self.words(*ranks, "--seeds", 1, "--mpi"), env={"PATH": os.path.dirname(mpiexec) + ":" + os.environ["PATH"]})
        self.assertEqual(got.returncode, 0, got.stderr)
        environment = json.loads((self.out / "runs/strong-r2-data_parallel/seed_1/environment.json").read_text())
        self.assertEqual((environment["ranks"], environment["transport"] == "threads"), (2, False))


if __name__ == "__main__":
    unittests.main(sys.argv[4:])
