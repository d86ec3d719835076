// Plans that one device has kept are what another begins with, as a later process would: emulated devices share a name,
// and so a folder, but not what a process remembers.
#include <array>
#include <cstdlib>
#include <map>
#include <sstream>

#include "kernels/contracts/conv.h"
#include "tests/kernels/cuda/device_arrays.h"
#include "tests/kernels/cuda/no_device.h"
#include "tests/support/temporary.h"

namespace test_cuda_plans {

using namespace trireme;
using namespace trireme::test;
namespace fs = std::filesystem;

namespace {

/// What a training step asks of one convolution, on a device: the output with all that can be joined to it, the
/// gradients, each set and then added to.
std::vector<std::vector<double>> step(DType type, Device device) {
  const Shape xs{2, 4, 4, 8}, ws{16, 3, 3, 8}, ys{2, 4, 4, 16};  // 32 rows: means are exact, too
  const ConvOptions o{.pad_begin = {1, 1, 0}, .pad_end = {1, 1, 0}, .relu = true};
  const ConvOptions plain{.pad_begin = o.pad_begin, .pad_end = o.pad_end};
  std::vector<Tensor> held;
  auto there = [&](const Shape& shape, DType t) {
    Array host(shape, t);
    for (Index i = 0; i < host.size(); ++i)
      host.set(i, static_cast<double>((i * 7 + 3) % 3 - 1));  // all sums are exact in bf16
    Tensor& copy = held.emplace_back(Tensor::empty(shape, t, device));
    runtime(DeviceKind::cuda).copy(copy.view().data, device, host.data(), cpu(), host.bytes.size());
    return copy.view();
  };
  const View x = there(xs, type), w = there(ws, type), dy = there(ys, type), bias = there({16}, type);
  const View y = there(ys, type), residual = there(ys, type), own = there(ys, type);
  const View grouped = there({16, 3, 3, 4}, type), far = there(ys, type), normed = there(ys, type);
  const View mean = there({16}, DType::f32), m2 = there({16}, DType::f32);
  const View mean_far = there({16}, DType::f32), m2_far = there({16}, DType::f32);
  const View dx = there(xs, type), dw = there(ws, type), wide = there(ws, DType::f32), db = there({16}, type);
  Kernel<kernel::Conv>::on(DeviceKind::cuda)(y, x, w, bias, residual, o);
  Kernel<kernel::Conv>::on(DeviceKind::cuda)(own, x, w, bias, own, o);
  Kernel<kernel::ConvMoments>::on(DeviceKind::cuda)(normed, x, w, View{}, mean, m2, plain);
  ConvOptions groups = plain;  // no engine of the emulator takes them with sums
  groups.groups = 2;
  Kernel<kernel::ConvMoments>::on(DeviceKind::cuda)(far, x, grouped, View{}, mean_far, m2_far, groups);
  for (bool accumulate : {false, true}) {
    Kernel<kernel::ConvBackwardInput>::on(DeviceKind::cuda)(dx, dy, w, plain, accumulate);
    Kernel<kernel::ConvBackwardWeight>::on(DeviceKind::cuda)(dw, db, x, dy, plain, accumulate);
    Kernel<kernel::ConvBackwardWeight>::on(DeviceKind::cuda)(wide, View{}, x, dy, plain, accumulate);
  }
  std::vector<std::vector<double>> results;
  for (const View& v : {y, own, normed, mean, m2, far, mean_far, m2_far, dx, dw, wide, db}) {
    Array host(v.shape, v.dtype);
    runtime(DeviceKind::cuda).copy(host.data(), cpu(), v.data, device, host.bytes.size());
    auto& numbers = results.emplace_back();
    for (Index i = 0; i < host.size(); ++i) numbers.push_back(host.get(i));
  }
  return results;
}

std::vector<std::vector<std::vector<double>>> steps(int device) {
  std::vector<std::vector<std::vector<double>>> all;
  for (DType type : {DType::f32, DType::bf16, DType::f16}) all.push_back(step(type, {DeviceKind::cuda, device}));
  return all;
}

/// Names and what they hold; written: when.
std::map<std::string, std::pair<std::string, fs::file_time_type>> files(const std::string& folder) {
  std::map<std::string, std::pair<std::string, fs::file_time_type>> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) all[entry.path()] = {slurp(entry.path()), entry.last_write_time()};
  return all;
}

/// Those of a convolution with its sums, by whether its graph has them: the last number of the key but one says so.
std::map<bool, int> plans_with_sums(const std::string& folder) {
  std::map<bool, int> all;
  for (const auto& [name, file] : files(folder)) {
    std::istringstream text(file.first.substr(file.first.find('\n')));
    std::array<long, 32> key{};
    for (long& n : key) text >> n;
    long way = -1;
    text >> way;
    if (key[30] == 1) ++all[way == 0];
  }
  return all;
}

std::uint64_t fnv(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return h;
}

}  // namespace

TEST_CASE("plans are kept for later processes, and planned anew where a file is damaged") {
  const Temporary folder;
  setenv("TRIREME_PLAN_CACHE", folder.path().c_str(), 1);
  setenv("TRIREME_EMULATOR_DEVICES", "3", 1);
  if (no_device()) return;
  if (open_backend(DeviceKind::cuda).devices < 3) {
    SUCCEED("wants three devices");
    return;
  }
  const auto cold = steps(0);
  const auto kept = files(folder.path());
  CHECK(kept.size() >= 10);
  for (const auto& [name, file] : kept) CHECK(name.ends_with(".plan"));
  // Of narrow types, with and without groups, which no engine of the emulator takes with sums; and in bf16 its only
  // engine for them is not repeatable. Which way is faster in f16 is not for a test to say.
  const auto sums = plans_with_sums(folder.path());
  if (std::getenv("TRIREME_EMULATOR_ALONE"))
    CHECK(sums == std::map<bool, int>{{true, 1}});
  else
    CHECK((sums.at(false) >= 3 && sums.at(false) + (sums.contains(true) ? sums.at(true) : 0) == 4));

  CHECK(steps(1) == cold);
  CHECK(files(folder.path()) == kept);  // nothing was planned

  // Half a file, another's, and one that is whole but holds nothing that cuDNN takes.
  const auto key = [](const std::string& text) { return text.substr(0, text.find('\n', text.find('\n') + 1)); };
  const std::string refused = "\n0 7 " + std::to_string(fnv("no plan")) + "\nno plan";
  int i = 0;
  const std::string& other = kept.begin()->second.first;
  for (const auto& [name, file] : kept) switch (i++ % 3) {
      case 0: spill(name, file.first.substr(0, file.first.size() / 2)); break;
      case 1: spill(name, other); break;
      default: spill(name, key(file.first) + refused); break;
    }
  CHECK(steps(2) == cold);
  const auto again = files(folder.path());
  REQUIRE(again.size() == kept.size());
  for (const auto& [name, file] : kept) CHECK(key(again.at(name).first) == key(file.first));

  // Sums in any order are plans of their own. Here they have no digits to lose.
  set_deterministic(false);
  CHECK(steps(0) == cold);
  set_deterministic(true);
  const auto all = files(folder.path());
  CHECK(all.size() == 2 * kept.size() + (std::getenv("TRIREME_EMULATOR_ALONE") ? 1 : 0));  // and bf16's sums
}

}  // namespace test_cuda_plans
