#include "parallel/comm/world/mesh.h"
#include "tests/support/catch.h"

namespace test_mesh {

using namespace trireme;
using trireme::test::contains;

TEST_CASE("mesh: the last axis varies fastest") {
  const auto body = [](World& world) {
    Mesh mesh(world, {{"pipe", 2}, {"data", 3}});
    auto expect = [](bool ok) { check(ok, "mesh", "wrong place"); };
    expect(mesh.index("pipe") == world.rank() / 3 && mesh.index("data") == world.rank() % 3);
    expect(mesh.size("data") == 3 && mesh.size("tensor") == 1 && mesh.index("tensor") == 0);
    expect(mesh.comm("data").rank() == mesh.index("data") && mesh.comm("pipe").size() == 2);
    Tensor row = Tensor::scalar(world.rank()), column = Tensor::scalar(world.rank());
    mesh.comm("data").all_reduce(row).wait();
    mesh.comm("pipe").all_reduce(column).wait();
    expect(row.item() == (world.rank() < 3 ? 0 + 1 + 2 : 3 + 4 + 5));
    expect(column.item() == 2 * mesh.index("data") + 3);
  };
  CHECK_NOTHROW(World::threads(6, body));
}

TEST_CASE("mesh: three axes, one of size 1") {
  const auto body = [](World& world) {
    Mesh mesh(world, {{"a", 2}, {"b", 1}, {"c", 2}});
    check(mesh.index("a") == world.rank() / 2 && mesh.index("c") == world.rank() % 2 && mesh.comm("b").size() == 1,
          "mesh", "wrong place");
    Mesh plain(world);
    check(plain.size("data") == 4 && plain.index("data") == world.rank(), "mesh", "wrong place");
  };
  CHECK_NOTHROW(World::threads(4, body));
}

TEST_CASE("mesh: bad sizes and names are refused with the remedy") {
  World world;
  REQUIRE_ERROR((Mesh(world, {{"pipe", 2}, {"data", 3}})), usage, "mesh", 6);
  REQUIRE_ERROR((Mesh(world, {{"data", 1}, {"data", 1}})), usage, "mesh", "data");
  REQUIRE_ERROR((Mesh(world, {{"data", 0}})), usage, "mesh", 0);
  REQUIRE_ERROR(Mesh(world).comm("dta"), usage, "mesh", "dta");
  REQUIRE_ERROR(World::threads(4, [](World& w) { Mesh(w, {{"pipe", 2}, {"data", 3}}); }), usage, "mesh", 2);
}

TEST_CASE("a mesh is written as its axes and their sizes") {
  const auto axes = parse_mesh("pipe=2,data=4");
  REQUIRE(axes.size() == 2);
  CHECK((axes[0].name == "pipe" && axes[0].size == 2 && axes[1].name == "data" && axes[1].size == 4));
  CHECK(ranks_of(axes) == 8);
  CHECK(ranks_of({}) == 1);
  for (const char* bad : {"pipe", "pipe=", "=2", "pipe=0", "pipe=-1", "pipe=2x", "pipe=2,,data=2", "pipe=99999999999"})
    CHECK_ERROR(parse_mesh(bad), usage, "pipe=2,data=4");
  CHECK_ERROR(parse_mesh("data=2,data=3"), usage, "data=2,data=3");
  CHECK_ERROR(ranks_of(parse_mesh("a=1000000,b=1000000")), usage, "mesh", "1073741824");
}

}  // namespace test_mesh
