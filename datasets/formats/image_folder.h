// Image files in one folder per class, as torchvision's ImageFolder and ImageNet's usual layout have them.
#pragma once
#include "datasets/images/images.h"

namespace trireme {

/// The .jpg, .jpeg and .png files (in any case) in root/CLASS/ and in folders below it, by class, folder and name, as
/// torchvision sorts them. Hidden files and folders and files that are no pictures are passed over. root holds the
/// class folders, or train/ and val/ (or test/), of which split ("train" or "test") picks one. Classes are numbered in
/// the byte order of their folders' names, or as root/classes.txt lists them: a line per class, its folder and, after a
/// blank, the name to show. Throws Error, one line, for a root that is missing or holds no class folders; a class
/// folder without images, or with pictures of other formats (.webp, .bmp, ...); two classes with one name (folders that
/// differ in upper and lower case only, or equal names to show); a classes.txt, or a train/ and val/, whose folders
/// disagree.
std::unique_ptr<const EncodedSource> image_folder(const std::string& root, const std::string& split);

}  // namespace trireme
