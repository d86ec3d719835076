"""Names and shapes of torchvision's VGG-16 and AlexNet; AlexNet's logits. Usage: torch_vgg.py FOLDER

Reads vgg16.txt and alexnet.txt, a line "name [extents]" for each tensor; the weights of AlexNet and its images (N,C,H,W)
are numbers of a formula. Writes logits.npy.
"""
import sys

try:
    import numpy as np
    import torch
    import torchvision
except ImportError:
    sys.exit(77)


def formula(shape, key):
    """Fractions of (i * 2654435761 + key * 40503) mod 2^32, less a half, times a scale that keeps layers alike."""
    n = int(np.prod(shape))
    bits = (np.arange(n, dtype=np.uint64) * np.uint64(2654435761) + np.uint64(key * 40503)) & np.uint64(0xFFFFFFFF)
    scale = np.sqrt(24.0 / (n // shape[0])) if len(shape) > 1 else 0.2
    return torch.from_numpy(((bits / 2.0**32 - 0.5) * scale).astype(np.float32).reshape(shape))


for name in ("vgg16", "alexnet"):
    model = torchvision.models.vgg16(init_weights=False) if name == "vgg16" else torchvision.models.alexnet()
    listed = [f"{key} {list(t.shape)}" for key, t in model.state_dict().items()]
    given = open(f"{sys.argv[1]}/{name}.txt").read().splitlines()
    assert listed == given, (listed, given)
model.load_state_dict({key: formula(t.shape, i) for i, (key, t) in enumerate(model.state_dict().items())})
with torch.no_grad():
    logits = model.eval()(formula((2, 3, 224, 224), 99))
np.save(f"{sys.argv[1]}/logits.npy", logits.double().numpy())
