"""The reference implementation's view of sharded checkpoints: shards_oracle.py FOLDER.

FOLDER/run*/checkpoints/step_*/model-*.safetensors, put together by what index and metadata say, must hold what
FOLDER/whole/checkpoints/step_*/model.safetensors does, bit for bit; so must the shards of optimizer.safetensors."""
import glob
import json
import os
import sys

try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import load_file
except ImportError:
    sys.exit(77)


def assembled(folder, kind):
    index = os.path.join(folder, kind + ".safetensors.index.json")
    if not os.path.exists(index):
        return load_file(os.path.join(folder, kind + ".safetensors"))
    with open(index) as f:
        names = json.load(f)["weight_map"]
    tensors, filled = {}, {}
    for name, file in names.items():
        with safe_open(os.path.join(folder, file), framework="np") as f:
            values = f.get_tensor(name)
            slices = json.loads((f.metadata() or {}).get("slices", "{}"))
        if name not in slices:
            tensors[name] = values
            continue
        about = slices[name]
        whole = tensors.setdefault(about["tensor"], np.zeros(about["shape"], values.dtype))
        count = filled.setdefault(about["tensor"], np.zeros(about["shape"], int))
        place = tuple(slice(at, at + n) for at, n in zip(about["offset"], values.shape))
        whole[place] = values
        count[place] += 1
    for name, count in filled.items():
        assert (count == 1).all(), name
    return tensors


def step(run):
    return glob.glob(os.path.join(run, "checkpoints/step_*"))[0]


root = sys.argv[1]
runs = glob.glob(os.path.join(root, "run*"))
assert runs
for run in runs:
    assert glob.glob(os.path.join(step(run), "*-of-*")), run
    for kind in "model", "optimizer":
        got, want = assembled(step(run), kind), load_file(os.path.join(step(os.path.join(root, "whole")), kind + ".safetensors"))
        assert sorted(got) == sorted(want), (run, kind)
        for name in want:
            assert got[name].dtype == want[name].dtype and got[name].tobytes() == want[name].tobytes(), (run, name)
