"""Files of weights that load strictly elsewhere: vit_bert_load.py FOLDER

FOLDER/vit.safetensors in torchvision's VisionTransformer; FOLDER/vit_hf/ and FOLDER/bert/ with config.json and
model.safetensors in Hugging Face transformers: no tensor missing, unexpected or of another shape, and logits of the
inputs (images.npy, [N, H, W, C]; ids, kinds and length.npy) are those of NAME.logits.npy. Needs torch, torchvision and
transformers.
"""
import json
import pathlib
import sys

try:
    import numpy as np
    import torch
    from safetensors.torch import load_file
    from torchvision.models import VisionTransformer
    from transformers import AutoModelForImageClassification, AutoModelForMaskedLM, logging
    AutoModelForMaskedLM.from_pretrained   # a stand-in, where torch is missing, has none
except ImportError:
    sys.exit(77)

logging.set_verbosity_error()  # no advice on models that nothing here changes
folder = pathlib.Path(sys.argv[1])


def array(name):
    return torch.from_numpy(np.load(folder / f"{name}.npy"))


def check(name, logits):
    expected = array(f"{name}.logits")
    assert logits.shape == expected.shape, (name, logits.shape, expected.shape)
    off = ((logits.double() - expected).abs().max() / expected.abs().max()).item()
    assert off < 1e-5, (name, off)


def strictly(kind, name):
    model, about = kind.from_pretrained(folder / name, output_loading_info=True)
    for fault in ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs"):
        assert not about.get(fault), (name, about)
    return model.eval()


images = array("images").float().permute(0, 3, 1, 2).contiguous()
ids, kinds, length = (array(name).long() for name in ("ids", "kinds", "length"))
mask = (torch.arange(ids.shape[1]) < length[:, None]).long()
with torch.no_grad():
    vit = VisionTransformer(**json.load(open(folder / "vit.json"))).eval()
    vit.load_state_dict(load_file(folder / "vit.safetensors"), strict=True)
    check("vit", vit(images))
    check("vit_hf", strictly(AutoModelForImageClassification, "vit_hf")(images).logits)
    check("bert", strictly(AutoModelForMaskedLM, "bert")(ids, attention_mask=mask, token_type_ids=kinds).logits)
