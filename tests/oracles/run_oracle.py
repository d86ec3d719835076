"""What a run directory holds, by the readers it is written for: run_oracle.py TRIREME [PYTHON]    PYTHON: one that has them, if this one does not

TensorBoard's hparams plugin has the settings and their types; MLPerf's compliance checker accepts mllog.txt."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata
    import mlperf_logging
except ImportError:
    if len(sys.argv) > 2 and os.path.exists(sys.argv[2]):
        os.execv(sys.argv[2], [sys.argv[2], *sys.argv[:2]])
    sys.exit(77)

trireme = os.path.abspath(sys.argv[1])
with tempfile.TemporaryDirectory() as folder:
    out = pathlib.Path(folder) / "run"
    words = ["resnet50", "--data.name", "synthetic", "--data.synthetic_size", "8", "--data.image_size", "32", "--data.batch", "4", "--epochs", "2", "--optim.lr", "0.003", "--optim.name", "sgd"]
    subprocess.run([trireme, "train", *words, "--run.dir", out, "--run.tensorboard", "--run.mllog"], check=True, capture_output=True)
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

    said = subprocess.run([sys.executable, "-m", "mlperf_logging.compliance_checker", "--usage", "training", "--ruleset", "4.0.0", "--log_output", str(out / "checked"), out / "mllog.txt"],
                          capture_output=True, text=True)
    assert "SUCCESS" in said.stdout + said.stderr and said.returncode == 0, said.stdout + said.stderr
