"""Decoding, cropping and resizing by PIL and torchvision. Usage: pil_images.py FOLDER

image.jpg is one that Trireme wrote; crops.npy holds rows of left, top, width, height, flip, and size.npy the side of the
result. Writes crops' pixels to crop<i>.npy, the centre (short side at 8/7, then centred) to centre.npy, the plain pixels to whole.npy.
"""
import sys

try:
    import numpy as np
    import torchvision.transforms.functional as F
    from PIL import Image
    from torchvision.transforms import InterpolationMode
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
size = int(np.load(f"{folder}/size.npy").flat[0])
image = Image.open(f"{folder}/image.jpg").convert("RGB")
save = lambda name, picture: np.save(f"{folder}/{name}.npy", np.asarray(picture, dtype=np.float64))
save("whole", image)
for i, (left, top, width, height, flip) in enumerate(np.load(f"{folder}/crops.npy").reshape(-1, 5)):
    part = F.resized_crop(image, int(top), int(left), int(height), int(width), [size, size], InterpolationMode.BILINEAR)
    save(f"crop{i}", F.hflip(part) if flip else part)
save("centre", F.center_crop(F.resize(image, round(size * 8 / 7), InterpolationMode.BILINEAR), [size, size]))
