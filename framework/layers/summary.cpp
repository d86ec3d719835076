#include "framework/layers/summary.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <set>

#include "framework/autograd/step_context.h"
#include "framework/autograd/trace.h"
#include "framework/layers/sequential.h"
#include "framework/tensor/fields.h"
#include "kernels/contracts/matmul.h"

namespace trireme {

std::string demangled(const char* symbol) {
  const std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr), std::free);
  return name ? name.get() : symbol;
}

namespace {

std::string type_of(const Module& m) {
  const std::string name = demangled(m.type().name());
  if (name.find('(') != name.npos || name.find('{') != name.npos) return "function";
  return name.substr(name.rfind(':') == name.npos ? 0 : name.rfind(':') + 1);
}

double flops_of(const TracedOp& op) {
  const auto elements = static_cast<double>(op.output.numel());
  const std::string name = op.name;
  const auto inner = [&](std::size_t input, int from, int to) {
    return static_cast<double>(op.inputs[input].shape().product(from, to));
  };
  if (name == "conv") return 2 * elements * inner(1, 1, op.inputs[1].rank());
  if (name == "conv_transpose") return 2 * static_cast<double>(op.inputs[0].numel()) * inner(1, 1, op.inputs[1].rank());
  if (name == "linear") return 2 * elements * inner(1, 1, 2);
  if (name == "attention") return 4 * elements * inner(1, 1, 2);  // also of a causal one
  if (name == "matmul") {
    const auto* o = std::any_cast<MatMulOptions>(&op.detail);
    return 2 * elements * static_cast<double>(op.inputs[0].dim(o && o->transpose_a ? -2 : -1));
  }
  const bool moves = name == "reshape" || name == "to" || name == "rows" || name == "split" || name == "permute" ||
                     name == "flatten" || name == "constant" || name == "concat" || name == "expand";
  return moves ? 0 : elements;
}

class Walk {
 public:
  Tensor run(const Module& module, const std::string& name, Tensor x) {
    if (const auto* row = module.as<Sequential>()) {
      Stashed stashed;
      stashed.fields = fields_beside(x);
      for (std::size_t i = 0; i < row->size(); ++i) {
        const Module& layer = (*row)[i];
        const std::string full = name.empty() ? row->name(i) : name + "." + row->name(i);
        x = layer.as<Sequential>() ? run(layer, full, with_fields(std::move(x), stashed.fields))
                                   : add(layer, full, [&] { return row->run_layer(i, std::move(x), stashed); });
      }
      return x;
    }
    return add(module, name, [&] { return module(std::move(x)); });
  }
  ModelSummary all;

 private:
  template <class F>
  Tensor add(Module layer, const std::string& name, F&& forward) {
    LayerSummary row;
    row.name = name;
    row.type = type_of(layer);
    for (const NamedState& t : named_tensors(layer))
      if (counted_.insert(t.tensor->id()).second)
        (t.kind == StateKind::buffer ? row.buffers : row.parameters) += t.tensor->numel();
    Tensor y;
    {
      Trace trace;
      y = forward();
      for (const TracedOp& op : trace.ops) {
        row.flops += flops_of(op);
        const std::string_view kind = op.name;  // of what only gives its input another shape or fields
        if (kind != "reshape" && kind != "with") row.bytes += op.output.view().bytes();
      }
    }
    row.output = y.shape();
    all.parameters += row.parameters;
    all.buffers += row.buffers;
    all.flops += row.flops;
    all.bytes += row.bytes;
    all.layers.push_back(std::move(row));
    return y;
  }
  std::set<const void*> counted_;
};

}  // namespace

ModelSummary summary(Module& model, const Tensor& example) {
  StepContext evaluation = StepContext::current();
  evaluation.batch.training = false;
  const StepScope scope(std::move(evaluation));
  Walk walk;
  walk.run(model, "", example);
  return std::move(walk.all);
}

std::string to_string(const ModelSummary& s) {
  std::size_t name = 5, type = 4;
  for (const LayerSummary& l : s.layers) {
    name = std::max(name, l.name.size());
    type = std::max(type, l.type.size());
  }
  const auto line = [&](std::string_view n, std::string_view t, const std::string& shape, auto parameters, auto mflop,
                        auto mb) {
    return fmt::format("{:<{}}  {:<{}}  {:<20} {:>12} {:>12} {:>9}\n", n, name, t, type, shape, parameters, mflop, mb);
  };
  const auto millions = [](double v) { return fmt::format("{:.2f}", v / 1e6); };
  std::string text = line("layer", "type", "output", "parameters", "MFLOP", "MB");
  for (const LayerSummary& l : s.layers)
    text += line(l.name, l.type, to_string(l.output), l.parameters, millions(l.flops),
                 millions(static_cast<double>(l.bytes)));
  text += line("total", "", "", s.parameters, millions(s.flops), millions(static_cast<double>(s.bytes)));
  return text + (s.buffers > 0 ? fmt::format("not trained: {} numbers\n", s.buffers) : "");
}

}  // namespace trireme
