"""Folders that load strictly in Hugging Face transformers: hf_load.py FOLDER

For each FOLDER/MODEL/ with config.json and model.safetensors: from_pretrained() finds no tensor missing, unexpected or
of another shape; its logits of ids.npy are those of MODEL.logits.npy. Needs torch and transformers.
"""
import pathlib
import sys

try:
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM
    AutoModelForCausalLM.from_pretrained   # a stand-in, where torch is missing, has none
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
ids = torch.from_numpy(np.load(folder / "ids.npy")).long()
for path in sorted(folder.glob("*/config.json")):
    name = path.parent.name
    model, about = AutoModelForCausalLM.from_pretrained(path.parent, output_loading_info=True)
    for fault in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not about.get(fault), (name, about)
    with torch.no_grad():
        logits = model.eval()(ids).logits.double().numpy()
    expected = np.load(folder / f"{name}.logits.npy")
    assert logits.shape == expected.shape, (name, logits.shape, expected.shape)
    off = np.abs(logits - expected).max() / np.abs(expected).max()
    assert off < 1e-5, (name, off)
