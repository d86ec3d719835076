"""Tiny seeded ViT of torchvision and ViT and BERT of Hugging Face transformers, for tests: vit_bert_fixtures.py FOLDER    (tests/fixtures)

For each model NAME, FOLDER/NAME.safetensors: its weights as its own save functions name and lay them out (state_dict();
save_pretrained(), beside its config.json NAME.json), and FOLDER/NAME.expected.safetensors: inputs (images as PyTorch has
them, [N, C, H, W]; or ids, token_type_ids, length), labels, logits, loss, and "grad.TENSOR" of the loss by each weight.
Needs torch >= 2, torchvision and transformers; the files are kept in the tree, so that the tests need none of them.
"""
import json
import pathlib
import shutil
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file, save_file
    from torchvision.models import VisionTransformer
    from transformers import BertConfig, BertForMaskedLM, ViTConfig, ViTForImageClassification
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])


def seeded(seed, make):
    torch.manual_seed(seed)
    model = make()
    with torch.no_grad():
        for parameter in model.parameters():  # no tensor is 0 or 1
            parameter += 0.3 * torch.randn(parameter.shape)
    return model.eval()


def save_hf(name, model):
    """Writes the model; returns its tensors' names in memory, which may be others (transformers 5), by those in the file."""
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        shutil.copy(f"{saved}/model.safetensors", folder / f"{name}.safetensors")
        (folder / f"{name}.json").write_text(json.dumps(json.load(open(f"{saved}/config.json")), indent=1) + "\n")
    named = {}
    for key, value in load_file(folder / f"{name}.safetensors").items():
        same = [own for own, p in model.named_parameters() if p.shape == value.shape and torch.equal(p, value)]
        assert len(same) == 1, (key, same)
        named[key] = same[0]
    assert len(named) == len(list(model.named_parameters()))
    return named


def expected(name, model, inputs, labels, logits, named=None):
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
    loss.backward()
    gradients = {key: p.grad for key, p in model.named_parameters()}
    out = {**inputs, "labels": labels, "logits": logits.detach(), "loss": loss.detach()}
    out.update({f"grad.{key}": gradients[own] for key, own in (named or {key: key for key in gradients}).items()})
    save_file({key: t.contiguous() for key, t in out.items()}, folder / f"{name}.expected.safetensors")


vit = seeded(1, lambda: VisionTransformer(image_size=8, patch_size=4, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=20, num_classes=5))
save_file(vit.state_dict(), folder / "vision/vit.safetensors", {"format": "pt"})
images = torch.randn(3, 3, 8, 8)
expected("vision/vit", vit, {"images": images}, torch.tensor([1, 4, 0]), vit(images))

vit = seeded(2, lambda: ViTForImageClassification(ViTConfig(
    image_size=12, patch_size=4, num_channels=2, num_hidden_layers=2, num_attention_heads=3, hidden_size=12, intermediate_size=16, num_labels=5)))
named = save_hf("vision/vit_hf", vit)
images = torch.randn(3, 2, 12, 12)
expected("vision/vit_hf", vit, {"images": images}, torch.tensor([3, 4, 0]), vit(images).logits, named)

bert = seeded(3, lambda: BertForMaskedLM(BertConfig(
    vocab_size=23, num_hidden_layers=2, num_attention_heads=2, hidden_size=8, intermediate_size=12, max_position_embeddings=16)))
named = save_hf("text/bert", bert)
length = torch.tensor([9, 4, 6])
counts = torch.arange(9) < length[:, None]
kinds = (torch.arange(9) >= torch.tensor([[5], [2], [3]])).long()
ids = torch.where(counts, torch.randint(1, 23, (3, 9)), 0)  # 0 pads: the lookup of a padding token has no gradient there
labels = torch.where(counts & (torch.rand(3, 9) < 0.4), torch.randint(23, (3, 9)), -100)
inputs = {"ids": ids, "token_type_ids": kinds, "length": length, "plain_logits": bert(ids).logits.detach()}
expected("text/bert", bert, inputs, labels, bert(ids, attention_mask=counts.long(), token_type_ids=kinds).logits, named)
for path in folder.glob("*/*.safetensors"):
    path.chmod(0o644)
