"""Weights that cross: torchvision's ResNet-18 is read by trireme, fine-tuned, and read by torchvision again, strictly. A 3-D U-Net's f64
results over a volume whose extents its strides do not divide are PyTorch's over zeros around it.
  torch_weights.py TRIREME
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torchvision
    from PIL import Image
    from torch_unet import UNet
except ImportError:
    other = os.environ.get("TRIREME_PYTHON", "/usr/bin/python3")   # where the distribution puts torch
    if "TORCH_WEIGHTS" in os.environ or not os.path.exists(other):
        print("SKIPPED: needs torch, torchvision and PIL")
        sys.exit(77)
    os.execve(other, [other, *sys.argv], {**os.environ, "TORCH_WEIGHTS": "1"})

trireme = sys.argv[1]
types = {"F32": np.float32, "I64": np.int64}


def write(path, state):
    arrays = {key: t.contiguous().numpy() for key, t in state.items()}
    header, at = {}, 0
    for key, a in arrays.items():
        header[key] = {"dtype": {"float32": "F32", "int64": "I64"}[a.dtype.name], "shape": list(a.shape), "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(a.tobytes() for a in arrays.values()))


def read(path):
    data = path.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    part = lambda about: np.frombuffer(data[8 + size:][slice(*about["data_offsets"])], types[about["dtype"]]).reshape(about["shape"])
    return {key: torch.from_numpy(part(about).copy()) for key, about in header.items()}


def run(*words):
    got = subprocess.run([trireme, *map(str, words)], capture_output=True, text=True)
    assert got.returncode == 0, got.stderr
    return got


def same_answers(model, photo, *words):
    """The five likeliest classes of a photograph that needs no resizing."""
    pixels = torch.from_numpy(np.array(Image.open(photo))).permute(2, 0, 1)[None, :, 16:240, 16:240] / 255
    mean, deviation = (torch.tensor(v).reshape(1, 3, 1, 1) for v in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))
    with torch.no_grad():
        values, classes = model.eval()((pixels - mean) / deviation).softmax(1)[0].topk(5)
    row = run("predict", *words, "--topk", 5, photo).stdout.split("\t")[1:]
    assert [int(c) for c in row[::2]] == classes.tolist(), (row, classes)
    assert np.allclose([float(p) for p in row[1::2]], values, atol=1.5e-4), (row, values)   # four digits are printed


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    torch.manual_seed(0)
    model = torchvision.models.resnet18()
    write(folder / "theirs.safetensors", model.state_dict())
    photo = folder / "photo.png"
    Image.fromarray((np.random.RandomState(0).rand(16, 16, 3) * 255).astype("uint8")).resize((256, 256), Image.BICUBIC).save(photo)
    same_answers(model, photo, "--model", "resnet18", "--weights", folder / "theirs.safetensors")

    got = run("train", "resnet18", "--weights", folder / "theirs.safetensors", "--data.name", "synthetic", "--data.image_size", 32,
              "--data.synthetic_size", 24, "--data.batch", 8, "--epochs", 1, "--optim.lr", 1e-4, "--run.dir", folder / "run")
    assert "weights   " in got.stderr and "anew" not in got.stderr, got.stderr
    ours = folder / "run/checkpoints/step_00000003/model.safetensors"
    state = read(ours)
    model.load_state_dict(state, strict=True)
    assert set(state) == set(model.state_dict()) and state["bn1.num_batches_tracked"].item() == 3
    same_answers(model, photo, "--model", "resnet18", "--weights", ours)

    net = UNet(3, 1, 2, 2).double().eval()
    with torch.no_grad():
        for key, t in net.state_dict().items():   # f32 numbers; the running statistics are not those of a start
            if t.is_floating_point():
                t.copy_((t + torch.rand_like(t) / 4).float())
    write(folder / "unet.safetensors", {key: t.float() if t.is_floating_point() else t for key, t in net.state_dict().items()})
    volume = np.random.RandomState(1).rand(19, 16, 37)
    np.save(folder / "volume.npy", volume)
    run("infer", "--model", "unet3d", "--weights", folder / "unet.safetensors", "--volume", folder / "volume.npy", "--out", folder / "out.npy", "--dtype", "f64")
    with torch.no_grad():
        around = torch.nn.functional.pad(torch.from_numpy(volume), (5, 6, 0, 0, 6, 7))
        expected = net(around[None, None])[0, :, 6:25, :, 5:42].movedim(0, -1).numpy()
    result = np.load(folder / "out.npy")
    assert result.dtype == np.float64 and np.abs(result - expected).max() < 1e-13 * np.abs(expected).max(), np.abs(result - expected).max()
