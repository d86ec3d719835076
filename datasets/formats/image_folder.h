// Image files in one folder per class (torchvision's ImageFolder, ImageNet's usual layout).
#pragma once
#include "datasets/images/images.h"

namespace trireme {

/// The .jpg, .jpeg and .png files (in any case) in root/CLASS/ and its subfolders, sorted by class, folder and name
/// like torchvision. Hidden files and folders, and files that are not images, are ignored. root has the class folders,
/// or train/ and val/ (or test/), of which split ("train" or "test") selects one. Classes are numbered in byte order of
/// their folders' names, or in the order of root/classes.txt: a line per class with its folder and, after a blank, its
/// display name.
///
/// Throws a one-line Error for
/// - a missing root, or one without class folders;
/// - a class folder without images, or with images of other formats (.webp, .bmp, ...);
/// - two classes with the same name (folders that differ only in case, or equal display names);
/// - a classes.txt that does not match the folders, and different class folders in train/ and val/.
std::unique_ptr<const EncodedSource> image_folder(const std::string& root, const std::string& split);

}  // namespace trireme
