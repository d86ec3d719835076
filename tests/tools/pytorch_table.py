"""Runs both sides of the tables of tools/docs/guides/pytorch.md and compares them. Usage: pytorch_table.py BUILD_DIR COMPILER

Ends with 77 where there is no PyTorch.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    print("SKIPPED: needs torch")
    sys.exit(77)

root = pathlib.Path(__file__).resolve().parent.parent.parent
build, compiler = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2]
text = (root / "tools/docs/guides/pytorch.md").read_text().partition("## Where is what")[0]
rows = [tuple(m) for m in re.findall(r"^\| `(.+?)`((?: on `\w+`)?) \| `(.+?)`(?: on `\w+`)? \|$", text, re.M)]
assert len(rows) == sum(line.startswith("| `") for line in text.splitlines()) > 100, len(rows)

torch.manual_seed(1)
x, y, z = torch.randn(4, 6), torch.randn(4, 6), torch.randn(2, 4, 5)
p, ids, at, labels = x.abs() + 0.1, torch.tensor([2, 0, 3]), torch.randint(0, 4, (4, 6)), torch.tensor([1, 5, 2, 0])
img = torch.randn(2, 3, 8, 10)
inputs = {"x": x, "y": y, "z": z, "ids": ids, "at": at, "labels": labels, "img": img.permute(0, 2, 3, 1).contiguous(), "p": p}

with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for key, value in inputs.items():
        np.save(folder / f"{key}.npy", value.numpy())
    code = ["#include <trireme/trireme.h>", "using namespace trireme;", "int main(int, char** argv) {", '  const std::string folder = std::string(argv[1]) + "/";']
    code += [f'  const Tensor {key} = read_npy(folder + "{key}.npy");' for key in inputs]
    for i, (_, on, right) in enumerate(rows):
        if on:
            code.append(f'  {{ Module m = {right}; Index count = 0; for (auto& t : named_tensors(m)) if (t.kind != StateKind::buffer) count += t.tensor->numel();'
                        f' const Shape s = m({on[5:-1]}).shape(); std::vector<std::int64_t> all(s.begin(), s.end()); all.push_back(count);'
                        f' write_npy(folder + "{i}.npy", Tensor::from(all)); }}')
        else:
            code.append(f'  write_npy(folder + "{i}.npy", {right});')
    (folder / "table.cpp").write_text("\n".join(code) + "\n}\n")
    # The headers as installed are those of the tree; fmt comes with them.
    (folder / "trireme").symlink_to(root / "tools/trireme")
    r = subprocess.run([compiler, "-std=c++20", "-O0", f"-I{folder}", f"-I{root}", f"-I{build}", folder / "table.cpp", "-o", folder / "table", f"-L{build}", "-ltrireme", "-lfmt",
                        f"-Wl,-rpath,{build}"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr[:5000]
    r = subprocess.run([folder / "table", folder], capture_output=True, text=True)
    assert r.returncode == 0, r.stdout + r.stderr
    faults = []
    for i, (left, on, right) in enumerate(rows):
        ours = np.load(folder / f"{i}.npy")
        if on:
            layer, given = eval(left), eval(on[5:-1])
            shape = list(layer(given).shape)
            if len(shape) == 4:
                shape = [shape[0], *shape[2:], shape[1]]
            theirs = np.array(shape + [sum(w.numel() for w in layer.parameters())])
        else:
            theirs = eval(left)
            if theirs.dim() == 4 and "img" in left:
                theirs = theirs.permute(0, 2, 3, 1)
            theirs = theirs.detach().numpy()
        same = ours.shape == theirs.shape and ours.dtype == theirs.dtype and np.allclose(ours, theirs, 1e-5, 1e-5)
        if not same:
            faults.append(f"{left}\n  {right}\n  PyTorch {theirs.dtype} {theirs.shape} {theirs.reshape(-1)[:5]}, here {ours.dtype} {ours.shape} {ours.reshape(-1)[:5]}")
print("\n".join(faults) or f"{len(rows)} rows agree")
sys.exit(1 if faults else 0)
