// f32 copies of bf16 operands, for kernels that the CPU has in f32 only; and the sum of rows (bias gradients).
#pragma once
#include "kernels/cpu/dnnl.h"

namespace trireme {

/// to = from, f32 <-> bf16 (or the same type), n elements.
void convert(void* to, DType to_type, const void* from, DType from_type, Index n);

/// v in f32: v itself, or a converted copy that lives as long as this object. View{} stays View{}.
class InF32 {
 public:
  explicit InF32(const View& v);
  const View& view() const { return view_; }

 private:
  onednn::Scratch copy_;
  View view_;
};

/// An f32 block to write instead of v; store() converts it to v. load: begin with v's contents.
class OutF32 {
 public:
  OutF32(const View& v, bool load);
  const View& view() const { return view_; }
  void store() const;

 private:
  View target_;
  onednn::Scratch copy_;
  View view_;
};

/// sum [C] (+)= sum over all other axes of x [..., C]; f32, f64 or bf16; summed in the accumulator type.
void sum_rows(const View& sum, const View& x, bool accumulate, std::string_view op);

}  // namespace trireme
