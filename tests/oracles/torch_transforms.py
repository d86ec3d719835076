"""Images changed by torchvision.transforms.functional. Usage: torch_transforms.py FOLDER

cases.txt has a line per case: its number, a function's name and its arguments; in<i>.npy is the image, [height, width, channels] of u8's
values. Writes what torchvision makes of it as a tensor to tensor<i>.npy, and as a PIL image to pil<i>.npy where that is another way.
"""
import sys

try:
    import numpy as np
    import torch
    import torchvision.transforms.functional as F
    from PIL import Image
    from torchvision.transforms import InterpolationMode
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
bilinear = InterpolationMode.BILINEAR
ints = lambda words: [int(float(w)) for w in words]
# Those of tensors alone differ between torchvision's two ways by more than a grey level: PIL rounds in between.
of_tensors = {
    "resize": lambda x, a: F.resize(x, ints(a), bilinear, antialias=True),
    "resized_crop": lambda x, a: F.resize(F.crop(x, *ints(a[:4])), ints(a[4:]), bilinear, antialias=True),
    "rotate": lambda x, a: F.rotate(x, float(a[0]), bilinear),
    "adjust_hue": lambda x, a: F.adjust_hue(x, float(a[0])),
    "gaussian_blur": lambda x, a: F.gaussian_blur(x, ints(a[:1])[0], float(a[1])),
    "erase": lambda x, a: F.erase(x, *ints(a[:4]), torch.tensor(ints(a[4:]), dtype=torch.uint8).view(-1, 1, 1)),
}
of_both = {
    "crop": lambda x, a: F.crop(x, *ints(a)),
    "center_crop": lambda x, a: F.center_crop(x, ints(a)),
    "pad": lambda x, a: F.pad(x, ints(a[:4]), int(a[5]), a[4]),
    "hflip": lambda x, a: F.hflip(x),
    "vflip": lambda x, a: F.vflip(x),
    "to_grayscale": lambda x, a: F.rgb_to_grayscale(x, ints(a)[0]),
    "adjust_brightness": lambda x, a: F.adjust_brightness(x, float(a[0])),
    "adjust_contrast": lambda x, a: F.adjust_contrast(x, float(a[0])),
    "adjust_saturation": lambda x, a: F.adjust_saturation(x, float(a[0])),
}
for line in open(f"{folder}/cases.txt"):
    case, name, *arguments = line.split()
    pixels = np.load(f"{folder}/in{case}.npy").astype(np.uint8)
    grey = pixels.shape[2] == 1
    if not (grey and name == "to_grayscale"):   # which of tensors takes RGB only
        made = (of_tensors.get(name) or of_both[name])(torch.from_numpy(pixels.transpose(2, 0, 1).copy()), arguments)
        np.save(f"{folder}/tensor{case}.npy", np.ascontiguousarray(made.numpy().transpose(1, 2, 0), dtype=np.float64))
    if name in of_both:
        made = np.asarray(of_both[name](Image.fromarray(pixels[:, :, 0] if grey else pixels), arguments))
        np.save(f"{folder}/pil{case}.npy", np.ascontiguousarray(made.reshape(*made.shape[:2], -1), dtype=np.float64))
