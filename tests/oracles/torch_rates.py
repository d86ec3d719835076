"""Learning rates of torch.optim.lr_scheduler. Usage: torch_rates.py FOLDER STEPS"""
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
    "warm_up": lambda o: lr.LinearLR(o, 0.25, total_iters=10),
}
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
