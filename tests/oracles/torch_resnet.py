"""One training step and an evaluation of a torchvision ResNet, in f32 or f64 (in f32 both round: a tie of two cells
in a pooling window may fall otherwise in f64). Usage: torch_resnet.py FOLDER MODEL f32|f64 [STEPS RATE]

Reads images (N,H,W,C), labels and every tensor of the model's state by its name, in Trireme's layout. Writes
eval.npy and train.npy (logits), loss.npy, <name>.grad.npy, and <name>.end.npy for running statistics. With STEPS:
only losses.npy, of so many steps of SGD with momentum 0.9.
"""
import sys

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    import torchvision
except ImportError:
    sys.exit(77)

folder, name, dtype = sys.argv[1:4]
dtype = {"f32": torch.float32, "f64": torch.float64}[dtype]
load = lambda key: torch.from_numpy(np.load(f"{folder}/{key}.npy")).to(dtype)
save = lambda key, t: np.save(f"{folder}/{key}.npy", t.detach().contiguous().double().numpy())
theirs = lambda t: t.movedim(-1, 1).contiguous() if t.dim() == 4 else t
ours = lambda t: t.movedim(1, -1) if t.dim() == 4 else t

images, labels = theirs(load("images")), load("labels").long()
classes = len(load("fc.bias"))
model = getattr(torchvision.models, name)(num_classes=classes).to(dtype)
state = model.state_dict()
model.load_state_dict({key: t if key.endswith("num_batches_tracked") else theirs(load(key)) for key, t in state.items()})
if len(sys.argv) > 4:
    optimizer = torch.optim.SGD(model.parameters(), lr=float(sys.argv[5]), momentum=0.9)
    losses = []
    for _ in range(int(sys.argv[4])):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    np.save(f"{folder}/losses.npy", np.array(losses))
    sys.exit()
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
