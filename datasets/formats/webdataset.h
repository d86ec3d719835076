// WebDataset shards (Aizman, Maltby and Breuel, arXiv 2001.01858): tar archives whose consecutive members of one key
// are a sample, read in place.
#pragma once
#include "datasets/formats/tar.h"
#include "datasets/images/images.h"

namespace trireme {

/// "a-{000..146}.tar", "{train,val}.tar", lists by "," or "::"; relative names are in root, unless that is empty.
/// Numbers keep their leading zeros. Throws Error for an empty or damaged pattern, or one of over a million names.
std::vector<std::string> expand_shards(const std::string& pattern, const std::string& root = "");

/// An image of a shard: cat/7.jpg, or .jpeg or .png.
struct ShardSample {
  TarMember image;
  std::int64_t label = 0;
};
/// Calls f for each sample. Key: a member's path up to the first dot after its last slash. The label is cat/7.cls, an
/// integer in ASCII, or the integer "label" or "cls" of cat/7.json; other members are passed over, and so are names
/// that begin with "." or "__". Throws Error naming shard and member for a sample without image or label, with two
/// images, a label that is no number in [0, 2^20), or two that disagree.
void scan_shard(const NamedBytes& shard, const std::function<void(const ShardSample&)>& f);

/// All samples of the shards, in order. classes: how many there are; 0: the largest label and one. Scans each shard
/// once, then reads images where they lie. Throws Error naming shard and member for a label outside [0, classes).
std::unique_ptr<const EncodedSource> WebDataset(const std::vector<std::string>& shards, Index classes = 0);

}  // namespace trireme
