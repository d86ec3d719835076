#include "parallel/runtime/settings.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <string_view>

#include "framework/layers/layers.h"
#include "framework/layers/summary.h"
#include "parallel/runtime/version.h"

namespace trireme {

namespace {

/// A plain function by its name, or if its file does not export one, by its offset in the file, because addresses
/// differ between processes.
std::string name_of(const void* function) {
  Dl_info info{};
  if (dladdr(function, &info) == 0 || info.dli_fname == nullptr) return "a function";
  if (info.dli_sname && info.dli_saddr == function) return demangled(info.dli_sname);
  std::string_view file = info.dli_fname;
  file.remove_prefix(file.rfind('/') + 1);
  return fmt::format("the function at {} + {:#x}", file,
                     static_cast<const char*>(function) - static_cast<const char*>(info.dli_fbase));
}

using LossFunction = Tensor (*)(const Tensor&, const Tensor&);
using LayerFunction = Tensor (*)(const Tensor&);
using TakingFunction = Tensor (*)(Tensor);  // may overwrite its input

std::string name_of(const Loss& loss) {
  if (auto* f = loss.function().target<LossFunction>()) return name_of(reinterpret_cast<const void*>(*f));
  if (auto* f = loss.function().target<Loss::Mean>()) return name_of(reinterpret_cast<const void*>(f->loss));
  return demangled(loss.function().target_type().name());
}

std::string name_of(const Module& layer) {
  if (auto* f = layer.as<LayerFunction>()) return name_of(reinterpret_cast<const void*>(*f));
  if (auto* f = layer.as<TakingFunction>()) return name_of(reinterpret_cast<const void*>(*f));
  return demangled(layer.type().name());
}

/// Options of a convolution or pooling.
std::string windows(const auto& o) {
  return fmt::format("stride {}, pad {} and {}, dilation {}", o.stride, o.pad_begin, o.pad_end, o.dilation);
}

std::string pooling(const PoolOptions& o) {
  return fmt::format("window {}, {}, counts padding {}, ceil {}", o.window, windows(o), o.count_padding, o.ceil_mode);
}
/// The layer as the first of these types that matches, as a Base; null: none.
template <class Base, class... Types>
const Base* as_one_of(const Module& layer) {
  const Base* found = nullptr;
  ((found = found ? found : layer.as<Types>()), ...);
  return found;
}

/// Options of the library's layers that visit() does not show.
std::string options_of(const Module& layer) {
  if (auto* l = as_conv(layer)) return fmt::format("{}, groups {}", windows(l->options), l->options.groups);
  if (auto* l = as_one_of<ConvTransposeNd, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d>(layer))
    return fmt::format("{}, groups {}, output padding {}", windows(l->options), l->options.groups, l->output_pad);
  if (auto* l = as_one_of<Dropout, Dropout, Dropout2d, DropPath>(layer)) return fmt::format("p {}", l->p);
  if (auto* l = layer.as<MaxPool>()) return pooling(l->options);
  if (auto* l = layer.as<AvgPool>()) return pooling(l->options);
  if (auto* l = layer.as<AdaptiveAvgPool>()) return fmt::format("size {}", l->size);
  if (auto* l = layer.as<AdaptiveMaxPool>()) return fmt::format("size {}", l->size);
  if (auto* l = layer.as<Upsample>())
    return fmt::format("size {}, scale {}, mode {}, corners {}", l->options.size, l->options.scale,
                       static_cast<int>(l->options.mode), l->options.align_corners);
  if (auto* l = layer.as<BatchNorm>()) return fmt::format("eps {}, momentum {}", l->options.eps, l->options.momentum);
  if (auto* l = layer.as<LayerNorm>()) return fmt::format("eps {}", l->eps);
  if (auto* l = layer.as<RMSNorm>()) return fmt::format("eps {}", l->eps);
  if (auto* l = as_one_of<GroupNorm, GroupNorm, InstanceNorm>(layer))
    return fmt::format("groups {}, eps {}", l->groups, l->eps);
  return "";
}

void add_layers(std::string& text, const Module& model, const std::string& name) {
  const std::string options = options_of(model);
  text += fmt::format("{}: {}{}\n", name.empty() ? "model" : "layer " + name, name_of(model),
                      options.empty() ? "" : ", " + options);
  const auto* row = model.as<Sequential>();
  for (std::size_t i = 0; row && i < row->size(); ++i)
    add_layers(text, (*row)[i], name + (name.empty() ? "" : ".") + row->name(i));
}

}  // namespace

std::string settings_text(const Mesh& mesh, const Strategy& strategy, const Loss& loss,
                          const OptimizerConfig& optimizer_config, const StepOptions& o) {
  std::string text = fmt::format("library: trireme {}\n", library_version);
  const auto add = [&](const char* name, const auto& value) { text += fmt::format("{}: {}\n", name, value); };
  add("mesh", to_string(mesh.axes()));
  add("strategy", strategy.text());
  const SplitOptions& split = strategy.split;
  if (split.any())
    add("layers split",
        fmt::format("samples [{}], tensor '{}'{}, one_weird_trick '{}'", fmt::join(split.sample_axes(), ", "),
                    split.tensor, split.sequence ? " by sequence" : "", split.one_weird_trick));
  add("batch norm", fmt::format("scope {} by {}", to_string(strategy.scope()), strategy.norm_group));
  add("optimizer", to_string(optimizer_config));
  add("clip_norm", o.optimizer.clip_norm);
  add("clip_value", o.optimizer.clip_value);
  for (const ParameterGroup& g : o.optimizer.groups)
    add("group", fmt::format("{}, lr_factor {}, weight_decay {}", g.names, g.lr_factor,
                             g.weight_decay ? fmt::format("{}", *g.weight_decay) : "the optimizer's"));
  add("decay_biases", o.optimizer.decay_biases);
  add("optimizer's check_finite", o.optimizer.check_finite);
  add("loss", name_of(loss));
  if (const LabelLossOptions* l = loss.cross_entropy())
    add("loss options", fmt::format("label_smoothing {}, z_loss {}, ignore_index {}, class weights {}",
                                    l->label_smoothing, l->z_loss, l->ignore_index, l->weights ? "given" : "none"));
  add("seed", o.seed);
  add("initialize", o.initialize ? fmt::format("{}", *o.initialize) : "by the caller");
  add("checks.finite", o.checks.finite);
  add("checks.every", o.checks.every);
  add("checks.offset", o.checks.offset);
  add("loss_scale", o.loss_scale);
  add("refuse_unsound", o.refuse_unsound);
  add("layer_axes", fmt::format("{}", fmt::join(o.layer_axes, ", ")));
  add("flags", fmt::format("[{}] every {} steps", fmt::join(o.flags.names, ", "), o.flags.every));
  add("profile.partition", o.profile.partition);
  add("profile.example", o.profile.example ? "given" : "none");
  add("profile.batch", o.profile.batch);
  return text;
}

std::string model_text(Module model) {
  std::string text;
  add_layers(text, model, "");
  model.visit(StateVisitor([&](const NamedState& leaf) {
    const char* uses[] = {"weight", "bias", "buffer"};
    text += fmt::format("tensor {}: {} {} {}\n", leaf.name, leaf.tensor->dtype(), leaf.tensor->shape(),
                        uses[static_cast<std::size_t>(leaf.kind)]);
  }));
  return text;
}

}  // namespace trireme
