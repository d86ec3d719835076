"""Filtered back-projection by sums: fbp.py FOLDER. cases.txt has a line per picture: its name, angles and missing degrees. Reads <name>.clean, leaves
<name>.image: projections of each pixel's 4 x 4 parts on pixels of a detector, the band-limited ramp filter (Kak and Slaney, eq. 3.61), and back."""
import sys

try:
    import numpy as np
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
for line in open(f"{folder}/cases.txt").read().splitlines():
    name, angles, missing = line.split()
    clean, angles = np.load(f"{folder}/{name}.clean.npy"), int(angles)
    (height, width), bins = clean.shape, 4 * max(clean.shape)
    h, w = np.mgrid[:height, :width]
    n = np.arange(-bins, bins + 1)
    ramp = np.where(n == 0, 0.25, np.where(n % 2 != 0, -1 / (np.pi * np.where(n == 0, 1, n)) ** 2, 0))
    image = np.zeros(clean.shape)
    for k in range(angles):
        if 180 * k / angles >= 180 - float(missing):
            break
        angle = np.pi * k / angles

        def place(dh, dw):   # on the detector: whole pixels and the rest
            at = (h + dh - (height - 1) / 2) * np.sin(angle) + (w + dw - (width - 1) / 2) * np.cos(angle) + bins / 2
            return np.floor(at).astype(int), at % 1

        shadow = np.zeros(bins + 1)
        for dh in np.arange(-0.375, 0.5, 0.25):
            for dw in np.arange(-0.375, 0.5, 0.25):
                at, part = place(dh, dw)
                np.add.at(shadow, at, clean * (1 - part) / 16)
                np.add.at(shadow, at + 1, clean * part / 16)
        filtered = np.convolve(ramp, shadow)[bins:2 * bins + 1]
        at, part = place(0, 0)
        image += (filtered[at] * (1 - part) + filtered[at + 1] * part) * np.pi / angles
    np.save(f"{folder}/{name}.image.npy", image)
