// Applies ArchOptions to the options of the models of this folder.
#pragma once
#include <initializer_list>
#include <string>
#include <utility>

#include "models/registry/models.h"

namespace trireme::text {

/// Throws Error with the name of the first size below 1.
inline void check_sizes(const char* op, std::initializer_list<std::pair<const char*, Index>> sizes) {
  for (const auto& [what, size] : sizes) check(size > 0, op, "{} {}, expected at least 1", size, what);
}

/// Overwrites the options of a model that `o` sets: layers, heads, width, hidden, bias, tied, recompute, dtype,
/// experts. positions defaults to the input's length, vocabulary to the number of classes. Throws Error for an input
/// that is not text, a vocabulary smaller than the number of classes, positions below the input's length, and settings
/// of experts without experts.
template <class Options>
void override_sizes(const char* op, Options& base, const ModelOptions& o) {
  const ArchOptions& a = o.arch;
  check(o.input.rank() == 1 && o.input[0] > 0, op, "a sample is {}, expected [tokens], ids of a text", o.input);
  check(a.vocabulary == 0 || a.vocabulary >= o.classes, op,
        "arch.vocabulary is {}, and the tokenizer has {} ids: expected as many or more", a.vocabulary, o.classes);
  check(a.positions == 0 || a.positions >= o.input[0], op,
        "arch.positions is {}, and samples have {} tokens: expected as many or more", a.positions, o.input[0]);
  for (const auto& [own, given] :
       {std::pair{&base.layers, a.layers}, {&base.heads, a.heads}, {&base.width, a.width}, {&base.hidden, a.hidden}})
    if (given != 0) *own = given;
  base.positions = a.positions == 0 ? o.input[0] : a.positions;
  base.vocabulary = a.vocabulary == 0 ? o.classes : a.vocabulary;
  if (a.bias >= 0) base.bias = a.bias != 0;
  if (a.tied >= 0) base.tied = a.tied != 0;
  bool experts = false;
  if constexpr (requires { base.experts; }) {
    if (a.experts != 0) base.experts = a.experts;
    if (a.expert_top_k != 0) base.expert_top_k = a.expert_top_k;
    if (a.expert_balance >= 0) base.expert_balance = a.expert_balance;
    experts = base.experts > 0;
  }
  check(experts || (a.experts == 0 && a.expert_top_k == 0 && a.expert_balance < 0), op,
        "arch.experts is {}, expert_top_k {} and expert_balance {}, but the model has no experts: leave them out, or "
        "give gpt2 or llama an arch.experts",
        a.experts, a.expert_top_k, a.expert_balance);
  base.recompute = o.recompute;
  if constexpr (requires { base.dtype; }) base.dtype = o.dtype;
}

}  // namespace trireme::text
