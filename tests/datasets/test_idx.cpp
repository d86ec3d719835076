#include "datasets/formats/idx.h"

#include "tests/datasets/idx_files.h"
#include "tests/support/catch.h"

namespace test_idx {

using namespace trireme;
using namespace trireme::test;

namespace {

Idx parse(const Bytes& bytes) { return parse_idx(std::as_bytes(std::span(bytes)), "F"); }

std::string refusal(const Bytes& bytes) {
  try {
    parse(bytes);
  } catch (const Error& error) { return error.what(); }
  return "accepted";
}

const Bytes six{1, 2, 3, 4, 5, 6};

}  // namespace

TEST_CASE("idx: plain and gzip bytes give the same values") {
  const Bytes plain = idx_bytes({2, 3}, six);
  for (const Bytes& bytes : {plain, gzip(plain)}) {
    const Idx idx = parse(bytes);
    CHECK(idx.extents == std::vector<Index>{2, 3});
    CHECK(idx.values == six);
  }
}

TEST_CASE("idx: an extent of zero is legal and holds nothing") {
  for (const Bytes& bytes : {idx_bytes({0, 28, 28}, {}), gzip(idx_bytes({0xffffffff, 0xffffffff, 0}, {}))})
    CHECK(parse(bytes).values.empty());
  const Bytes extra = idx_bytes({0, 28, 28}, {1});
  for (const Bytes& bytes : {extra, gzip(extra)}) CHECK(refusal(bytes) != "accepted");
}

TEST_CASE("idx: each defect has its own line") {
  const Bytes good = idx_bytes({2, 3}, six);
  Bytes extra = good, type = good, rank = good, magic = good;
  extra.push_back(7), type[2] = 0x0d, rank[3] = 7, magic[0] = 0x89;
  Bytes cut = good, header = good;
  cut.resize(15), header.resize(7);
  CHECK(refusal({}) == "idx: F: is empty");
  CHECK(refusal({0, 0}) == "idx: F: truncated: 2 bytes, the header alone takes 8 or more");
  CHECK(refusal(header) == "idx: F: truncated: 7 bytes, its header takes 12");
  CHECK(refusal(cut) == "idx: F: truncated: 15 bytes, its header declares 18");
  CHECK(refusal(extra) == "idx: F: 1 trailing bytes after the values its header declares");
  CHECK(refusal(type) == "idx: F: holds f32 values (type 0x0d), only u8 (0x08) is read");
  CHECK(refusal(rank) == "idx: F: has 7 axes, at most 6 are read");
  CHECK(refusal(magic) ==
        "idx: F: wrong magic 0x89000802; a label file begins with 0x00000801, an image file with 0x00000803");
  CHECK(refusal(idx_bytes({1u << 31, 1u << 31, 1u << 31}, six)) ==
        "idx: F: its header declares an absurd size, [2147483648, 2147483648, 2147483648]");
}

TEST_CASE("idx: defects inside gzip data") {
  const Bytes good = gzip(idx_bytes({2, 3}, six));
  Bytes cut = good, checksum = good, extra = good;
  cut.resize(good.size() - 4), checksum[good.size() - 5] ^= 1, extra.push_back(0);
  Bytes member = good, begun = good;
  begun.resize(12);
  member.insert(member.end(), good.begin(), good.end());
  for (const Bytes& bytes : {cut, checksum, extra, member})
    CHECK(refusal(bytes) == "idx: F: truncated or damaged gzip data: fetch the file again");
  CHECK(refusal(begun) == "idx: F: truncated: 12 bytes of gzip data");
  CHECK(refusal(gzip(idx_bytes({2, 2}, six))) == "idx: F: 2 trailing bytes after the values its header declares");
  CHECK(refusal(gzip(idx_bytes({2, 4}, six))) == "idx: F: truncated: 18 bytes, its header declares 20");
  CHECK(refusal(gzip({0, 0, 8})) == "idx: F: truncated: 3 bytes, the header alone takes 8 or more");
}

TEST_CASE("idx: a declared size is refused before memory is taken for it") {
  // 40 GB declared by a few bytes: more than deflate could hold.
  CHECK_THAT(refusal(gzip(idx_bytes({40000, 1000000}, six))),
             contains("truncated: 18 bytes, its header declares 40000000012"));
  // 100 MB of zeros pack into 440 kB: a real bomb.
  Bytes zeros = idx_bytes({100, 1000000}, {});
  zeros.resize(zeros.size() + 100000000);
  CHECK_THAT(refusal(gzip(zeros)), contains("declares 100000012 bytes, over the"));
}

TEST_CASE("idx: files that cannot be read") {
  const Folder folder;
  CHECK_ERROR(read_idx(folder.path("none")), file, "file", "none");
  CHECK_ERROR(read_idx(folder.path()), file, "file");
  CHECK_ERROR(read_idx(folder.write("zero", {})), data, "idx", "zero");
  CHECK(read_idx(folder.write("good", idx_bytes({6}, six))).values == six);
}

}  // namespace test_idx
