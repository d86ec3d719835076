"""torchvision's MobileNetV2, and a U-Net written here, with weights by torch_vgg.py's formula. Usage: torch_mobilenet.py FOLDER

Reads <model>.txt, a line "name [extents]" for each tensor, and compares. Writes <model>.eval.npy and <model>.train.npy (outputs without
dropout) and <model>.grads.npy (norms of the gradients of the sum of squares of the latter).
"""
import sys

try:
    import numpy as np
    import torch
    import torchvision
    from torch_unet import UNet
except ImportError:
    sys.exit(77)

folder = sys.argv[1]


def formula(shape, key):
    n = int(np.prod(shape))
    bits = (np.arange(n, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(key * 40503)) & np.uint64(0xFFFFFFFF)
    scale = np.sqrt(24.0 / (n // shape[0])) if len(shape) > 1 else 0.2
    return torch.from_numpy(((bits / 2.0**32 - 0.5) * scale).astype(np.float32).reshape(shape))


models = {"mobilenet": (torchvision.models.mobilenet_v2(num_classes=10, dropout=0.0), (4, 3, 64, 64)),
          "unet2": (UNet(2, 3, 2, 4), (2, 3, 32, 48)), "unet3": (UNet(3, 1, 3, 2), (2, 1, 16, 32, 16))}
for name, (model, shape) in models.items():
    state = {key: t for key, t in model.state_dict().items() if not key.endswith("num_batches_tracked")}
    given = open(f"{folder}/{name}.txt").read().splitlines()
    listed = [f"{key} {list(t.shape)}" for key, t in state.items()]
    assert listed == given, [(a, b) for a, b in zip(listed, given) if a != b] or (len(listed), len(given))
    made = {key: formula(t.shape, i) for i, (key, t) in enumerate(state.items())}
    for key in made:
        if key.endswith("running_var"):
            made[key] = made[key].abs() + 0.5
        if made[key].dim() == 1 and key.endswith("weight"):  # of a norm
            made[key] = made[key] + 1
    model.load_state_dict(made, strict=False)
    model = model.double()
    x = formula(shape, 99).double()
    with torch.no_grad():
        np.save(f"{folder}/{name}.eval.npy", model.eval()(x).numpy())
    y = model.train()(x)
    np.save(f"{folder}/{name}.train.npy", y.detach().numpy())
    y.square().sum().backward()
    np.save(f"{folder}/{name}.grads.npy", np.array([p.grad.norm().item() for p in model.parameters()]))
