"""An ImageNet-style folder of real images: train/ and val/ with a folder per class.
  make_image_folder.py DIR [--classes 10] [--train 32] [--val 16] [--size 96] [--photos FOLDER]
Pictures are Fashion-MNIST's test images (Debian's dataset-fashion-mnist), each somewhere on a tinted ground; with --photos, crops of
the JPEG files below FOLDER, a class per photograph (Debian's lomiri-wallpapers-16.04, in /usr/share/backgrounds, say).
Ends with 77 when Pillow, NumPy or the pictures are missing.
"""
import argparse
import gzip
import pathlib
import sys

try:
    import numpy as np
    from PIL import Image
except ImportError:
    sys.exit(77)

parser = argparse.ArgumentParser()
parser.add_argument("dir", type=pathlib.Path)
parser.add_argument("--classes", type=int, default=10)
parser.add_argument("--train", type=int, default=32)
parser.add_argument("--val", type=int, default=16)
parser.add_argument("--size", type=int, default=96)
parser.add_argument("--quality", type=int, default=92)
parser.add_argument("--photos", type=pathlib.Path)
args = parser.parse_args()
draw = np.random.RandomState(1)
per_class = args.train + args.val


def fashion():
    names = ["t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"]
    folder = pathlib.Path("/usr/share/datasets/fashion-mnist")
    read = lambda name, skip: np.frombuffer(gzip.open(folder / name).read(), np.uint8)[skip:]
    images, labels = read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28), read("t10k-labels-idx1-ubyte.gz", 8)
    for label, name in enumerate(names[:args.classes]):
        for i, image in enumerate(images[labels == label][:per_class]):
            width, height = args.size * 4 // 3, args.size
            ground = np.full((height, width, 3), draw.randint(0, 120, 3), np.float32) + draw.normal(0, 12, (height, width, 1))
            side = draw.randint(height * 2 // 3, height + 1)
            x, y = draw.randint(0, width - side + 1), draw.randint(0, height - side + 1)
            thing = np.asarray(Image.fromarray(image).resize((side, side), Image.BICUBIC), np.float32)[..., None]
            ground[y:y + side, x:x + side] += thing / 255 * (draw.randint(130, 255, 3) - ground[y:y + side, x:x + side])
            yield name, i, Image.fromarray(ground.clip(0, 255).astype(np.uint8))


def photos():
    for path in sorted(args.photos.rglob("*.jpg"))[:args.classes]:
        whole = Image.open(path).convert("RGB")
        for i in range(per_class):
            height = min(whole.height, whole.width * 3 / 4) * draw.uniform(0.25, 0.9)
            x, y = draw.uniform(0, whole.width - height * 4 / 3), draw.uniform(0, whole.height - height)
            yield path.stem, i, whole.resize((args.size * 4 // 3, args.size), Image.LANCZOS, (x, y, x + height * 4 / 3, y + height))


try:
    for name, i, image in photos() if args.photos else fashion():
        folder = args.dir / ("train" if i < args.train else "val") / name
        folder.mkdir(parents=True, exist_ok=True)
        image.save(folder / f"{i:04}.jpg", quality=args.quality)
except FileNotFoundError as error:
    print(error, file=sys.stderr)
    sys.exit(77)
