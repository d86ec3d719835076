// WebDataset shards (Aizman, Maltby and Breuel, arXiv 2001.01858): tar archives in which consecutive members with the
// same key form a sample. They are read in place.
#pragma once
#include "datasets/formats/tar.h"
#include "datasets/images/images.h"

namespace trireme {

/// The file names of a pattern such as "a-{000..146}.tar" or "{train,val}.tar", or of a list separated by "," or "::".
/// Relative names are in root, unless that is empty. Numbers keep their leading zeros. Throws Error for an empty or
/// malformed pattern, and for more than a million names.
std::vector<std::string> expand_shards(const std::string& pattern, const std::string& root = "");

/// A labelled image of a shard.
struct ShardSample {
  TarMember image;         ///< a .jpg, .jpeg or .png member
  std::int64_t label = 0;  ///< class of the image
};
/// Calls f for each sample. Its key is a member's path up to the first dot after the last slash. For the image
/// cat/7.jpg the label is cat/7.cls, an integer in ASCII, or the integer "label" or "cls" in cat/7.json. Other members,
/// and names that begin with "." or "__", are ignored. Throws Error with shard and member for a sample without image or
/// label or with two images, a label that is not a number in [0, 2^20), and two different labels.
void scan_shard(const NamedBytes& shard, const std::function<void(const ShardSample&)>& f);

/// All samples of the shards, in order. classes: number of classes; 0: the largest label plus one. Scans each shard
/// once, then reads images in place. Throws Error with shard and member for a label outside [0, classes).
std::unique_ptr<const EncodedSource> WebDataset(const std::vector<std::string>& shards, Index classes = 0);

}  // namespace trireme
