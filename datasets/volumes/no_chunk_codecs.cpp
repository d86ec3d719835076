// In the place of chunk_codecs.cpp where there is no libblosc or no libzstd.
#include "datasets/volumes/chunk_codecs.h"

namespace trireme {

Unpack blosc_codec() { return nullptr; }
Unpack zstd_codec() { return nullptr; }

}  // namespace trireme
