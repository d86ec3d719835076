// Replaces chunk_codecs.cpp in builds without libblosc or libzstd.
#include "datasets/volumes/chunk_codecs.h"

namespace trireme {

Unpack blosc_codec() { return nullptr; }
Unpack zstd_codec() { return nullptr; }

}  // namespace trireme
