// The bits that named all-reduce algorithms leave: those of the first implementations, whose order of additions stays.
#include "parallel/comm/fnv.h"
#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace test_collective_bits {

using namespace trireme;

namespace {

constexpr const char* names[] = {"ring", "recursive_doubling", "rabenseifner", "tree"};

/// Of 2 to 9 ranks, by algorithm; made with the code before the algorithms became schedules.
constexpr std::uint64_t hashes[][8] = {
    {0x68d8c46754e24dcc, 0xc3cee2b83402bab6, 0x891e80939d330267, 0xa9d755afde658900, 0xbc769ae9a787c831,
     0x8257633ecaddb6a3, 0x3b72a47408dd0745, 0x7c2275d18b87a74b},
    {0x68d8c46754e24dcc, 0x4e55b1e05a026224, 0xecf578b50e43bf1f, 0x93afe55ec36e0427, 0x827eeddbae481272,
     0x548f16bb263e20ea, 0xf93987b1fda5043e, 0x28cc2f4cb1b99f7c},
    {0x68d8c46754e24dcc, 0x4e55b1e05a026224, 0x839e3566660eb680, 0x4964de3056f2487d, 0xe4f5ee416e84b3f,
     0x8eeefd43047d6e74, 0x5213ab41c40ea4b3, 0x5547a090c95ab218},
    {0x68d8c46754e24dcc, 0x4e55b1e05a026224, 0xecf578b50e43bf1f, 0x44e1fefe415dc1c9, 0x827eeddbae481272,
     0x548f16bb263e20ea, 0xf93987b1fda5043e, 0x1d30092b5cc98cbd}};

std::uint64_t hash_of(World& world, const std::string& name) {
  const auto comm = with_all_reduce(world.comm().split(0, world.rank()), name);
  Fnv hash;
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const Index n : {1, 2, 3, 5, 8, 63, 64, 1000, 4099}) {
      std::vector<double> v;
      for (Index i = 0; i < n; ++i) {
        const std::uint64_t bits = test::mix(static_cast<std::uint64_t>((n * 64 + i) * 16 + comm->rank()));
        v.push_back(std::ldexp(static_cast<double>(bits % 20011) - 10005, static_cast<int>(bits >> 60) - 16));
      }
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max}) {
        const Tensor x = Tensor::of(v, {n}, t);
        comm->all_reduce(x, op).wait();
        const auto* bytes = static_cast<const unsigned char*>(x.view().data);
        for (Index i = 0; i < x.view().bytes(); ++i) hash.add(bytes[i]);
      }
    }
  return hash.value();
}

}  // namespace

TEST_CASE("named all-reduce algorithms leave the bits that they always left") {
  for (std::size_t a = 0; a < std::size(names); ++a)
    for (const int ranks : test::rank_counts({2, 3, 4, 5, 6, 7, 8, 9})) {
      CAPTURE(names[a], ranks);
      const std::uint64_t got = test::on_ranks(ranks, [&](World& world) { return hash_of(world, names[a]); });
      CHECK(fmt::format("{:#x}", got) == fmt::format("{:#x}", ranks > 9 ? got : hashes[a][ranks - 2]));
    }
}

}  // namespace test_collective_bits
