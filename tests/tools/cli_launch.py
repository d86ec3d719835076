"""trireme train -n: a supervised training, whose processes are killed, stopped and interrupted at random moments.
  cli_launch.py TRIREME MPIEXEC|none DATA_DIR [TEST ...]
"""
import contextlib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
import unittest

import cli
import unittests
from cli import mpiexec, trireme, unmeasured


def below(root):
    """Processes below one, with their first words."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            state, parent = (path / "stat").read_text().rsplit(") ", 1)[1].split()[:2]
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if state != "Z":
            parents[int(path.name)] = int(parent), os.path.basename(words[0].decode())
    found, new = {}, {root}
    while new:
        new = {process for process, (parent, _) in parents.items() if parent in new}
        found |= {process: parents[process][1] for process in new}
    return found


class Launch(cli.Case):
    words = ["mlp", "--data.name", "synthetic", "--data.synthetic_size", 600, "--data.batch", 6, "--epochs", 2, "--checkpoint.steps", 7, "--optim.lr", 0.001,
             "--parallel.threads", 1, "--run.progress", "lines"]   # 200 steps
    long = [*words, *unmeasured, "--data.synthetic_size", 600000, "--epochs", 1, "--checkpoint.steps", 0]

    def launch(self, options, words, name="run", env=None):
        line = [trireme, "train", *options, *words, "--run.dir", self.dir / name]
        process = subprocess.Popen([str(w) for w in line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})
        def end():
            process.kill()
            process.communicate()
        self.addCleanup(end)
        return process

    def ended(self, process, status, name="run", timeout=120):
        out, said = process.communicate(timeout=timeout)
        self.assertIn(process.returncode, status if isinstance(status, tuple) else (status,), said)
        self.assertEqual(self.processes(name), [], "left behind")
        path = self.dir / name / "result.json"
        return (json.loads(path.read_text()) if path.exists() else {}), said

    def processes(self, name):
        """Of the run, wherever they are in the tree."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words, state = path.read_bytes().split(b"\0"), (path.parent / "stat").read_text().rsplit(") ", 1)[1][0]
            except OSError:
                continue
            if str(self.dir / name).encode() in words and state != "Z":
                found.append(int(path.parent.name))
        return found

    def until(self, process, ready):
        end = time.monotonic() + 60
        while not ready():
            self.assertIsNone(process.poll(), "it ended early")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def trains(self, name="run"):
        path = self.dir / name / "metrics.jsonl"
        return path.exists() and "train" in path.read_text()

    def layouts(self):
        return [["--launcher", "threads", "--ranks", 2]] + ([["-np", 2]] if mpiexec != "none" else [])

    def test_it_finishes(self):
        self.trained(*self.words, *unmeasured, "--ranks", 2, name="whole")
        for i, options in enumerate(self.layouts()):
            result, said = self.ended(self.launch(options, self.words, f"run{i}"), 0, f"run{i}")
            self.assertEqual((result["exit"], result["status"], result["restarts"], result["step"]), ("finished", "finished", 0, 200))
            self.assertGreater(result["best"]["test_top1"], 0)
            self.assertEqual([(a["ranks"], a["status"], a["step"]) for a in result["attempts"]], [(2, 0, 200)])
            self.assertEqual(self.digests(f"run{i}"), self.digests("whole"))
            self.assertIn("launch: attempt 1: ", said)

    def test_what_is_killed_goes_on_with_the_same_bits(self):
        """The command, a helper of it or a rank, at a random moment of each layout, saves included. TRIREME_KILLS: how many of each layout (1; tests/long.sh)."""
        # Each stage writes a file of its own: two runs that measured where to cut may have other files.
        net = ["lenet5", "--data.name", "synthetic", "--data.synthetic_size", 800, "--data.batch", 8, "--epochs", 1, "--checkpoint.steps", 4, "--parallel.threads", 1, *unmeasured]
        layouts = [("data=4", "data_parallel"), ("pipe=2,data=2", "pipeline(micro=2, partition=even) | data_parallel"), ("tensor=2,data=2", "tensor | data_parallel"), ("h=2", "spatial"),
                   ("data=3", "zero(3)"), ("data=2", "zero(1)"), ("data=2,copies=2", "data_parallel | zero(3, axis=copies)")]
        seed = time.time_ns()
        draw, counts = random.Random(seed), {"killed": 0, "restarted": 0}
        rounds, first = int(os.environ.get("TRIREME_KILLS", 1)), draw.randrange(2)
        for number, (mesh, strategy) in enumerate(layouts, first):   # by processes and by threads in turn
            whole = "whole-" + mesh.replace("=", "")
            words = [*net, "--mesh", mesh, "--strategy", strategy]
            self.trained(*words, name=whole)
            for i in range(rounds):
                with self.subTest(mesh=mesh, strategy=strategy, round=i, seed=seed):
                    name = f"{whole}-{i}"
                    process = self.launch(["--max-restarts", 3] if mpiexec != "none" and (number + i) % 2 == 0 else ["--launcher", "threads"], words, name)
                    self.until(process, lambda: self.trains(name))
                    time.sleep(draw.uniform(0, 0.3))
                    victims = below(process.pid)
                    if victims:
                        os.kill(draw.choice(sorted(victims)), signal.SIGKILL)
                        counts["killed"] += 1
                    result, said = self.ended(process, 0, name)
                    counts["restarted"] += result["restarts"]
                    self.assertLessEqual(result["restarts"], 1, said)
                    self.assertEqual(self.digests(name), self.digests(whole), (victims, said))
                    self.assertEqual(result["step"], 100)
        print(f"kills: {counts['killed']}, restarts: {counts['restarted']}, seed {seed}", file=sys.stderr)
        self.assertGreater(counts["restarted"], 0)

    def test_a_stopped_rank_does_not_stay(self):
        for name, options in enumerate(self.layouts()):
            process = self.launch([*options, "--grace", 2], self.long, str(name))
            self.until(process, lambda: self.trains(str(name)))
            os.kill(draw_rank(process.pid), signal.SIGSTOP)
            process.send_signal(signal.SIGTERM)
            result, said = self.ended(process, 128 + signal.SIGTERM, str(name))
            self.assertIn("2 s", result["exit"])

    @unittest.skipIf(mpiexec == "none", "without MPI")
    def test_the_others_of_a_stopped_rank_are_not_waited_for(self):
        """Its fellows time out and leave; mpiexec would wait for it for ever."""
        process = self.launch(["-np", 3, "--grace", 2, "--max-restarts", 0], self.long, env={"TRIREME_TIMEOUT": "2"})
        self.until(process, self.trains)
        os.kill(draw_rank(process.pid), signal.SIGSTOP)
        result, said = self.ended(process, (1, 68))   # the others end by a signal, or tell that it is gone
        self.assertRegex(result["attempts"][0]["reason"], "silent")

    def test_signals_save(self):
        for name, (options, signals) in enumerate([(o, s) for o in self.layouts() for s in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]):
            process = self.launch(options, self.long, str(name))
            self.until(process, lambda: self.trains(str(name)))
            process.send_signal(signals)
            result, said = self.ended(process, 85, str(name))
            self.assertEqual((result["exit"], result["status"], result["restarts"]), ("preempted", "preempted", 0))
            self.assertIn("the state is saved", said)
        process = self.launch(self.layouts()[0], [*self.long, "--run.fault", "sleep:0:21"], "twice")   # a step that does not end
        self.until(process, lambda: self.trains("twice"))
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        result, said = self.ended(process, 130, "twice")
        self.assertEqual(result["exit"], "interrupted twice")

    def test_a_job_that_trained_nothing_is_not_finished(self):
        """mpiexec ends with 0 when it is interrupted as it starts; result.json is an earlier training's."""
        fake, ready = self.dir / "bin", self.dir / "ready"
        fake.mkdir()
        (fake / "mpiexec").write_text(f"#!/bin/sh\ntrap 'exit 0' TERM\necho x >>{ready}\n[ -e {self.dir}/stays ] || exit 0\nwhile :; do sleep 0.05; done\n")
        (fake / "mpiexec").chmod(0o755)
        (self.dir / "run").mkdir()
        old = '{"status": "finished", "step": 12, "exit": "finished"}'
        for stale in old, None:
            for signals in [], [signal.SIGTERM]:
                with self.subTest(stale=stale, signals=signals):
                    (self.dir / "run/result.json").unlink(missing_ok=True)
                    if stale:
                        (self.dir / "run/result.json").write_text(stale)
                    ready.unlink(missing_ok=True)
                    (self.dir / "stays").touch() if signals else (self.dir / "stays").unlink(missing_ok=True)
                    process = self.launch(["-np", 2, "--launcher", "mpiexec", "--max-restarts", 2 if signals else 0], [*self.words, *unmeasured], env={"PATH": f"{fake}:{os.environ['PATH']}"})
                    if signals:
                        self.until(process, ready.exists)
                        process.send_signal(signals[0])
                    result, said = self.ended(process, 128 + signal.SIGTERM if signals else 1)
                    self.assertEqual((result["status"], len(result["attempts"])), ("failed", 1), said)
                    self.assertNotIn("step", result)
                    self.assertEqual(ready.read_text(), "x\n")

    @unittest.skipIf(mpiexec == "none", "without MPI")
    def test_a_rank_that_is_stopped_as_MPI_starts(self):
        """Named, ended after six times TRIREME_TIMEOUT, and started again."""
        process = self.launch(["-np", 2, "--max-restarts", 1], [*self.words, *unmeasured], env={"TRIREME_TIMEOUT": "1"})
        victims = []
        while not victims:   # rank 1, as soon as it is there
            self.assertIsNone(process.poll())
            for pid, name in below(process.pid).items():
                with contextlib.suppress(OSError):
                    if name == os.path.basename(trireme) and b"PMI_RANK=1" in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                        os.kill(pid, signal.SIGSTOP)
                        victims.append(pid)
        result, said = self.ended(process, 0)
        self.assertEqual((result["status"], result["restarts"]), ("finished", 1), said)
        self.assertIn(f"rank 1 (process {victims[0]}, stopped)", result["attempts"][0]["reason"])

    def test_it_gives_up(self):
        for name, options in enumerate(self.layouts()):
            process = self.launch([*options, "--max-restarts", 1], [*self.words, *unmeasured, "--run.fault", "throw:1:10"], str(name))
            result, said = self.ended(process, 71, str(name))
            self.assertEqual((result["status"], result["restarts"], len(result["attempts"])), ("failed", 1, 2))
            self.assertEqual([a["kind"] for a in result["attempts"]], ["internal", "internal"])
            self.assertIn("rank 1: run.fault", said.splitlines()[-1])
            self.assertEqual([a["step"] for a in result["attempts"]], [7, 7])

    def test_wrong_words(self):
        good = ["mlp", "--run.dir", self.dir / "none"]
        hosts = self.dir / "hosts"
        for words, text in ((["-n", 1, "mlp"], "--run.dir"), (["-n", 1, "mlp", "--optim.rl", 1], "optim.lr"),
                            (["-n", 1, "mlp", "--optim.lr", -1], "optim.lr"), (["-np", 0, *good], "0"), (["--max-restarts", -1, *good], "-1"),
                            (["-H", "a:0", *good], "'0'"), (["-H", "a:2,a:2", *good], "host a"), (["-H", ",", *good], "hosts"),
                            (["-H", "a:2", "-np", 3, *good], "3 ranks"), (["-np", 2, "--min-ranks", 3, *good], "--min-ranks is 3"),
                            (["--hostfile", hosts, *good], "hosts:2: "),
                            (["-H", "a:1", "--hostfile", hosts, *good], "hosts"), (["--launcher", "ssh", *good], "ssh"),
                            (["-H", "a:2", "--launcher", "threads", *good], "mpiexec"), (["-np", 2, *good, "--mesh", "data=3"], "data=3"),
                            (["--min-ranks", 2, *good, "--mesh", "data=3"], "--parallel.mesh"), (["-n", 4, "mlp", "--virtual", 4, "--run.dir", "x"], "--virtual")):
            hosts.write_text("# none\na slots=two\n")
            self.refused(cli.run("train", *words), text, status=2)
            self.assertFalse((self.dir / "none").exists())
        os.mkfifo(self.dir / "pipe")
        # Not there, a folder, without an end, and without a writer:
        for missing in self.dir / "nothing", self.dir, "/dev/zero", self.dir / "pipe":
            self.refused(cli.run("train", "--hostfile", missing, *good), missing, kind="file")
        for writer, text in ("true", "pipe names no host"), ("echo a:2; sleep 0.2; echo b slots=two", "pipe:2: 'two'"):
            with subprocess.Popen(["bash", "-c", f"({writer}) > {self.dir}/pipe"]):
                self.refused(cli.run("train", "--hostfile", self.dir / "pipe", *good), text, status=2)
        (self.dir / "old").mkdir()
        (self.dir / "old/result.json").write_text('{"status": 3}')   # damaged; the training writes none
        got = cli.run("train", "--launcher", "threads", "--max-restarts", 0, "mlp", "--data", "synthetic", "--weights", self.dir / "nothing", "--run.dir", self.dir / "old")
        self.assertEqual(got.returncode, 66, got.stderr)
        got = cli.run("train", "-np", 2, "--launcher", "mpiexec", *good, env={"PATH": str(self.dir)})
        self.assertIn("mpiexec", got.stderr)
        self.assertEqual(got.returncode, 66)


def draw_rank(root):
    return random.choice([p for p, name in below(root).items() if name == os.path.basename(trireme)])


if __name__ == "__main__":
    unittests.main(sys.argv[4:])
