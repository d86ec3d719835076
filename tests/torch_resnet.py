"""One training step and an evaluation of a torchvision ResNet in f64. Usage: torch_resnet.py FOLDER MODEL

Reads images (N,H,W,C), labels and every tensor of the model's state by its name, in Trireme's layout. Writes
eval.npy and train.npy (logits), loss.npy, <name>.grad.npy, and <name>.end.npy for running statistics.
"""
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    import torchvision
except ImportError:
    sys.exit(77)

folder, name = sys.argv[1], sys.argv[2]
load = lambda key: torch.from_numpy(np.load(f"{folder}/{key}.npy"))
save = lambda key, t: np.save(f"{folder}/{key}.npy", t.detach().contiguous().numpy())
theirs = lambda t: t.movedim(-1, 1).contiguous() if t.dim() == 4 else t
ours = lambda t: t.movedim(1, -1) if t.dim() == 4 else t

images, labels = theirs(load("images")), load("labels").long()
classes = len(load("fc.bias"))
model = getattr(torchvision.models, name)(num_classes=classes).double()
state = model.state_dict()
model.load_state_dict({key: t if key.endswith("num_batches_tracked") else theirs(load(key)) for key, t in state.items()})
model.eval()
save("eval", model(images))
model.train()
logits = model(images)
loss = F.cross_entropy(logits, labels)
loss.backward()
save("train", logits)
save("loss", loss)
for key, t in model.named_parameters():
    save(key + ".grad", ours(t.grad))
for key, t in model.named_buffers():
    if "running" in key:
        save(key + ".end", t)
