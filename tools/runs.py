"""Reads what trireme writes into plain dictionaries and lists: load_run, load_study, load_search. Needs Python 3.11 alone."""
import json
import pathlib
import sqlite3
import tomllib


def _json(path):
    return json.loads(path.read_text()) if path.exists() else {}


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()] if path.exists() else []


def load_run(folder):
    """A run: config, environment, result; train, eval and test (after a run with a validation split) are lists with a dictionary per line of metrics.jsonl."""
    folder = pathlib.Path(folder)
    metrics = _lines(folder / "metrics.jsonl")
    return {"path": str(folder), "config": tomllib.loads((folder / "config.toml").read_text()), "environment": _json(folder / "environment.json"),
            "result": _json(folder / "result.json"), **{kind: [line for line in metrics if line.get("kind") == kind] for kind in ("train", "eval", "test")}}


def load_study(folder):
    """A scaling study: question (study.toml with its cells), facts, ledger; runs: path, cell, seed, status, attempts, and run or None."""
    folder = pathlib.Path(folder)
    question, ledger = tomllib.loads((folder / "study.toml").read_text()), _lines(folder / "ledger.jsonl")
    runs = {}
    for entry in ledger:   # the last line of a run has its status
        row = runs.setdefault(entry["run"], {"path": entry["run"], "attempts": 0, **{k: entry[k] for k in ("cell", "scaling", "strategy", "mesh", "ranks", "seed")}})
        row.update(status=entry["status"], attempts=row["attempts"] + (entry["status"] == "started"))
    for name, row in runs.items():
        row["run"] = load_run(folder / name) if (folder / name / "config.toml").exists() else None
    return {"question": question, "facts": _json(folder / "facts.json"), "ledger": ledger, "runs": list(runs.values())}


def load_search(folder):
    """A search: question (space.toml), settings of the training, ledger; trials: id, status, settings, values [epoch, value]."""
    folder = pathlib.Path(folder)
    database = sqlite3.connect(f"file:{folder / 'study.db'}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    trials = {row["id"]: {**row, "settings": json.loads(row["settings"]), "values": []}
              for row in map(dict, database.execute("SELECT id, parent, status, why, seconds, attempts, point AS settings FROM trials ORDER BY id"))}
    for trial, epoch, value in database.execute("SELECT trial, epoch, value FROM reports ORDER BY epoch"):
        trials[trial]["values"].append([epoch, value])
    database.close()
    return {"question": tomllib.loads((folder / "space.toml").read_text()), "settings": tomllib.loads((folder / "settings.toml").read_text()),
            "ledger": _lines(folder / "ledger.jsonl"), "trials": list(trials.values())}
