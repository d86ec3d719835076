"""Tiny seeded language models of Hugging Face transformers, for tests: hf_fixtures.py FOLDER    (tests/fixtures/text)

For each model NAME: NAME.safetensors, as save_pretrained writes it; NAME.json, its config.json; NAME.expected.safetensors
with ids [N, T], labels, logits [N, T, V], loss, "grad.TENSOR" of the loss's gradients, prompts (prompt.0, ...) and what
greedy decoding adds to each (generated.0, ...). Needs torch >= 2 and transformers 5; the files are kept in the tree, so
that the tests need neither.
"""
import json
import pathlib
import shutil
import sys
import tempfile

try:
    import torch
    from safetensors.torch import save_file
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
except ImportError:
    sys.exit(77)

more = 22  # tokens that are generated
llama = dict(hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=29,
             max_position_embeddings=40, bos_token_id=None, eos_token_id=None)
llama3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
models = {
    "gpt2": (GPT2LMHeadModel, GPT2Config(n_embd=8, n_layer=2, n_head=2, vocab_size=29, n_positions=40, bos_token_id=None, eos_token_id=None)),
    "llama": (LlamaForCausalLM, LlamaConfig(**llama)),
    "llama_tied": (LlamaForCausalLM, LlamaConfig(**{**llama, "hidden_size": 12, "num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 1},
                                                 tie_word_embeddings=True, attention_bias=True, mlp_bias=True, rope_parameters=llama3)),
}
folder = pathlib.Path(sys.argv[1])
for seed, (name, (kind, config)) in enumerate(models.items()):
    torch.manual_seed(25 - 5 * (seed > 0) + seed)  # of which greedy choices vary
    model = kind(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # no tensor is 0 or 1, and greedy choices are far from others
            parameter += 0.35 * torch.randn(parameter.shape)
    with tempfile.TemporaryDirectory() as saved:
        model.save_pretrained(saved)
        shutil.copy(f"{saved}/model.safetensors", folder / f"{name}.safetensors")
        (folder / f"{name}.json").write_text(json.dumps(json.load(open(f"{saved}/config.json")), indent=1) + "\n")
    ids = torch.randint(config.vocab_size, (3, 12))
    labels = torch.randint(config.vocab_size, (3, 12))
    labels[0, 5] = labels[2, 8:] = -100
    logits = model(ids).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    out = {"ids": ids, "labels": labels, "logits": logits.detach(), "loss": loss.detach()}
    out.update({f"grad.{key}": p.grad for key, p in model.named_parameters()})
    for i, length in enumerate((5, 3, 8)):
        prompt = torch.randint(config.vocab_size, (1, length))
        out[f"prompt.{i}"] = prompt[0]
        out[f"generated.{i}"] = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=more, do_sample=False, pad_token_id=0)[0, length:]
        scores = model(torch.cat([prompt[0], out[f"generated.{i}"]])[None]).logits[0, length - 1:-1].topk(2).values
        print(name, out[f"generated.{i}"].tolist(), "least gap between two choices", (scores[:, 0] - scores[:, 1]).min().item())
    save_file({key: t.contiguous() for key, t in out.items()}, folder / f"{name}.expected.safetensors")
