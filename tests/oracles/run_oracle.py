"""What a run directory holds, by the readers it is written for: run_oracle.py TRIREME [PYTHON]    PYTHON: one that has them, if this one does not

TensorBoard's hparams plugin has the settings and their types; MLPerf's compliance checker accepts mllog.txt."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata
    import mlperf_logging
except ImportError:
    if len(sys.argv) > 2 and os.path.exists(sys.argv[2]):
        os.execv(sys.argv[2], [sys.argv[2], *sys.argv[:2]])
    print("SKIPPED: needs tensorboard and mlperf-logging (tools/setup --oracles puts them into build/oracles)")
    sys.exit(77)

trireme = os.path.abspath(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder) / "run"
    words = ["resnet50", "--data.name", "synthetic", "--data.synthetic_size", "8", "--data.image_size", "32", "--data.batch", "4", "--optim.lr", "0.003", "--optim.name", "sgd"]
    subprocess.run([trireme, "train", *words, "--epochs", "2", "--run.dir", out, "--run.tensorboard", "--run.mllog"], check=True, capture_output=True)
    read = EventAccumulator(str(out))
    read.Reload()
    plugin = read.SummaryMetadata
    start = metadata.parse_session_start_info_plugin_data(plugin("_hparams_/session_start_info").plugin_data.content)
    end = metadata.parse_session_end_info_plugin_data(plugin("_hparams_/session_end_info").plugin_data.content)
    experiment = metadata.parse_experiment_plugin_data(plugin("_hparams_/experiment").plugin_data.content)
    assert start.hparams["optim.lr"].number_value == 0.003 and start.hparams["optim.name"].string_value == "sgd" and start.hparams["data.shuffle"].bool_value is True, start
    assert end.status == 1 and end.end_time_secs >= start.start_time_secs > 1.7e9, end
    infos = {info.name: info.type for info in experiment.hparam_infos}
    assert (infos["optim.lr"], infos["optim.name"], infos["data.shuffle"]) == (3, 1, 2) and infos.keys() == start.hparams.keys(), infos
    assert {m.name.tag for m in experiment.metric_infos} <= set(read.Tags()["scalars"]) | {"train/loss"}, read.Tags()

    def accepted(log, ruleset):
        said = subprocess.run([sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", ruleset, "--log_output", str(out / "checked"), log],
                              capture_output=True, text=True)
        return ("SUCCESS" in said.stdout + said.stderr and said.returncode == 0), said.stdout + said.stderr

    for ruleset in "3.1.0", "4.0.0":
        ok, said = accepted(out / "mllog.txt", ruleset)
        assert ok, said
    # One that is asked to stop in between, and goes on: its log is one run's. Its keys are those that MLPerf's closed division wants of ResNet,
    # too; what that misses is the accuracy, which no run of some steps has: with a made-up one it is accepted, without it is not.
    log = pathlib.Path(folder) / "stopped" / "mllog.txt"
    words += ["--epochs", "3", "--optim.min_lr", "0.0001", "--optim.weight_decay", "0.0002", "--run.dir", log.parent, "--run.mllog", "--run.resume", "auto", "--strategy", "accumulate(micro=2)"]
    process = subprocess.Popen([trireme, "train", *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (log.exists() and "epoch_start" in log.read_text()):
        time.sleep(0.02)
    process.terminate()
    said = process.communicate()[1]
    assert process.returncode in (0, 85), said
    assert process.returncode == 0 or "run_stop" not in log.read_text()
    if process.returncode == 85:
        subprocess.run([trireme, "train", *map(str, words)], check=True, capture_output=True)
    text = log.read_text()
    assert '"key":"gradient_accumulation_steps","metadata":{"file":"trireme","lineno":0},"namespace":"","time_ms"' in text
    lines = [json.loads(line.removeprefix(":::MLLOG ")) for line in text.splitlines()]
    by_key = {line["key"]: line for line in lines}
    assert by_key["gradient_accumulation_steps"]["value"] == 2 and by_key["cache_clear"]["value"] is False and by_key["model_bn_span"]["value"] == 4, by_key
    assert by_key["sgd_opt_learning_rate_decay_steps"]["value"] == 6 and by_key["run_start"]["time_ms"] <= by_key["epoch_start"]["time_ms"], by_key
    for ruleset in "3.1.0", "4.0.0":
        for accuracy, expected in (0.5, False), (0.7591, True):
            made_up = re.sub(r'("key":"eval_accuracy".*"value":)[0-9.e-]+', rf"\g<1>{accuracy}", text).replace('"value":"open"', '"value":"closed"')
            (out / "made_up.txt").write_text(made_up)
            ok, said = accepted(out / "made_up.txt", ruleset)
            assert ok == expected, said
