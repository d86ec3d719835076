"""Folders of tokenizers in Hugging Face transformers: tokenizer_folders.py FOLDER

For each FOLDER/CASE/ids.json, {text: ids}: AutoTokenizer gives each text these ids. Needs transformers.
"""
import json
import os
import pathlib
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    from transformers import AutoTokenizer
except ImportError:
    sys.exit(77)

for path in sorted(pathlib.Path(sys.argv[1]).glob("*/ids.json")):
    tokenizer = AutoTokenizer.from_pretrained(path.parent)
    for text, ids in json.loads(path.read_text()).items():
        assert tokenizer(text)["input_ids"] == ids, (path.parent.name, text, tokenizer(text)["input_ids"], ids)
