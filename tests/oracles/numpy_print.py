"""Whether arrays print as NumPy's str() prints them: numpy_print.py FOLDER (kinds: a line with each array's type; N.npy, N.txt)."""
import pathlib
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)

folder = pathlib.Path(sys.argv[1])
wrong = []
for i, kind in enumerate((folder / "kinds").read_text().split()):
    ours, theirs = (folder / f"{i}.txt").read_text(), str(np.load(folder / f"{i}.npy").astype(kind))
    if ours != theirs:
        wrong.append(f"{i} ({kind}):\n{ours}\nis not NumPy's\n{theirs}")
if wrong:
    sys.exit("\n".join(wrong[:5]) + f"\n{len(wrong)} arrays differ")
