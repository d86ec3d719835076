// The CUDA backend beside the CPU's f64, over the op table; steps of whole models; what it says when something is
// wrong. With TRIREME_CUDA_PLUGIN naming the emulated plugin (tests/cuda_emulator) it runs on any machine.
#include <set>

#include "framework/ops/ops.h"
#include "kernels/core/backend.h"
#include "kernels/core/kernel.h"
#include "tests/framework/case_outcome.h"
#include "tests/kernels/cuda/no_device.h"

namespace test_cuda {

using namespace trireme;
using namespace trireme::test;

namespace {

void check_parity(const Case& c, DType type, double tolerance) {
  INFO(c.name << " " << name_of(type));
  const CaseOutcome exact = outcome(c, DType::f64), got = outcome(c, type, -1, -1, {}, cuda());
  CHECK(got.shape == exact.shape);
  CHECK(relative(got.y, exact.y) < tolerance);
  CHECK(got.dx.size() == exact.dx.size());
  for (std::size_t k = 0; k < std::min(got.dx.size(), exact.dx.size()); ++k) {
    INFO("input " << k);
    CHECK(relative(got.dx[k], exact.dx[k]) < tolerance);
  }
}

}  // namespace

TEST_CASE("no contract is without a CUDA kernel") {
  if (no_device()) return;
  for (const CensusRow& row : census()) {
    INFO(row.name);
    CHECK(row.present[static_cast<std::size_t>(DeviceKind::cuda)]);
  }
}

TEST_CASE("the op table agrees with the CPU's f64", "[parity]") {
  if (no_device()) return;
  for (const Case& c : cases()) {
    check_parity(c, DType::f64, 1e-11);
    check_parity(c, DType::f32, 1e-5);
    check_parity(c, DType::bf16, c.bf16);
    check_parity(c, DType::f16, 1e-2);
  }
}

TEST_CASE("with products of 10 bits of mantissa the op table agrees to 1e-3", "[parity]") {
  if (no_device()) return;
  set_f32_product(MatmulPrecision::tf32);
  for (const Case& c : cases()) check_parity(c, DType::f32, 1e-3);
  set_f32_product(MatmulPrecision::highest);
}

TEST_CASE("the same call gives the same bits") {
  if (no_device()) return;
  for (const Case& c : cases()) {
    INFO(c.name);
    const CaseOutcome a = outcome(c, DType::f32, -1, -1, {}, cuda()), b = outcome(c, DType::f32, -1, -1, {}, cuda());
    CHECK(a.y == b.y);
    CHECK(a.dx == b.dx);
  }
}

TEST_CASE("a device without rows takes part") {
  if (no_device()) return;
  for (const Case& c : cases()) {
    const auto counts = [](const Input& input) { return input.rows && input.shape.rank() > 0; };
    if (std::none_of(c.inputs.begin(), c.inputs.end(), counts)) continue;
    INFO(c.name);
    const CaseOutcome o = outcome(c, DType::f32, -1, 0, {}, cuda());
    for (std::size_t k = 0; k < o.dx.size(); ++k)
      if (!counts(c.inputs[k])) CHECK(std::all_of(o.dx[k].begin(), o.dx[k].end(), [](double v) { return v == 0; }));
  }
}

TEST_CASE("tensors travel between host and devices, whole and in slices") {
  if (no_device()) return;
  std::vector<double> values(100001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 251) - 100;
  for (DType type : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::i64}) {
    INFO(name_of(type));
    const Tensor host = Tensor::of(values, {100001}, type), there = host.to(cuda());
    CHECK(there.device() == cuda());
    CHECK(there.to_vector() == values);
    CHECK(there.clone().to(cpu()).to_vector() == values);
    there.rows(3, 8).copy_from(host.rows(90, 95));
    CHECK(there.rows(2, 9).to_vector() ==
          Tensor::of(std::vector<double>{-98, -10, -9, -8, -7, -6, -92}, {7}).to_vector());
    if (open_backend(DeviceKind::cuda).devices > 1) CHECK(host.to(cuda(1)).to(cuda(0)).to_vector() == values);
  }
}

TEST_CASE("copies of any size arrive, whatever is under way") {
  if (no_device()) return;
  // Around the sizes of staging memory, more at once than there is of it; and far more than one piece of it.
  constexpr Index sizes[] = {1, 1023, 1024, 1025, 16384, 16385};
  std::vector<Tensor> there;
  for (int i = 0; i < 100; ++i)
    there.push_back(Tensor::full({sizes[i % 6]}, i).to(cuda()));  // the host's copy is gone before the device's is read
  for (int i = 0; i < 100; ++i) {
    const auto values = there[static_cast<std::size_t>(i)].to_vector();
    CHECK(std::all_of(values.begin(), values.end(), [&](double v) { return v == i; }));
  }
  const Tensor large = Tensor::empty({(Index{40} << 20) + 3}, DType::u8);
  auto* bytes = large.data<std::uint8_t>();
  for (Index i = 0; i < large.numel(); ++i) bytes[i] = static_cast<std::uint8_t>(i % 251);
  const Tensor back = large.to(cuda()).to(cpu());
  CHECK(std::equal(bytes, bytes + large.numel(), back.data<std::uint8_t>()));
}

TEST_CASE("a label that is no class is refused where the loss is read") {
  if (no_device()) return;
  const Tensor logits = Tensor::zeros({3, 5}, DType::f32, cuda()),
               labels = Tensor::of(std::vector<double>{1, 7, 2}, {3}, DType::i64).to(cuda());
  CHECK_ERROR(cross_entropy(logits, labels).item(), data, 1, 7, 5);
  CHECK(cross_entropy(logits, Tensor::zeros({3}, DType::i64, cuda())).item() == Approx(std::log(5.0)));
}

TEST_CASE("memory that is not there is asked for in words") {
  if (no_device()) return;
  CHECK_ERROR(Tensor::empty({Index{1} << 45}, DType::f32, cuda()), out_of_memory, "cuda:0", "bf16");
  CHECK(Tensor::full({2}, 3, DType::f32, cuda()).to_vector() == Values{3, 3});
  CHECK_ERROR(Tensor::empty({1}, DType::f32, cuda(99)), device, "cuda:99");
}

}  // namespace test_cuda
