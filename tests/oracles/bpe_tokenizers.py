"""Byte-level BPE by Hugging Face's `tokenizers`: bpe_tokenizers.py FOLDER [fixture]

Trains BPEs of 1024 tokens on FOLDER/train.txt and writes them to FOLDER: gpt2.json, gpt2/{vocab.json, merges.txt},
prefix.json (add_prefix_space), llama3.json (its pattern, whole words first), whole.json (no pattern). Encodes each text
FOLDER/*.txt (NAME.TOKENIZER.npy) and many odd strings: strings.bin, all of them one behind the other, strings.npy, the
bytes of each, and strings.TOKENIZER.npy, their ids, each one's behind a -1.
fixture: writes FOLDER/bpe.json, a small tokenizer, and FOLDER/bpe.expected.json, texts with their ids.
"""
import json
import pathlib
import random
import sys
import unicodedata

try:
    import numpy
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
except ImportError:
    sys.exit(77)

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
END = "<|endoftext|>"


def trained(text, words, size=1024, **options):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[END], initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False, **options)
    tokenizer.train_from_iterator([text], trainer)
    return tokenizer


def with_settings(tokenizer, **model):
    """The same tokenizer with other settings of its model."""
    document = json.loads(tokenizer.to_str())
    document["model"].update(model)
    return Tokenizer.from_str(json.dumps(document))


def byte_level(**options):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **options})


def odd_strings(count):
    """Strings of all planes, mixes of white space, contractions in all cases, digits of all scripts, tokens and parts of them."""
    random.seed(19)
    assigned = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    spaces = [c for c in assigned if c.isspace()] + list("\u200b\u2060\ufeff\u180e") + [" "] * 9 + ["\n"] * 6 + ["\r\n"] * 3
    numbers = [c for c in assigned if unicodedata.category(c)[0] == "N"] + list("0123456789") * 30
    contractions = [a + b for a in ("'", "\u2019", " '") for b in "s t re ve m ll d S T Re RE VE M LL Ll D \u017f \u212a sx llama dd 're".split()]
    words = "the Thou king hath ing er THE naive na\u00efve \u65e5\u672c\u8a9e \u0440\u0443\u0441 \u0645\u0631\u062d\u0628\u0627 \u1e9e x ".split()
    tokens = [END, END[:5], END[1:], END * 2, "<<|added|>>", "<|added|>", "<|added|>2", "|>"]
    kinds = [lambda: random.choice(assigned), lambda: random.choice(spaces), lambda: random.choice(numbers), lambda: random.choice(contractions),
             lambda: random.choice(words), lambda: chr(random.randrange(128)), lambda: random.choice(tokens), lambda: random.choice(spaces) * random.randrange(5),
             lambda: random.choice(words) * random.randrange(4), lambda: chr(random.randrange(0x80, 0x250)), lambda: random.choice("!?.,;:-()[]{}<>|@#$%^&*") * random.randrange(1, 4)]
    for _ in range(count):
        some = random.sample(kinds, random.randrange(1, len(kinds)))
        yield "".join(random.choice(some)() for _ in range(random.randrange(1, 25)))


folder = pathlib.Path(sys.argv[1])
if sys.argv[2:] == ["fixture"]:
    text = (pathlib.Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    tokenizer = trained(text, byte_level(), 384)
    (folder / "bpe.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")) + "\n")
    texts = ["", " ", "A recipe: the tests of the kernel's gradient.", "don't  I'll\n\n they've\t 123 4567", "na\u00efve \u65e5\u672c\u8a9e \U0001f600",
             "one" + END + " two" + END + END, "<|end", "trailing   ", "\r\n x \u3000y\u00a0"]
    lines = [json.dumps({"text": t, "ids": tokenizer.encode(t, add_special_tokens=False).ids}) for t in texts]
    (folder / "bpe.expected.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")
    sys.exit()

train = (folder / "train.txt").read_bytes().decode()
split = lambda pattern: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(use_regex=False)])
tokenizers = {
    "gpt2": trained(train, byte_level()),
    "prefix": trained(train, byte_level(add_prefix_space=True)),
    "llama3": with_settings(trained(train, split(LLAMA3)), ignore_merges=True),
    "whole": trained("\n".join(train[:20000].split()), byte_level(use_regex=False), max_token_length=6),
}
for name, tokenizer in tokenizers.items():
    tokenizer.add_tokens([AddedToken("<|added|>", normalized=True, special=False), AddedToken("<|added|>2", normalized=True, special=False)])
    tokenizer.save(str(folder / f"{name}.json"))
(folder / "gpt2").mkdir()
tokenizers["gpt2"].model.save(str(folder / "gpt2"))

encode = lambda tokenizer, text: tokenizer.encode(text, add_special_tokens=False).ids
for path in folder.glob("*.txt"):
    text = path.read_bytes().decode()
    for name, tokenizer in tokenizers.items():
        if name != "whole":  # a text as one word takes it long
            numpy.save(folder / f"{path.stem}.{name}.npy", numpy.array(encode(tokenizer, text), "f8"))
strings = list(odd_strings(6000))
(folder / "strings.bin").write_bytes("".join(strings).encode())
numpy.save(folder / "strings.npy", numpy.array([len(s.encode()) for s in strings], "f8"))
for name, tokenizer in tokenizers.items():
    ids = [i for s in strings for i in [-1] + encode(tokenizer, s)]
    numpy.save(folder / f"strings.{name}.npy", numpy.array(ids, "f8"))
