"""Language models as their users meet them: trained on a file of text, evaluated, exported, and writing.
  cli_text.py TRIREME MPIEXEC|none
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest

import unittests

trireme, mpiexec = os.environ.get("TRIREME_EXE", sys.argv[1]), sys.argv[2]
words = ("déjà vu to be or not that is the question whether nobler in mind suffer slings and arrows of outrageous fortune "
         "take arms against sea troubles by opposing end them ").split(" ")
small = ["--arch.layers", 2, "--arch.heads", 2, "--arch.width", 32, "--arch.dropout", 0]
settings = [*small, "--data.context", 24, "--data.batch", 16, "--optim.name", "adamw", "--optim.lr", 0.01, "--optim.schedule", "constant"]


def run(*words, ranks=None):
    launch = [mpiexec, "-n", str(ranks)] if ranks else []
    return subprocess.run([*launch, trireme, *map(str, words)], capture_output=True, timeout=300)


class Text(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.folder.name)
        cls.file = cls.dir / "text.txt"
        cls.file.write_text("".join(words[i * i % 37 % len(words)] + ("\n" if i % 11 == 10 else " ") for i in range(3000)))
        for tokenizer in "chars", "bytes":
            got = run("train", "gpt2", "--data", "text", "--data.root", cls.file, "--data.tokenizer", tokenizer, *settings, "--data.windows", 4800, "--epochs", 1,
                      "--run.dir", cls.dir / tokenizer, "--run.progress", "lines")
            assert got.returncode == 0, got.stderr
            cls.told = got.stderr.decode()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def refused(self, got, *values, kind="usage"):
        self.assertEqual(got.returncode, unittests.statuses[kind], got.stderr)
        for value in values:
            self.assertIn(str(value), got.stderr.decode())

    def written(self, *words):
        """Objects that generate --json printed."""
        got = run("generate", *words, "--json")
        self.assertEqual(got.returncode, 0, got.stderr)
        return [json.loads(line) for line in got.stdout.decode().splitlines()]

    def test_a_prompt_longer_than_the_context(self):
        positions = settings[settings.index("--data.context") + 1]
        long = "to be " * int(positions)
        self.refused(run("generate", self.dir / "chars", "--prompt", long, "--tokens", 2), len(long), positions)

    def test_training_tells_of_tokens(self):
        self.assertRegex(self.told, r"test loss [\d.]+, perplexity [\d.]+, bits_per_byte [\d.]+, \d+ tokens/s")
        last = json.loads((self.dir / "bytes/metrics.jsonl").read_text().splitlines()[-1])
        self.assertLess(last["test_perplexity"], 30)
        self.assertNotIn("test_top1", last)
        for ranks in 1, 2:
            got = run("eval", self.dir / "bytes", "--ranks", ranks)
            self.assertIn(f"perplexity {last['test_perplexity']:.4g}"[:-1], got.stdout.decode(), got.stderr)

    def test_the_run_directory_is_all_that_generate_wants(self):
        moved = self.dir / "moved"
        (self.dir / "chars").rename(moved)
        self.file.rename(self.dir / "gone.txt")
        try:
            one, = self.written(moved, "--prompt", "whether ", "--tokens", 50, "--temperature", 0)
            self.assertEqual(one["tokens"], 50)
            self.assertTrue(set(one["text"].split()[1:-1]) & set(words), one)
            newest = sorted((moved / "checkpoints").glob("step_*"))[-1]
            self.assertEqual(self.written(newest, "--prompt", "whether ", "--tokens", 50, "--temperature", 0), [one])
            self.assertEqual(self.written(moved, "--weights", newest / "model.safetensors", "--prompt", "whether ", "--tokens", 50, "--temperature", 0), [one])
        finally:
            moved.rename(self.dir / "chars")
            (self.dir / "gone.txt").rename(self.file)

    def test_a_seed_is_a_text_whatever_else_is_in_the_batch(self):
        how = ["--tokens", 60, "--temperature", 0.9, "--top_k", 8, "--top_p", 0.95]
        alone = self.written(self.dir / "chars", "--prompt", "to be ", *how, "--seed", 5)
        self.assertEqual(self.written(self.dir / "chars", "--prompt", "to be ", *how, "--seed", 5), alone)
        self.assertNotEqual(self.written(self.dir / "chars", "--prompt", "to be ", *how, "--seed", 6), alone)
        (self.dir / "prompts.txt").write_text("to be \n\nslings and arrows\n")
        both = self.written(self.dir / "chars", "--prompt", "déjà", "--prompts", self.dir / "prompts.txt", *how, "--samples", 2, "--seed", 5)
        self.assertEqual([(x["prompt"], x["sample"]) for x in both],
                         [(prompt, sample) for prompt in ("déjà", "to be ", "slings and arrows") for sample in (0, 1)])
        self.assertEqual(both[2], alone[0])
        (self.dir / "prompts.txt").write_text("to be \r\n\r\nslings and arrows\r\n", encoding="utf-8-sig", newline="")   # Windows'
        self.assertEqual(self.written(self.dir / "chars", "--prompt", "déjà", "--prompts", self.dir / "prompts.txt", *how, "--samples", 2, "--seed", 5), both)
        self.assertNotEqual(both[2]["text"], both[3]["text"])
        plain = run("generate", self.dir / "chars", "--prompt", "to be ", "--prompt", "slings", *how, "--seed", 5).stdout.decode()
        self.assertEqual(plain.split("\n---\n")[0], "to be " + alone[0]["text"])

    def test_ranks_write_what_one_rank_writes(self):
        how = ["--prompt", "to be ", "--prompt", "slings", "--prompt", "end ", "--tokens", 40, "--temperature", 0.9, "--top_k", 8, "--seed", 5]
        chars, newest = self.dir / "chars", sorted((self.dir / "chars/checkpoints").glob("step_*"))[-1]
        alone = self.written(chars, *how)
        for layout in (["--ranks", 2], ["--ranks", 3, "--strategy", "zero(3)"], ["--mesh", "tensor=2", "--strategy", "tensor"], ["--mesh", "pipe=2", "--strategy", "pipeline(micro=2)"],
                       ["--mesh", "data=2,tensor=2", "--strategy", "tensor | zero(3)"], ["--ranks", 1, "--strategy", "serial"]):
            self.assertEqual(self.written(chars, *how, *layout), alone, layout)
        layout = ["--mesh", "tensor=2", "--strategy", "tensor"]
        for source in [newest], [chars, "--weights", newest / "model.safetensors"]:
            self.assertEqual(self.written(*source, *how, *layout), alone, source)
        text = [run("generate", chars, *how, *more).stdout for more in ([], layout)]
        self.assertEqual(text[0], text[1])
        self.assertEqual(len(text[0].decode().split("\n---\n")), 3)
        first = alone[0]["text"][:3]   # a text that stops on all ranks, while others continue
        self.assertEqual(self.written(chars, *how, *layout, "--stop", first), self.written(chars, *how, "--stop", first))
        self.refused(run("generate", chars, *how, "--ranks", 2, "--mesh", "tensor=3"), 2, 3)
        self.refused(run("generate", chars, *how, "--mesh", "tensor=2", "--strategy", "tensor(sequence=true)"), "sequence")
        self.refused(run("generate", chars, *how, "--mesh", "context=2", "--strategy", "context"), "context")
        self.refused(run("generate", chars, *how, "--ranks", 2, "--strategy", "one_weird_trick"), "one_weird_trick")
        self.refused(run("generate", chars, *how, "--ranks", 2, "--strategy", "tensr"), "tensr")
        self.refused(run("generate", chars, *how, *layout, "--weights", self.dir / "none"), "none", kind="file")

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_processes_write_what_one_rank_writes(self):
        how = ["--prompt", "to be ", "--tokens", 40, "--temperature", 0.9, "--top_k", 8, "--seed", 5, "--json"]
        alone = run("generate", self.dir / "chars", *how)
        self.assertEqual(len(alone.stdout.splitlines()), 1, alone.stderr)
        for layout in [], ["--mesh", "tensor=2", "--strategy", "tensor"], ["--strategy", "zero(3)"]:
            self.assertEqual(run("generate", self.dir / "chars", *how, *layout, ranks=2).stdout, alone.stdout, layout)

    def test_killed_on_one_layout_and_resumed_on_another(self):
        """Under each axis; the next losses are those of a run that nobody killed."""
        layouts = (["--mesh", "tensor=2", "--strategy", "tensor(sequence=true)"], ["--mesh", "context=2", "--strategy", "context(mode=ring) | experts(axes=context)"],
                   ["--mesh", "pipe=2", "--strategy", "pipeline(micro=2)"], ["--mesh", "data=2,tensor=2", "--strategy", "experts | tensor | zero(2)"],
                   ["--mesh", "data=3", "--strategy", "experts | zero(3)"], ["--ranks", 1])
        words = ["train", "gpt2", "--data", "text", "--data.root", self.file, *settings, "--arch.experts", 4, "--dtype", "f64", "--data.windows", 32, "--epochs", 24, "--checkpoint.keep", 40]

        def losses(folder):
            lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
            return {line["step"]: line["test_loss"] for line in lines if line["kind"] == "eval"}
        whole = self.dir / "whole"
        got = run(*words, "--run.dir", whole)
        self.assertEqual(got.returncode, 0, got.stderr)
        expected = losses(whole)
        self.assertEqual(len(expected), 24)
        for i, layout in enumerate(layouts):
            folder = self.dir / f"killed{i}"
            process = subprocess.Popen([trireme, *map(str, [*words, "--run.dir", folder, *layout])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and not (folder / "checkpoints/step_00000010").exists():
                time.sleep(0.01)
            process.kill()
            process.wait()
            steps = max(int(path.name[5:]) for path in (folder / "checkpoints").glob("step_*") if not path.suffix)
            self.assertLess(steps, 38, "it ended before it was killed")
            got = run(*words, "--run.dir", folder, *layouts[(i + 1) % len(layouts)], "--resume", "auto", "--override")
            self.assertEqual(got.returncode, 0, (layout, got.stderr))
            after = losses(folder)
            for step in range(steps + 2, steps + 12, 2):
                self.assertAlmostEqual(after[step], expected[step], delta=1e-11 * expected[step], msg=(layout, step))

    def test_experts_are_evaluated_as_trained(self):
        words = ["train", "gpt2", "--data", "text", "--data.root", self.file, *settings, "--arch.experts", 3, "--data.windows", 64, "--epochs", 1, "--dtype", "f64",
                 "--data.eval_batch", 1]   # fewer samples than ranks
        lines = []
        for name, layout in ("alone", ["--ranks", 1]), ("apart", ["--mesh", "data=2", "--strategy", "experts | zero(1)"]), ("both", ["--mesh", "data=2,tensor=2", "--strategy", "experts | tensor | zero(2)"]):
            got = run(*words, *layout, "--run.dir", self.dir / name)
            self.assertEqual(got.returncode, 0, got.stderr)
            got = run("eval", self.dir / name)
            self.assertEqual((got.returncode, b"ranks divide the model" in got.stderr), (0, name != "alone"), got.stderr)
            lines.append(got.stdout.decode().splitlines()[0])
        self.assertEqual(set(lines), {lines[0]})
        self.assertEqual(self.written(self.dir / "apart", "--prompt", "to be ", "--tokens", 5)[0]["tokens"], 5)
        self.refused(run("generate", self.dir / "apart", "--prompt", "to be ", "--mesh", "data=2", "--strategy", "experts | zero(3)"), "experts")

    def test_evaluation_reads_other_texts_by_the_run_s_characters(self):
        """A text without its first letter gives all others other ids, were it to have a table of its own."""
        loss = lambda *words: float(re.search(r"loss: ([\d.]+)", run("eval", self.dir / "chars", *words).stdout.decode())[1])
        other = self.dir / "other.txt"
        other.write_text(self.file.read_text().replace("a", "b"))
        self.assertGreater(loss("--data.root", other), loss() + 0.2)
        other.write_text(self.file.read_text().replace("a", "q"))   # "question" has one
        self.assertGreater(loss("--data.root", other), loss() + 0.2)
        other.write_text(self.file.read_text() + "~")
        self.refused(run("eval", self.dir / "chars", "--data.root", other), "U+007E", kind="data")
        self.refused(run("eval", self.dir / "chars", "--data.tokenizer", "bytes"), "bytes", "tokenizer.json", kind="data")

    def test_stop_and_utf8(self):
        whole, = self.written(self.dir / "bytes", "--prompt", "to be ", "--tokens", 200, "--temperature", 0.8)
        text = whole["text"]
        for length in 3, 1:   # of what stands there as bytes, not in the place of some that are no UTF-8
            stop = next(text[at:at + length] for at in range(20 * length, len(text)) if "\ufffd" not in text[at:at + length])
            cut, = self.written(self.dir / "bytes", "--prompt", "to be ", "--tokens", 200, "--temperature", 0.8, "--stop", stop, "--stop", "never seen")
            self.assertEqual(cut["text"], whole["text"][:whole["text"].index(stop)])
        # Hot enough that bytes come that are no UTF-8.
        got = run("generate", self.dir / "bytes", "--prompt", "é", "--tokens", 300, "--temperature", 3)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("\ufffd", got.stdout.decode())
        self.assertEqual(got.stdout.decode()[0], "é")

    def test_bad_input(self):
        chars = self.dir / "chars"
        self.refused(run("generate", chars, "--prompt", "to b€"), 4, "U+20AC", kind="data")
        self.refused(run("generate", chars, "--prompt", ""), "prompt")
        self.refused(run("generate", chars), "--prompt")
        self.refused(run("generate", "--prompt", "a"), "--tokenizer")
        self.refused(run("generate", chars, "--prompt", "a" * 25), 25, 24)
        self.refused(run("generate", chars, "--prompt", "a", "--context", 25), "--context", 25, 24)
        self.refused(run("generate", chars, "--prompt", "a", "--context", -1), "--context", -1)
        self.refused(run("generate", chars, "--prompt", "a", "--temperature", -0.5), "temperature", -0.5)
        self.refused(run("generate", chars, "--prompt", "a", "--top_p", 0), "top_p")
        self.refused(run("generate", chars, "--prompt", "a", "--tokens", 0), "tokens")
        self.refused(run("generate", chars, "--prompt", "a", "--samples", 0), "--samples")
        self.refused(run("generate", chars, "--prompt", "a", "--stop", ""), "--stop")
        self.refused(run("generate", self.dir, "--prompt", "a"), "config.toml", "manifest.json", kind="file")
        bare = self.dir / "bare"
        bare.mkdir()
        (bare / "config.json").write_text('{"model_type": "llama"}')   # of 7e9 weights, which are not there
        self.refused(run("generate", bare, "--prompt", "a"), bare, "model.safetensors", kind="file")
        self.refused(run("generate", "--model", "mlp", "--weights", "x", "--tokenizer", "bytes", "--prompt", "a"), "mlp")
        self.refused(run("predict", "--run", chars, "x.png"), "trireme generate")
        self.refused(run("train", "gpt2", "--data", "text", "--data.root", self.file, "--arch.heads", 3, "--arch.width", 128, "--arch.layers", 1), 3, 128)
        self.refused(run("train", "gpt2", "--data", "text", "--data.root", self.file, *settings, "--arch.positions", 8), "arch.positions", 8)
        self.refused(run("train", "mlp", "--arch.layers", 3), "arch")
        self.refused(run("train", "gpt2", "--arch.layer", 3), "arch.layers")

    def test_export(self):
        hf, onnx = self.dir / "hf", self.dir / "model.onnx"
        got = run("train", "gpt2", "--data", "text", "--data.root", self.file, *settings, "--data.windows", 160, "--epochs", 1, "--run.dir", self.dir / "biased")
        self.assertEqual(got.returncode, 0, got.stderr)
        got = run("export", self.dir / "biased", "--pretrained", hf, "--onnx", onnx)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(json.loads((hf / "config.json").read_text())["n_positions"], 24)
        self.assertGreater(onnx.stat().st_size, 10000)
        how = ["--prompt", "to be", "--tokens", 40, "--temperature", 0]
        self.assertEqual(self.written(hf, "--tokenizer", "bytes", *how), self.written(self.dir / "biased", *how))
        self.assertEqual(self.written(hf, "--tokenizer", "bytes", *how, "--mesh", "tensor=2", "--strategy", "tensor"), self.written(self.dir / "biased", *how))
        self.refused(run("export", self.dir / "biased"), "--onnx")
        how = ["--tokenizer", "bytes", "--prompt", "to be", "--tokens", 40]
        given = ["--temperature", 0.7, "--top_k", 5, "--top_p", 0.9]
        explicit = self.written(hf, *how, *given)
        sampling = {"do_sample": True, "temperature": 0.7, "top_k": 5, "top_p": 0.9}
        (hf / "generation_config.json").write_text(json.dumps(sampling))
        self.assertEqual(self.written(hf, *how), explicit)
        self.assertEqual(self.written(hf, *how, "--temperature", 0), self.written(self.dir / "biased", *how[2:], "--temperature", 0))
        del sampling["top_k"]
        (hf / "generation_config.json").write_text(json.dumps(sampling))
        self.assertEqual(self.written(hf, *how, "--top_k", 5), explicit)
        (hf / "generation_config.json").write_text('{"top_k": "5"}')
        self.refused(run("generate", hf, *how), "top_k", kind="data")

    def test_plans_and_benches(self):
        model = ["gpt2", *small, "--data.context", 16, "--arch.vocabulary", 50, "--data.batch", 8]
        for command in (["plan", "show"], ["plan", "simulate"]):
            got = run(*command, *model, "--cost", "equal", "--mesh", "pipe=2,data=2", "--strategy", "pipeline(micro=2, partition=even) | data_parallel")
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertIn("predicted", got.stdout.decode())
        got = run("plan", "show", *model, "--cost", "equal", "--ranks", 2, "--measure")
        self.assertIn("measured", got.stdout.decode(), got.stderr)
        for strategy in ("data_parallel | zero(3)",), ("pipeline(micro=2)", "--mesh", "pipe=2"):
            got = run("plan", "verify", *model, "--steps", 3, "--strategy", *strategy, *([] if len(strategy) > 1 else ["--ranks", 2]))
            self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        for more in [], ["--infer"]:
            self.assertRegex(run("bench", *model, "--steps", 2, *more).stdout.decode(), r"tokens/s +\d")
        got = run("train", *model, "--data", "text", "--data.root", self.file, "--arch.vocabulary", 256, "--data.windows", 64, "--epochs", 1, "--run.profile", "2-4",
                  "--run.dir", self.dir / "profile")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertTrue((self.dir / "profile/trace.json").exists())

    @unittest.skipIf(mpiexec == "none", "no MPI")
    def test_processes(self):
        got = run("train", "gpt2", "--data", "text", "--data.root", self.file, "--data.tokenizer", "chars", *settings, "--data.windows", 160, "--epochs", 1, "--run.dir",
                  self.dir / "mpi", ranks=2)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertEqual(self.written(self.dir / "mpi", "--prompt", "to be", "--tokens", 3)[0]["tokens"], 3)


unittests.main(sys.argv[3:])
