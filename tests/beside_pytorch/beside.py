"""Runs each program of this folder beside its PyTorch counterpart, from the same weights and data, and compares what they print and train, number by
number in f64; and their lengths: the C++ has at most as many lines of code. beside.py BUILD_DIR COMPILER [PROGRAM...]

Ends with 77 where there is no PyTorch.
"""
import ast
import concurrent.futures
import csv
import functools
import importlib
import json
import multiprocessing
import os
import pathlib
import runpy
import shutil
import struct
import subprocess
import sys
import tempfile
import threading

try:
    import numpy as np
    import torch
except ImportError:
    print("SKIPPED: needs torch")
    sys.exit(77)

here = pathlib.Path(__file__).resolve().parent
root = here.parent.parent
build, compiler = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
seeds = threading.Lock()  # of PyTorch's generator
server = multiprocessing.get_context("forkserver")  # whose processes need not import torch
server.set_forkserver_preload(["torch", "torch.distributed", "torch.utils.data", "torch.onnx"])
random = np.random.default_rng(7)
normal, labels = random.standard_normal, random.integers
# The data of each pair; the weights are those of its Model() in Python, as PyTorch draws them.
data = {
    "odd_cnn": {"x": normal((6, 9, 11, 3)), "y": labels(0, 10, 6)},
    "gpt": {"ids": labels(0, 50, (4, 13))},
    "vit": {"x": normal((5, 32, 32, 3)), "y": labels(0, 10, 5)},
    "custom": {"x": normal((20, 6)), "y": normal((20, 1))},
    "distributed": {"x_train": normal((62, 8, 8, 1)), "y_train": labels(0, 4, 62), "x_test": normal((33, 8, 8, 1)), "y_test": labels(0, 4, 33)},
    "regression": {"x_train": normal((200, 8)), "y_train": normal((200, 1)), "x_test": normal((50, 8)), "y_test": normal((50, 1))},
}


def write_safetensors(path, state):
    header, blob = {}, b""
    for name, tensor in state.items():
        if tensor.dtype == torch.float32:  # not num_batches_tracked
            raw = tensor.numpy().tobytes()
            header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [len(blob), len(blob) + len(raw)]}
            blob += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + blob)


def read_safetensors(path):
    raw = path.read_bytes()
    begin = 8 + struct.unpack("<Q", raw[:8])[0]
    types = {"F64": np.float64, "F32": np.float32}
    return {name: np.frombuffer(raw[begin + e["data_offsets"][0]:begin + e["data_offsets"][1]], types[e["dtype"]]).reshape(e["shape"])
            for name, e in json.loads(raw[8:begin]).items() if name != "__metadata__"}


def run(*command, cwd):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


def ours(folder, name, *arguments):
    return run(folder.parent / name, *arguments, cwd=folder)


def run_script(folder, name, arguments, said):
    """As a process of its own would: in the folder, with these arguments, and what it prints in two files."""
    os.chdir(folder)
    for stream, file in (1, said), (2, said + ".errors"):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.argv = [name, *map(str, arguments)]
    sys.path.insert(0, str(here))
    torch.multiprocessing.spawn = functools.partial(torch.multiprocessing.start_processes, start_method="fork")
    runpy.run_path(str(here / f"{name}.py"), run_name="__main__")


def theirs(folder, name, *arguments):
    with tempfile.TemporaryDirectory() as scratch:
        said, errors = pathlib.Path(scratch) / "said", pathlib.Path(scratch) / "said.errors"
        process = server.Process(target=run_script, args=(str(folder), name, arguments, str(said)))
        process.start()
        process.join()
        assert process.exitcode == 0, f"{name}.py {arguments}\n{errors.read_text()[-4000:] if errors.exists() else ''}"
        return said.read_text()


def compare_text(what, a, b, tolerance=1e-10, ordered=True):
    """Words that are alike, and numbers within the tolerance."""
    lines = [text.split("\n") if ordered else sorted(text.split("\n")) for text in (a, b)]
    words = [[line.split() for line in side if line] for side in lines]
    assert [len(w) for w in words[0]] == [len(w) for w in words[1]] and words[0], f"{what}:\n{a}\n{b}"
    for left, right in zip(sum(words[0], []), sum(words[1], [])):
        try:
            alike = abs(float(left) - float(right)) <= tolerance * max(1, abs(float(left)))
        except ValueError:
            alike = left == right
        assert alike, f"{what}: {left} here, {right} there\n{a}\n{b}"


def compare_weights(what, a, b, tolerance=1e-10):
    b = {k: v for k, v in b.items() if not k.endswith("num_batches_tracked")}
    assert a.keys() == b.keys(), f"{what}: {sorted(a)} here, {sorted(b)} there"
    for name in a:
        assert a[name].shape == b[name].shape, f"{what}: {name}"
        difference = np.abs(a[name] - b[name]).max()
        assert difference <= tolerance, f"{what}: {name} differs by {difference}"


def end_of_both(folder):
    there = {k: v.numpy() for k, v in torch.load(folder / "end.pt").items()}
    compare_weights("weights", read_safetensors(folder / "end.safetensors"), there)


def compare_plain(folder, name):
    compare_text("printed", ours(folder, name), theirs(folder, name))
    end_of_both(folder)


def compare_vit(folder, name):
    compare_text("printed", ours(folder, name), theirs(folder, name), ordered=False)
    python = build / "oracles/bin/python"
    if not python.exists():
        return "ONNX files are not run: no onnxruntime"
    code = """import numpy as np, onnxruntime
x = np.load("x.npy").transpose(0, 3, 1, 2).astype(np.float32)
for side in "ours", "theirs":
    np.save(side + ".npy", onnxruntime.InferenceSession(side + ".onnx", providers=["CPUExecutionProvider"]).run(None, {"input": x})[0])"""
    run(python, "-c", code, cwd=folder)
    difference = np.abs(np.load(folder / "ours.npy") - np.load(folder / "theirs.npy")).max()
    assert difference < 1e-5, f"the ONNX files differ by {difference}"


def compare_distributed(folder, name):
    """PyTorch is exact where the ranks' shares are equal, and without dropout; Trireme on any ranks, and with it."""
    if not torch.distributed.is_available():
        return "not compared: this PyTorch has no torch.distributed"
    there, here = theirs(folder, name, 2, 0), {}
    for ranks in (1, 2, 3):
        here[ranks] = ours(folder, name, ranks, 0)
        compare_text(f"printed by {ranks} ranks", here[ranks], there)
        end_of_both(folder)
    (folder / "rendezvous").unlink(missing_ok=True)
    masked = {}
    for ranks in (1, 2, 3):
        masked[ranks] = ours(folder, name, ranks, 0.3)
        compare_text(f"printed by {ranks} ranks, with dropout", masked[ranks], masked[1])
    assert masked[1] != here[1]
    uneven = theirs(folder, name, 3, 0)
    return f"PyTorch on 3 ranks prints {uneven.split()[-1]} for the test loss, on 2 ranks {there.split()[-1]}; Trireme on 1, 2 and 3 ranks the latter"


def compare_regression(folder, name):
    for epochs in (3, 5):  # the second goes on from the first
        ours(folder, name, epochs), theirs(folder, name, epochs)
    end_of_both(folder)
    there = list(csv.DictReader(open(folder / "metrics.csv")))
    here = [row for row in csv.DictReader(open(folder / "run/metrics.csv")) if row["kind"] == "eval"]
    assert [row["epoch"] for row in here] == [row["epoch"] for row in there] == list("12345"), f"{here}\n{there}"
    for a, b in zip(here, there):
        compare_text(f"epoch {a['epoch']}", " ".join(a[key] for key in b), " ".join(b.values()))
    whole = folder.parent / "regression.whole"
    whole.mkdir()
    for file in [*folder.glob("*.npy"), folder / "start.safetensors"]:
        shutil.copy(file, whole)
    ours(whole, name, 5)
    compare_weights("resumed", read_safetensors(folder / "end.safetensors"), read_safetensors(whole / "end.safetensors"), 0)


def code_lines(path):
    """Without blank ones, comments and docstrings."""
    text = path.read_text()
    lines = {i for i, line in enumerate(text.split("\n"), 1) if line.strip() and not line.strip().startswith("//" if path.suffix == ".cpp" else "#")}
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                lines -= set(range(node.lineno, node.end_lineno + 1))
    assert all(len(line) <= 120 for line in text.split("\n")), f"{path.name}: a line is longer than 120 columns"
    return len(lines)


def check_pair(name, scratch):
    folder = scratch / f"{name}.data"
    folder.mkdir()
    for key, array in data[name].items():
        np.save(folder / f"{key}.npy", array)
    run(compiler, "-std=c++20", "-O0", f"-I{scratch}/compiled", f"-I{scratch}", f"-I{root}", here / f"{name}.cpp", "-o", scratch / name, f"-L{build}", "-ltrireme", "-lfmt", f"-Wl,-rpath,{build}", cwd=scratch)
    with seeds:
        torch.manual_seed(1)
        state = importlib.import_module(name).Model().state_dict()
    torch.save(state, folder / "start.pt")
    write_safetensors(folder / "start.safetensors", state)
    return {"vit": compare_vit, "distributed": compare_distributed, "regression": compare_regression}.get(name, compare_plain)(folder, name)


def main():
    faults, remarks = [], []
    names = sys.argv[3:] or list(data)
    lines = {name: [code_lines(here / f"{name}.{suffix}") for suffix in ("cpp", "py")] for name in names}
    faults += [f"{name}: {n[0]} lines of C++, {n[1]} of Python" for name, n in lines.items() if n[0] > n[1]]
    if shutil.which("clang-format"):
        for name in names:
            done = subprocess.run(["clang-format", "--dry-run", "-Werror", here / f"{name}.cpp"], capture_output=True, text=True)
            faults += [] if done.returncode == 0 else [done.stderr]
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(2) as pool:
        scratch = pathlib.Path(scratch)
        (scratch / "trireme").symlink_to(root / "tools/trireme")  # the headers as installed are those of the tree
        # Compiled once for all programs.
        (scratch / "compiled/trireme").mkdir(parents=True)
        (scratch / "all.h").write_text("#include <trireme/trireme.h>\n")
        run(compiler, "-std=c++20", "-O0", f"-I{scratch}", f"-I{root}", "-x", "c++-header", scratch / "all.h", "-o", scratch / "compiled/trireme/trireme.h.gch", cwd=scratch)
        sys.path.insert(0, str(here))
        for name, done in [(name, pool.submit(check_pair, name, scratch)) for name in names]:
            try:
                remark = done.result()
                remarks += [f"{name}: {remark}"] if remark else []
            except Exception as e:  # of one pair; the others are told, too
                faults.append(f"{name}: {e!r}" if not isinstance(e, AssertionError) else f"{name}: {e}")
    print("lines of code     C++  PyTorch")
    for name, (cpp, py) in lines.items():
        print(f"{name:<16}{cpp:>5}{py:>9}")
    print("\n".join(remarks + faults) or "all agree")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.exit(main())
