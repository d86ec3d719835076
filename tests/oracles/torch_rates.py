"""Learning rates of torch.optim.lr_scheduler. Usage: torch_rates.py FOLDER STEPS"""
import math
import sys
import warnings

try:
    import numpy as np
    import torch
    from torch.optim import lr_scheduler as lr
except ImportError:
    sys.exit(77)

warnings.simplefilter("ignore")
folder, steps = sys.argv[1], int(sys.argv[2])
schedules = {
    "step": lambda o: lr.StepLR(o, 7, 0.5),
    "milestones": lambda o: lr.MultiStepLR(o, [5, 12, 25], 0.2),
    "exponential": lambda o: lr.ExponentialLR(o, 0.9),
    "cosine": lambda o: lr.CosineAnnealingLR(o, steps, 0.01),
    "one_cycle": lambda o: lr.OneCycleLR(o, 0.3, total_steps=steps, cycle_momentum=False),
    "one_cycle_short": lambda o: lr.OneCycleLR(o, 0.3, total_steps=steps, pct_start=0.1, cycle_momentum=False),
    "polynomial": lambda o: lr.PolynomialLR(o, 30, 2),
    "restarts": lambda o: lr.CosineAnnealingWarmRestarts(o, 7, 1, 0.01),
    "restarts_longer": lambda o: lr.CosineAnnealingWarmRestarts(o, 5, 2, 0.01),
    "in_turn": lambda o: lr.SequentialLR(o, [lr.LinearLR(o, 0.2, total_iters=8), lr.ExponentialLR(o, 0.9)], [8]),
    "warm_up": lambda o: lr.LinearLR(o, 0.25, total_iters=10),
}


def nanogpt(it, top=0.3, warm=5, decay=30, least=0.03):
    """get_lr() of github.com/karpathy/nanoGPT's train.py, by its formulas."""
    if it < warm:
        return top * (it + 1) / (warm + 1)
    if it > decay:
        return least
    return least + 0.5 * (1 + math.cos(math.pi * (it - warm) / (decay - warm))) * (top - least)


def timm(t, top=0.3, warm=6, first=1e-3, t_initial=30, least=1e-5):
    """CosineLRScheduler(warmup_t=warm, warmup_lr_init=first, warmup_prefix=True) of timm, by its formulas."""
    if t < warm:
        return first + t * (top - first) / warm
    t -= warm
    return least + 0.5 * (top - least) * (1 + math.cos(math.pi * t / t_initial)) if t < t_initial else least


for formula in (nanogpt, timm):
    np.save(f"{folder}/{formula.__name__}.npy", np.array([formula(t) for t in range(steps)]))
for name, make in schedules.items():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3)
    schedule = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if len(rates) < steps:
            schedule.step()
    np.save(f"{folder}/{name}.npy", np.array(rates, dtype=np.float64))
