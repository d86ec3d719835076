"""TensorBoard's own reader on a folder of event files: tensorboard_oracle.py FOLDER

Leaves SCALAR.npy (steps and values, flattened), for every tag with slashes as dashes; for a histogram TAG.npy with min, max, num,
sum, sum of squares, limits and counts of its last; for an image its height, width and bytes."""
import sys

try:
    import numpy as np
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
except ImportError:
    sys.exit(77)
import glob
import os

folder = sys.argv[1]
save = lambda tag, numbers: np.save(os.path.join(folder, tag.replace("/", "-") + ".npy"), np.array(numbers, np.float64).ravel())
files = sorted(glob.glob(os.path.join(folder, "events.out.tfevents.*")))
save("events", [sum(1 for _ in EventFileLoader(f).Load()) for f in files])
read = EventAccumulator(folder, size_guidance={"scalars": 0, "images": 0, "histograms": 0})
read.Reload()
tags = read.Tags()
for tag in tags["scalars"]:
    save(tag, [(e.step, e.value) for e in read.Scalars(tag)])
for tag in tags["histograms"]:
    h = read.Histograms(tag)[-1].histogram_value
    save(tag, [h.min, h.max, h.num, h.sum, h.sum_squares, *h.bucket_limit, *h.bucket])
for tag in tags["images"]:
    i = read.Images(tag)[-1]
    save(tag, [i.height, i.width, *i.encoded_image_string])
