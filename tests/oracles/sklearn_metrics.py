"""scikit-learn's metrics, and math.fsum, of the arrays in a folder. Usage: sklearn_metrics.py FOLDER CASES

Case k: logits<k> [N, C], labels<k> [N], scores<k> and truths<k> [M], y<k> and t<k> [M], addends<k>; leaves out<k>.
"""
import math
import sys

try:
    import numpy as np
    from sklearn import metrics as m
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
for k in range(int(sys.argv[2])):
    load = lambda name: np.load(f"{folder}/{name}{k}.npy")
    logits, labels, scores, truths, y, t = (load(n) for n in ("logits", "labels", "scores", "truths", "y", "t"))
    taken, labels, truths = logits.argmax(1), labels.astype(int), truths.astype(int)
    out = [m.accuracy_score(labels, taken)]
    for average in ("macro", "weighted", "micro"):
        out += m.precision_recall_fscore_support(labels, taken, average=average, zero_division=0)[:3]
    out += m.precision_recall_fscore_support(truths, (scores > 0).astype(int), average="binary", zero_division=0)[:3]
    out.append(m.jaccard_score(labels, taken, average="macro", labels=np.union1d(labels, taken)))
    for first in (0, 1):
        found = [c for c in np.union1d(labels, taken) if c >= first]
        out.append(m.f1_score(labels, taken, average="macro", labels=found, zero_division=0) if found else float("nan"))
    out += [m.roc_auc_score(truths, scores), m.average_precision_score(truths, scores)]
    one_hot = np.eye(logits.shape[1], dtype=int)[labels]
    classes = [c for c in range(logits.shape[1]) if 0 < one_hot[:, c].sum() < len(labels)]
    assert len(classes) == logits.shape[1]
    out += [m.roc_auc_score(one_hot, logits, average="macro"), m.average_precision_score(one_hot, logits, average="macro")]
    out += [m.top_k_accuracy_score(labels, logits + 1e-9 * np.arange(logits.shape[1])[::-1], k=2, labels=np.arange(logits.shape[1])) if logits.shape[1] > 2 else 1.0]
    out += [m.mean_absolute_error(t, y), m.mean_squared_error(t, y), m.r2_score(t, y), math.fsum(load("addends"))]
    np.save(f"{folder}/out{k}.npy", np.array(out, dtype=float))
    np.save(f"{folder}/matrix{k}.npy", m.confusion_matrix(labels, taken, labels=np.arange(logits.shape[1])).astype(float))
