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
  } catch (const Error& error) { return told(error); }
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
  extra.push_back(7);
  type[2] = 0x0d;
  rank[3] = 7;
  magic[0] = 0x89;
  Bytes cut = good, header = good;
  cut.resize(15);
  header.resize(7);
  CHECK_THAT(refusal({}), mentions("data", "F"));
  CHECK_THAT(refusal({0, 0}), mentions("data", "F", 2, 8));
  CHECK_THAT(refusal(header), mentions("data", "F", 7, 12));
  CHECK_THAT(refusal(cut), mentions("data", "F", 15, 18));
  CHECK_THAT(refusal(extra), mentions("data", "F", 1));
  CHECK_THAT(refusal(type), mentions("data", "F", "f32", "0x0d", "u8"));
  CHECK_THAT(refusal(rank), mentions("data", "F", 7, 6));
  CHECK_THAT(refusal(magic), mentions("data", "F", "0x89000802", "0x00000801", "0x00000803"));
  CHECK_THAT(refusal(idx_bytes({1u << 31, 1u << 31, 1u << 31}, six)),
             mentions("data", "F", "[2147483648, 2147483648, 2147483648]"));
}

TEST_CASE("idx: defects inside gzip data") {
  const Bytes good = gzip(idx_bytes({2, 3}, six));
  Bytes cut = good, checksum = good, extra = good;
  cut.resize(good.size() - 4);
  checksum[good.size() - 5] ^= 1;
  extra.push_back(0);
  Bytes member = good, begun = good;
  begun.resize(12);
  member.insert(member.end(), good.begin(), good.end());
  for (const Bytes& bytes : {cut, checksum, extra, member}) CHECK_THAT(refusal(bytes), mentions("data", "F", "gzip"));
  CHECK_THAT(refusal(begun), mentions("data", "F", 12, "gzip"));
  CHECK_THAT(refusal(gzip(idx_bytes({2, 2}, six))), mentions("data", "F", 2));
  CHECK_THAT(refusal(gzip(idx_bytes({2, 4}, six))), mentions("data", "F", 18, 20));
  CHECK_THAT(refusal(gzip({0, 0, 8})), mentions("data", "F", 3, 8));
}

TEST_CASE("idx: a declared size is refused before memory is taken for it") {
  // 40 GB declared by a few bytes: more than deflate could hold.
  CHECK_THAT(refusal(gzip(idx_bytes({40000, 1000000}, six))), mentions("data", 18, 40000000012));
  // 100 MB of zeros pack into 440 kB: a real bomb.
  Bytes zeros = idx_bytes({100, 1000000}, {});
  zeros.resize(zeros.size() + 100000000);
  CHECK_THAT(refusal(gzip(zeros)), mentions("data", 100000012));
}

TEST_CASE("idx: files that cannot be read") {
  const Folder folder;
  CHECK_ERROR(read_idx(folder.path("none")), file, "file", "none");
  CHECK_ERROR(read_idx(folder.path()), file, folder.path());
  CHECK_ERROR(read_idx(folder.write("zero", {})), data, "idx", "zero");
  CHECK(read_idx(folder.write("good", idx_bytes({6}, six))).values == six);
}

}  // namespace test_idx
