// Losses, weights and buffers of every strategy and pair, bit for bit as they were when recorded_bits.txt was written:
// what is rebuilt beneath the strategies changes no number, and processes get what threads do. TRIREME_RECORD_BITS=FILE
// appends what this machine gets.
#include <filesystem>
#include <fstream>
#include <map>

#include "kernels/cpu/vector.h"
#include "parallel/comm/fnv.h"
#include "tests/parallel/pair_setups.h"
#include "tests/parallel/pairs.h"

namespace test_recorded_bits {

using namespace trireme;
using namespace trireme::test;

namespace {

Setup integers() {
  Setup s = exact();
  s.steps = 3;
  return s;
}
Setup floats() {
  Setup s = normed();
  s.steps = 3;
  s.optimizer.clip_norm = 1;
  return s;
}
const char* level_name() {
  switch (vector_level()) {
    case VectorLevel::v4: return "v4";
    case VectorLevel::v3: return "v3";
    case VectorLevel::base: return "base";
  }
  return "";
}

/// Single strategies and all pairs, each on its smallest mesh.
std::vector<Arrangement> table() {
  std::vector<Arrangement> all;
  for (auto& a : strategy_texts())
    all.push_back({{{a.axis.empty() ? "data" : a.axis, a.axis.empty() ? 1 : 2}}, a.text, a.microbatches});
  for (auto& [a, b] : strategy_pairs()) all.push_back(smallest(a, b));
  return all;
}

/// A hash of all numbers; "refused" for a pair that does not go together.
std::string bits_of(const Setup& s, const Arrangement& how, bool virtual_time = false) {
  try {
    const Outcome o = parallel_run(s, how.mesh, parse_strategy(how.strategy), virtual_time);
    Fnv fnv;
    for (auto* numbers : {&o.losses, &o.weights, &o.buffers})
      for (double v : *numbers) fnv.add(std::bit_cast<std::uint64_t>(v));
    return fmt::format("{:016x}", fnv.value());
  } catch (const Error& e) {
    if (known_refusal(e.what()).empty()) throw;
    return "refused";
  }
}

std::map<std::string, std::string> recorded_bits() {  // by kind and arrangement
  const std::filesystem::path file = TRIREME_ROOT "/tests/parallel/recorded_bits.txt";
  std::map<std::string, std::string> recorded;
  std::ifstream in(file);
  for (std::string kind, bits, how; in >> kind >> bits && std::getline(in >> std::ws, how);)
    recorded[kind + " " + how] = bits;
  return recorded;
}

/// Without a launcher all, on threads; else those of as many ranks as there are processes. More than two processes,
/// which may be more than there are cores, take long: every sixth then, with TRIREME_TEST_ALL all.
std::vector<Arrangement> arrangements_here() {
  std::vector<Arrangement> all = table();
  if (!under_mpi()) return all;
  std::erase_if(all, [](const Arrangement& how) { return how.ranks() != processes().size(); });
  REQUIRE(!all.empty());
  if (processes().size() <= 2 || std::getenv("TRIREME_TEST_ALL")) return all;
  std::vector<Arrangement> some;
  for (std::size_t i = 0; i < all.size(); i += 6) some.push_back(all[i]);
  return some;
}

/// Whether sums of floats have one order everywhere (communicator.h): between threads, of two numbers, and in memory
/// that processes share. The reduce_scatter of zero needs processes that read each other's memory.
bool adds_in_rank_order(const Arrangement& how) {
  if (!under_mpi() || processes().size() == 2) return true;
  const std::string transport = processes().transport();
  return transport == "mpi, shared memory" ||
         (transport == "mpi, staged in shared memory" && how.strategy.find("zero") == std::string::npos);
}

}  // namespace

TEST_CASE("every strategy and pair gives the bits that were recorded") {
  auto recorded = recorded_bits();
  const char* to = under_mpi() ? nullptr : std::getenv("TRIREME_RECORD_BITS");
  std::ofstream out;
  if (to) out.open(to, std::ios::app);
  const std::vector<Arrangement> all = arrangements_here();
  int compared = 0;
  for (const auto& [kind, setup] : {std::pair<std::string, Setup>{"integers", integers()}, {level_name(), floats()}})
    for (const Arrangement& how : all) {
      if (kind != "integers" && !adds_in_rank_order(how)) continue;
      const std::string key = kind + " " + how.text();
      if (to) {
        out << kind << " " << bits_of(setup, how) << " " << how.text() << "\n";
      } else if (recorded.count(key)) {
        INFO(key);
        CHECK(bits_of(setup, how) == recorded[key]);
        ++compared;
      }
    }
  if (to) SUCCEED("recorded");
  if (!to) CHECK(compared >= static_cast<int>(all.size()));  // of integers all
}

TEST_CASE("in virtual time every strategy and pair gives the bits that were recorded") {
  if (threads_only()) return;
  auto recorded = recorded_bits();
  for (const auto& [kind, setup] : {std::pair<std::string, Setup>{"integers", integers()}, {level_name(), floats()}})
    for (const Arrangement& how : table()) {
      const std::string key = kind + " " + how.text();
      if (!recorded.count(key)) continue;
      INFO(key);
      CHECK(bits_of(setup, how, true) == recorded[key]);
    }
}

}  // namespace test_recorded_bits
