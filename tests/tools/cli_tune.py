"""trireme study: searches whose coordinator, workers and trials are killed at random moments, several workers on one folder, and what they print.
  cli_tune.py TRIREME MPIEXEC|none DATA_DIR [TEST ...]
"""
import collections
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import tomllib

import cli
import runs
import unittests
from cli import mpiexec, processes, run, trireme, unmeasured

training = ["train", "mlp", "--data.name", "synthetic", "--data.synthetic_size", 120, "--data.batch", 12, "--epochs", 3, "--parallel.threads", 1, *unmeasured]
space = '''
[space]
optim.lr = {type = "log", low = 1e-4, high = 0.1}
"optim.name" = {type = "choice", values = ["adam", "sgd"]}
"optim.momentum" = {type = "uniform", low = 0.5, high = 0.99, only_if = {"optim.name" = "sgd"}}
'''


class Tune(cli.Case):
    def setUp(self):
        super().setUp()
        self.out = self.dir / "search"
        self.addCleanup(self.end_all)

    def asked(self, space=space, **options):
        path = self.dir / "space.toml"
        path.write_text("[tune]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in options.items()) + space)
        return path

    def words(self, *more, out=None, train=training):
        return ["run", *more, "--out", out or self.out, "--", *train]

    def tune(self, *words, status=0, env=None):
        got = run("study", *words, env=env)
        self.assertEqual(got.returncode, status, got.stderr)
        return got

    def start(self, *words, wrap=()):
        process = subprocess.Popen([str(w) for w in [*wrap, trireme, "study", *words]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        return process

    def end_all(self):
        for process in processes(self.out):
            try:
                os.kill(process, signal.SIGKILL)
            except OSError:
                pass

    def rows(self, query, out=None):
        with sqlite3.connect(f"file:{out or self.out}/study.db?mode=ro", uri=True) as db:
            return db.execute(query).fetchall()

    def check(self, out=None):
        """The books agree with each other and with what the runs wrote. Returns values by trial and epoch."""
        out = out or self.out
        trials = {row[0]: row[1:] for row in self.rows("SELECT id, status, target, parent, from_epoch, attempts FROM trials", out)}
        values = {(t, e): v for t, e, v in self.rows("SELECT trial, epoch, value FROM reports", out)}
        for trial, (status, target, parent, from_epoch, attempts) in trials.items():
            self.assertIn(status, ("finished", "paused", "stopped"))
            mine = [e for t, e in sorted(values) if t == trial]
            if status != "stopped" or not mine or mine[-1] == target:
                self.assertEqual(mine, list(range(from_epoch + 1, target + 1)))
            lines = [json.loads(line) for line in (out / f"trials/{trial:04}/metrics.jsonl").read_text().splitlines()]
            written = {line["epoch"]: line["test_top1"] for line in lines if line["kind"] == "eval"}
            self.assertEqual(len([line for line in lines if line["kind"] == "eval"]), len(written))
            for epoch in mine:
                self.assertEqual(written[epoch], values[trial, epoch])
        ledger, before, opened = (out / "ledger.jsonl").read_bytes().splitlines(), "", collections.Counter()
        events = self.rows("SELECT id, trial, status FROM events ORDER BY id", out)
        self.assertEqual(len(ledger), len(events))
        for line, (number, trial, status) in zip(ledger, events):
            entry = json.loads(line)
            self.assertEqual((entry["number"], entry["run"], entry["status"], entry["previous"]), (number, f"trials/{trial:04}", status, before))
            self.assertEqual(hashlib.sha256(line.rsplit(b',"hash":"', 1)[0]).hexdigest(), entry["hash"])
            before = entry["hash"]
            opened[trial] += 1 if status == "started" else -1
            self.assertIn(opened[trial], (0, 1))
        self.assertEqual(set(opened.values()), {0})
        self.assertEqual({t: attempts for t, (*_, attempts) in trials.items()}, collections.Counter(t for _, t, s in events if s == "started"))
        return values

    def test_killed_at_random_moments_it_comes_to_the_same_end(self):
        seed = random.randrange(10 ** 6)
        print("seed", seed, file=sys.stderr)
        dice = random.Random(seed)
        words = self.words(self.asked(trials=4, parallel=2, retries=100))
        whole = self.dir / "whole"
        self.tune("run", self.dir / "space.toml", "--out", whole, "--", *training)
        expected = self.check(whole)
        self.assertEqual(len(expected), 12)
        ends = []
        for number in (signal.SIGKILL, signal.SIGTERM):   # of the coordinator; its workers and trials meanwhile
            process = self.start(*words)
            until = time.monotonic() + dice.uniform(0.3, 1.2)
            while time.monotonic() < until and process.poll() is None:
                time.sleep(dice.uniform(0.05, 0.3))
                below = processes(self.out, "--run.max_steps" if dice.random() < 0.7 else "--worker")
                if below:
                    try:
                        os.kill(dice.choice(list(below)), signal.SIGKILL)
                    except OSError:
                        pass
            ends.append(self.signalled(process, number, self.out))
        last = self.tune(*words)
        self.assertEqual(self.check(), expected, ends)
        self.assertEqual(len(self.rows("SELECT * FROM trials")), 4)
        again = self.tune("run", "--out", self.out)   # nothing is left
        self.assertEqual(again.stdout, last.stdout)
        self.assertIn("trials asked for: 4, then 5", self.tune("run", "--out", self.out, "--trials", 5).stdout)
        self.assertEqual(len(self.check()), 15)

    def test_workers_of_two_hosts_on_one_search(self):
        """As far as one machine has them: namespaces of processes and networks of their own, so that nobody sees whether the other lives."""
        self.tune(*self.words(self.asked(algorithm="asha", trials=8, epochs=4, eta=2, lease=1), "--slurm", 2, "--dry_run"))
        host = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        if subprocess.run([*host, "true"], capture_output=True).returncode:
            host = []
        first = self.start("run", "--worker", self.out, wrap=host)
        second = self.start("run", "--worker", self.out)
        time.sleep(0.6)
        for process in processes(self.out, "--worker"):   # one host goes down, all at once
            try:
                if b"unshare" in pathlib.Path(f"/proc/{process}/cmdline").read_bytes():
                    os.kill(process, signal.SIGKILL)
            except OSError:
                pass
        if not host:
            first.kill()
        first.communicate(timeout=60)
        third = self.start("run", "--worker", self.out, wrap=host)
        for process in (second, third):
            said = process.communicate(timeout=60)[1]
            self.assertEqual(process.returncode, 0, said)
        values = self.check()
        trials = self.rows("SELECT id, status, target FROM trials")
        self.assertEqual(len(trials), 8)
        reached = collections.Counter(target for _, _, target in trials)
        self.assertEqual(set(reached), {1, 2, 4})
        self.assertGreaterEqual(reached[2] + reached[4], 4)
        self.assertGreaterEqual(reached[4], 2)
        self.assertEqual({status for _, status, target in trials if target == 4}, {"finished"})
        self.assertEqual(len(values), sum(target for _, _, target in trials))

    def test_what_it_has_come_to(self):
        got = self.tune(*self.words(self.asked(trials=9, parallel=2, algorithm="tpe", startup=4, objective="-test_loss")))
        self.assertIn("SYNTHETIC DATA", got.stdout)
        self.assertIn("9 of 9 trials, 27 epochs in all", got.stdout)
        losses = {}
        for trial in range(1, 10):
            lines = [json.loads(line) for line in (self.out / f"trials/{trial:04}/metrics.jsonl").read_text().splitlines()]
            losses[trial] = [line["test_loss"] for line in lines if line["kind"] == "eval"][-1]
            config = tomllib.loads((self.out / f"trials/{trial:04}/config.toml").read_text())
            point = json.loads(self.rows(f"SELECT point FROM trials WHERE id = {trial}")[0][0])
            self.assertEqual((str(config["optim"]["lr"]), config["optim"]["name"]), (str(float(point["optim.lr"])), point["optim.name"]))
            self.assertEqual("optim.momentum" in point, point["optim.name"] == "sgd")
        order = sorted(losses, key=losses.get)
        rows = got.stdout.splitlines()[2:11]
        self.assertEqual([int(row.split()[0]) for row in rows], order)
        self.assertIn(f"best: trial {order[0]}, test_loss {losses[order[0]]:.6g}: ", got.stdout)
        shown = self.tune("report", self.out)
        self.assertEqual(shown.stdout, got.stdout)
        page = self.dir / "page.json"
        read = runs.load_search(self.out)
        self.assertEqual({t["id"]: t["values"][-1][1] for t in read["trials"]}, losses)
        for words in (["study", "report", self.out, "--out", page], ["report", self.out, "--out", page]):
            self.assertEqual(run(*words).returncode, 0)
            found = json.loads(page.read_text())
            self.assertEqual((found["kind"], found["synthetic"], found["best"], len(found["reports"])), ("search", True, order[0], 27))
            self.assertEqual((found["question"]["objective"], found["question"]["lower_is_better"]), ("test_loss", True))
            self.assertEqual([t["trial"] for t in found["rows"]], order)
            for t in found["rows"]:
                other = next(o for o in read["trials"] if o["id"] == t["trial"])
                self.assertEqual(({k: str(v) for k, v in t["settings"].items()}, t["values"]), ({k: str(type(t["settings"][k])(v)) for k, v in other["settings"].items()}, other["values"]))
                momentum = [p["name"] for p in found["question"]["parameters"]].index("optim.momentum")
                self.assertEqual(t["places"][momentum] is None, t["settings"]["optim.name"] == "adam")
            self.assertEqual((found["importance"]["epoch"], found["importance"]["trials"], len(found["importance"]["shares"])), (3, 9, len(found["question"]["parameters"])))
            page.unlink()

    def test_the_test_set_chooses_nothing(self):
        """With a validation split trials are compared by it, and the best one's number on the test set is printed apart."""
        grid = '[space]\n"optim.lr" = {type = "choice", values = ["0.0001", "0.01"]}\n'
        split = [*training, "--data.validation_split", 0.25]
        got = self.tune(*self.words(self.asked(space=grid, algorithm="grid"), train=split))
        lines = {t: [json.loads(line) for line in (self.out / f"trials/{t:04}/metrics.jsonl").read_text().splitlines()] for t in (1, 2)}
        values = {t: [line["val_top1"] for line in own if line["kind"] == "eval"][-1] for t, own in lines.items()}
        best = max(values, key=lambda t: (values[t], -t))
        tests = [line for line in lines[best] if "test_top1" in line]
        self.assertEqual([line["kind"] for line in tests], ["test"])
        self.assertIn(f"best: trial {best}, val_top1 {values[best]:.6g}: ", got.stdout)
        self.assertIn(f" test_top1 {tests[0]['test_top1']:.6g}", got.stdout)
        out = self.dir / "halving"   # a trial that pauses does not use the test set
        self.tune(*self.words(self.asked(space=grid, algorithm="asha", trials=4, epochs=4, eta=2), train=split, out=out))
        targets = dict(self.rows("SELECT id, target FROM trials", out))
        self.assertIn(4, targets.values())
        self.assertNotEqual({4}, set(targets.values()))
        for trial, target in targets.items():
            kinds = [json.loads(line)["kind"] for line in (out / f"trials/{trial:04}/metrics.jsonl").read_text().splitlines()]
            self.assertEqual(kinds.count("test"), target == 4, trial)
        for objective, train, says in ("test_top1", split, "val_top1"), ("val_top1", training, "data.validation_split"):
            self.refused(run("study", *self.words(self.asked(space=grid, objective=objective), train=train, out=self.dir / "x")), objective, says)

    def test_what_is_changed_later_is_named(self):
        self.tune(*self.words(self.asked(trials=2)))
        report = lambda: self.tune("report", self.out).stdout
        self.assertNotIn("ledger: ", report())
        metrics = self.out / "trials/0001/metrics.jsonl"
        text = metrics.read_text()
        (self.out / "study.db").rename(self.dir / "kept.db")
        def says(words, change):
            shutil.copy(self.dir / "kept.db", self.out / "study.db")
            with sqlite3.connect(self.out / "study.db") as db:
                db.execute(change)
            self.assertIn(words, report())
            metrics.write_text(text)
        says("which its training did not report", "INSERT INTO reports VALUES(1, 9, 100, 1)")
        says("another question or other settings", "UPDATE study SET value = replace(value, 'synthetic_size = 120', 'synthetic_size = 2000') WHERE key = 'settings'")
        metrics.write_text(re.sub(r'"test_top1":[0-9.]+', '"test_top1":100.0', text))
        says("trials/0001: its files were changed or removed", "UPDATE reports SET value = 100 WHERE trial = 1")

    def test_a_population_copies_and_perturbs(self):
        self.tune(*self.words(self.asked(space='[space]\n"optim.lr" = {type = "log", low = 1e-5, high = 0.5}\n', algorithm="pbt", trials=3, epochs=3, parallel=2, quantile=0.5)))
        self.check()
        children = self.rows("SELECT id, parent, from_epoch FROM trials WHERE parent > 0")
        self.assertGreater(len(children), 0)
        for trial, parent, epoch in children:
            mine, theirs = ([json.loads(line) for line in (self.out / f"trials/{t:04}/metrics.jsonl").read_text().splitlines()] for t in (trial, parent))
            self.assertEqual([line for line in mine if line["epoch"] <= epoch], [line for line in theirs if line["epoch"] <= epoch])
            last, next_ = ([line["step"] for line in mine if line["kind"] == "eval" and line["epoch"] == epoch + i] for i in (0, 1))
            self.assertEqual((last, next_), ([10 * epoch], [10 * epoch + 10]))
            rates = [tomllib.loads((self.out / f"trials/{t:04}/config.toml").read_text())["optim"]["lr"] for t in (trial, parent)]
            self.assertNotEqual(*rates)

    def test_median_rule_and_failed_trials(self):
        wild = '[space]\n"optim.lr" = {type = "choice", values = ["0.001", "1e30"]}\n'
        got = self.tune(*self.words(self.asked(space=wild, trials=5, algorithm="random"), train=[*training, "--optim.name", "sgd", "--run.finite_steps", 1]))
        status = collections.Counter(s for s, in self.rows("SELECT status FROM trials"))
        self.assertEqual(set(status), {"finished", "failed"})
        self.assertIn("loss is nan", self.rows("SELECT why FROM trials WHERE status = 'failed'")[0][0])
        self.assertIn(f"{status['failed']} failed", got.stdout)
        attempts = self.rows("SELECT sum(attempts) FROM trials")[0][0]
        self.tune("run", "--out", self.out)
        self.assertEqual(self.rows("SELECT sum(attempts) FROM trials")[0][0], attempts)
        self.tune("run", "--out", self.out, "--retry")
        self.assertEqual(self.rows("SELECT sum(attempts) FROM trials")[0][0], attempts + status["failed"])
        slow = self.dir / "slow"
        self.tune(*self.words(self.asked(trials=5, median_stop=True, startup=2, algorithm="random", seed=3), out=slow, train=[*training, "--data.synthetic_size", 600, "--epochs", 6]))
        stopped = self.rows("SELECT id, why FROM trials WHERE status = 'stopped'", slow)
        for trial, why in stopped:
            self.assertIn("below the median", why)
        self.check(slow)

    def test_trials_that_diverge_are_results(self):
        """However many begin the search, it goes on; the same command does not try them again."""
        steep = '[space]\n"optim.lr" = {type = "choice", values = ["1e30", "1e31", "1e32", "1e33", "0.001"]}\n'
        words = self.words(self.asked(space=steep, algorithm="grid"), train=[*training, "--optim.name", "sgd"])
        got = self.tune(*words)
        rows = self.rows("SELECT status, why FROM trials ORDER BY id")
        self.assertEqual([status for status, why in rows], 4 * ["failed"] + ["finished"])
        for status, why in rows[:4]:
            self.assertRegex(why, "(nan|inf)")
        self.assertIn("best: trial 5", got.stdout)
        self.tune(*words)
        self.assertEqual(self.rows("SELECT sum(attempts) FROM trials"), [(5,)])

    def test_a_grid_is_whole_or_says_what_is_left_out(self):
        grid = '[space]\n"optim.lr" = {type = "choice", values = [0.1, 0.01, 0.001]}\n"data.batch" = {type = "choice", values = [2, 4, 8, 16, 30, 40, 60, 120]}\n'
        got = self.tune(*self.words(self.asked(space=grid, algorithm="grid"), "--dry_run"))
        self.assertIn("trials = 24\n", got.stdout)
        self.assertEqual(got.stderr, "")
        got = self.tune(*self.words(self.asked(space=grid, algorithm="grid", trials=20), "--dry_run"))
        self.assertIn("trials = 20\n", got.stdout)
        for number in "24", "20":
            self.assertIn(number, got.stderr)

    def test_a_program_that_is_rebuilt_meanwhile(self):
        """The coordinator and its workers go on with the new file: none of their trials fails, and no worker ends."""
        program = self.dir / "build/tools/trireme"
        program.parent.mkdir(parents=True)
        shutil.copy(os.path.realpath(trireme), program)
        for library in pathlib.Path(os.path.realpath(trireme)).parent.parent.glob("libtrireme.so*"):
            (program.parent.parent / library.name).symlink_to(library)
        words = self.words(self.asked(trials=4, epochs=3), train=[*training, "--data.synthetic_size", 1200])
        process = subprocess.Popen([str(w) for w in [program, "study", *words]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (process.kill(), process.communicate()))
        until = time.monotonic() + 60
        while time.monotonic() < until and not (self.out / "trials/0001/metrics.jsonl").exists():
            time.sleep(0.02)
        shutil.copy(program, program.with_name("new"))
        os.replace(program.with_name("new"), program)
        said = process.communicate(timeout=120)[1]
        self.assertEqual(process.returncode, 0, said)
        self.assertNotIn("another is started", said)
        self.check()
        self.assertEqual(self.rows("SELECT count(*), sum(attempts) FROM trials"), [(4, 4)])

    def test_refused(self):
        def refused(*words, says, kind="usage"):
            self.refused(run("study", *words), *says, kind=kind)
            self.assertFalse(self.out.exists())
        path = self.asked(trials=3)
        refused("run", path, "--", *training, says=["--out"])
        refused("run", path, "--out", self.out, says=["--"])
        refused(*self.words(self.dir / "none.toml"), says=["none.toml"], kind="file")
        refused(*self.words(path, train=["train", "mlpp"]), says=["mlpp"])
        refused(*self.words(path, train=["train", "mlp", "--run.dir", self.dir]), says=["study"])
        refused(*self.words(path, train=["train", "mlp", "--virtual", 2]), says=["study"])
        refused(*self.words(path, train=["train", "mlp", "--optim.lrr", 2]), says=["optim.lr"])
        refused(*self.words(path, "x"), says=["'x'"])
        refused("run", "--worker", self.out, says=[self.out], kind="file")
        refused("report", self.out, says=[self.out], kind="file")
        refused("report", says=["report"])
        for damaged in b"", b"SQLite format 3", bytes(4096):
            self.out.mkdir()
            (self.out / "study.db").write_bytes(damaged)
            self.refused(run("study", "report", self.out), self.out / "study.db", kind="data")
            shutil.rmtree(self.out)
        refused(*self.words(self.asked(objective="test_f1")), says=["test_f1"])
        refused(*self.words(self.asked(space='[space]\n"optim.lr" = {type = "log", low = 1, high = 1}\n')), says=["space.toml:3"])
        refused(*self.words(self.asked(space="")), says=["space"])

    def test_an_objective_that_is_never_reported_and_trainings_that_fail(self):
        path = self.asked(trials=5, parallel=2, objective="tokens_per_s")
        got = run("study", *self.words(path))
        self.refused(got, "tokens_per_s", "test_top1")
        self.assertFalse(processes(self.out))
        other = self.dir / "other"
        got = run("study", *self.words(self.asked(trials=5), out=other, train=[*training, "--data.name", "mnist", "--data.root", self.dir / "nothing"]))
        self.refused(got, 3, "nothing")
        self.tune(*self.words(self.asked(trials=2), out=self.dir / "third"))
        got = run("study", *self.words(self.asked(trials=2, seed=2), out=self.dir / "third"))
        self.refused(got, "tune.seed", "1", "2")
        got = run("study", "run", "--out", self.dir / "third", "--trials", 1)
        self.refused(got, "--trials")
        with sqlite3.connect(self.dir / "third/study.db") as db:
            db.execute("UPDATE trials SET status = 'done'")
        self.refused(run("study", "run", "--out", self.dir / "third"), "'done'", kind="data")   # by its worker, once

    def test_slurm_script_and_dry_run(self):
        path = self.asked(trials=2, ranks=2, launcher="mpiexec")
        got = self.tune(*self.words(path, "--dry_run"))
        self.assertIn("trial 2, 3 epochs: optim.lr=", got.stdout)
        self.assertFalse(self.out.exists())
        bin = self.dir / "bin"
        bin.mkdir()
        (bin / "sbatch").write_text(f'#!/bin/sh\necho "$@" >{self.dir}/submitted\n')
        (bin / "sbatch").chmod(0o755)
        got = self.tune(*self.words(path, "--slurm", 7), env={"PATH": f"{bin}:{os.environ['PATH']}"})
        script = (self.out / "workers.sbatch").read_text()
        self.assertEqual((self.dir / "submitted").read_text().strip(), str(self.out / "workers.sbatch"))
        for line in ("#!/bin/bash", "#SBATCH --array=1-7", "#SBATCH --ntasks=2", "#SBATCH --cpus-per-task=1", "#SBATCH --signal=B:TERM@120", f"exec '{os.path.realpath(trireme)}' study run --worker '{self.out}'"):
            self.assertIn(line, script.splitlines())
        self.assertEqual(subprocess.run(["bash", "-n", self.out / "workers.sbatch"]).returncode, 0)
        if mpiexec != "none":   # what a task of the array does
            got = subprocess.run(["bash", self.out / "workers.sbatch"], capture_output=True, text=True, env={**os.environ, "PATH": os.path.dirname(mpiexec) + ":" + os.environ["PATH"]})
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertEqual(len(self.check()), 6)
            self.assertEqual(json.loads((self.out / "trials/0001/environment.json").read_text())["ranks"], 2)


if __name__ == "__main__":
    unittests.main(sys.argv[4:])
