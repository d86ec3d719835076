#include "kernels/cpu/dnnl.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "kernels/core/environment.h"
#include "kernels/core/vendor.h"
#include "kernels/cpu/vector.h"

namespace trireme {
namespace {

/// oneDNN 2.6's AMX implementations are wrong or crash in bf16: convolutions (conv/conv_faults.h), and products
/// (SIGILL). Disables AMX before oneDNN's first use, unless the user sets ONEDNN_MAX_CPU_ISA.
void avoid_amx() {
  static const bool once = [] {
    const bool asked = std::getenv("ONEDNN_MAX_CPU_ISA") || std::getenv("DNNL_MAX_CPU_ISA");
    return onednn::old_version && !asked && dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16) == dnnl_success;
  }();
  (void)once;
}

}  // namespace

VectorLevel detail::find_vector_level() {
  avoid_amx();
  const auto allowed = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  const auto allows = [allowed](unsigned isa) { return (allowed & isa) == isa; };
  if (detail::cpu_has_v4() && allows(dnnl_cpu_isa_avx512_core)) return VectorLevel::v4;
  if (detail::cpu_has_v3() && allows(dnnl_cpu_isa_avx2)) return VectorLevel::v3;
  return VectorLevel::base;
}
}  // namespace trireme

namespace trireme::onednn {

dnnl::engine& engine() {
  avoid_amx();
  static dnnl::engine& e = *new dnnl::engine(dnnl::engine::kind::cpu, 0);  // outlives every thread's cache
  return e;
}

namespace {
dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}
}  // namespace

namespace {
template <class F>
dnnl_status_t timed(F&& execute, bool reorder) {
  using Clock = std::chrono::steady_clock;
  VendorClock& clock = vendor_clock();
  const Clock::time_point start = Clock::now();
  const dnnl_status_t status = execute();
  (reorder ? clock.reorder : clock.compute) += std::chrono::duration<double>(Clock::now() - start).count();
  return status;
}
}  // namespace

void append_relu(dnnl::post_ops& ops) {
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(dnnl::algorithm::eltwise_relu, 0.f, 0.f);
#else
  ops.append_eltwise(1.f, dnnl::algorithm::eltwise_relu, 0.f, 0.f);
#endif
}

dnnl::memory::data_type type_of(DType t) {
  switch (t) {
    case DType::f32: return dnnl::memory::data_type::f32;
    case DType::bf16: return dnnl::memory::data_type::bf16;
    default: fail("onednn", "got {}, expected f32 or bf16", name_of(t));
  }
}

Desc dense(const Dims& dims, const std::vector<int>& order, DType type) {
  Dims strides(dims.size());
  Index stride = 1;
  for (std::size_t at = dims.size(); at-- > 0;)  // innermost axis of the block first
    for (std::size_t i = 0; i < dims.size(); ++i)
      if (order[i] == static_cast<int>(at)) {
        strides[i] = stride;
        stride *= dims[i];
      }
  return Desc(dims, type_of(type), strides);
}

Desc any(const Dims& dims, DType type) { return Desc(dims, type_of(type), dnnl::memory::format_tag::any); }

namespace {

std::size_t fence() {
  static const bool asked = environment_text("TRIREME_FENCE") == "1";
  return asked ? 4096 : 0;
}
constexpr int fence_byte = 0xa5;

}  // namespace

void* Scratch::allocate(std::size_t bytes) {
  void* const data = runtime(DeviceKind::cpu).allocate(bytes + fence(), cpu());
  std::memset(static_cast<char*>(data) + bytes, fence_byte, fence());
  return data;
}

void Scratch::release(void* data, std::size_t bytes) {
  const auto* const end = static_cast<const unsigned char*>(data) + bytes;
  for (std::size_t i = fence(); i-- > 0;)
    if (end[i] != fence_byte) {
      std::fprintf(stderr, "oneDNN has written up to %zu bytes behind its %zu bytes of scratch memory\n", i + 1, bytes);
      std::abort();
    }
  runtime(DeviceKind::cpu).release(data, bytes + fence(), cpu());
}

dnnl::primitive_attr attributes() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

Prepared::Prepared(const dnnl::primitive& primitive, const std::vector<Arg>& args, const Desc& scratchpad, bool clear)
    : primitive_(primitive), scratchpad_(scratchpad.get_size()), clear_(clear) {
  reorder_ = primitive.get_kind() == dnnl::primitive::kind::reorder;
  for (const Arg& a : args) memory_.emplace_back(a.desc, engine(), nullptr);
  if (scratchpad_ > 0) memory_.emplace_back(scratchpad, engine(), nullptr);
  for (std::size_t i = 0; i < memory_.size(); ++i)
    args_.push_back({i < args.size() ? args[i].name : DNNL_ARG_SCRATCHPAD, memory_[i].get()});
}

void Prepared::operator()(std::initializer_list<const void*> data) {
  Scratch scratch(scratchpad_);
  if (clear_ && scratchpad_ > 0) std::memset(scratch.data(), 0, scratchpad_);
  std::size_t i = 0;
  for (const void* p : data) memory_[i++].set_data_handle(const_cast<void*>(p));
  if (scratchpad_ > 0) memory_[i++].set_data_handle(scratch.data());
  check(i == memory_.size(), ErrorKind::internal, "onednn", "{} operands given, the primitive has {}", i,
        memory_.size());
  const auto execute = [&] {
    return dnnl_primitive_execute(primitive_.get(), stream().get(), static_cast<int>(args_.size()), args_.data());
  };
  const dnnl_status_t status = vendor_clock().on ? timed(execute, reorder_) : execute();
  check(status == dnnl_success, ErrorKind::device, "onednn", "the primitive failed with status {}",
        static_cast<int>(status));
}

void sgemm(float* c, bool transpose_a, const float* a, const float* b, Index m, Index n, Index k, float beta) {
  (void)threads();  // settles how many there are
  const auto execute = [&] {
    return dnnl_sgemm(transpose_a ? 'T' : 'N', 'N', m, n, k, 1.f, a, transpose_a ? m : k, b, n, beta, c, n);
  };
  const dnnl_status_t status = vendor_clock().on ? timed(execute, false) : execute();
  check(status == dnnl_success, ErrorKind::device, "onednn", "sgemm failed with status {}", static_cast<int>(status));
}

Prepared reorder(const Desc& from, const Desc& to, bool add) {
  if (from == to && !add) return {};
  dnnl::primitive_attr attr = attributes();
  if (add) {
    dnnl::post_ops ops;
    ops.append_sum(1.f);
    attr.set_post_ops(ops);
  }
  dnnl::reorder::primitive_desc pd(engine(), from, engine(), to, attr);
  return Prepared(dnnl::reorder(pd), {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}}, pd.scratchpad_desc());
}

}  // namespace trireme::onednn
