// The second half of cudnn.h: engines that can run a graph, and their plans.
#include <algorithm>

#include "kernels/cuda/cudnn.h"

namespace trireme::gpu {
namespace {

constexpr std::size_t most_notes = 32, most_knobs = 64, most_engines = 64;

/// The engine that a configuration names, for its number and its notes.
Descriptor engine_of(const Descriptor& config) {
  return std::move(config.get_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1).front());
}

template <class Note>
bool has(const std::vector<Note>& notes, std::initializer_list<Note> any) {
  return std::find_first_of(notes.begin(), notes.end(), any.begin(), any.end()) != notes.end();
}

bool is_compiled(const Descriptor& engine) {
  return has(engine.get_list<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE,
                                                         most_notes),
             {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION});
}

Engine read(const Descriptor& config, const Descriptor& engine) {
  Engine e;
  e.number = engine.get_index(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  e.compiled = is_compiled(engine);
  for (const Descriptor& k :
       config.get_descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, most_knobs))
    e.knobs.emplace_back(k.get_index(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE),
                         k.get_index(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  return e;
}

bool follows(const EngineRules& rules, const Descriptor& engine) {
  const auto notes = engine.get_list<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                                  CUDNN_TYPE_NUMERICAL_NOTE, most_notes);
  if (rules.deterministic && has(notes, {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC})) return false;
  if (rules.deterministic && rules.sums && is_compiled(engine)) return false;
  if (has(notes, {CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION})) return false;
  return !rules.whole ||
         !has(notes, {CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
                      CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
                      CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13});
}

/// The engines that the heuristic recommends, best first; none if it has no recommendation.
std::vector<Descriptor> recommended(const Graph& graph, const Target& target, cudnnBackendHeurMode_t mode) {
  Descriptor h(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, graph.op());
  h.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph.descriptor());
  h.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  target.put_description(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  h.finish();
  return h.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, most_engines);
}

}  // namespace

Plan::Plan(const Graph& graph, const Target& target, const Engine& engine)
    : op_(graph.op()), stored_(graph.stored()), plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, graph.op()) {
  Descriptor e(CUDNN_BACKEND_ENGINE_DESCRIPTOR, op_);
  e.set(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph.descriptor());
  e.set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, engine.number);
  target.put_description(e, CUDNN_ATTR_ENGINE_DEVICEPROP);
  e.finish();

  std::vector<Descriptor> knobs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (auto [kind, value] : engine.knobs) {
    Descriptor& k = knobs.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, op_);
    const auto type = static_cast<cudnnBackendKnobType_t>(kind);
    k.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &type);
    k.set(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, value);
    k.finish();
    raw.push_back(k.raw());
  }
  Descriptor config(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, op_);
  config.set(CUDNN_ATTR_ENGINECFG_ENGINE, e);
  if (!raw.empty())
    config.set(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::ssize(raw), raw.data());
  config.finish();

  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
  target.put_handle(plan_, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  target.put_description(plan_, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  plan_.finish();
  workspace_ = plan_.get_index(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
}

Plan::Plan(const Graph& graph, const Target& target, const std::string& json)
    : op_(graph.op()), stored_(graph.stored()), plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, graph.op()) {
  target.put_handle(plan_, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
  target.put_description(plan_, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  plan_.set(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, std::ssize(json), json.data());
  plan_.finish();
  workspace_ = plan_.get_index(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
}

std::string Plan::json() const { return plan_.get_text(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION); }

cudnnStatus_t Plan::run(cudnnHandle_t handle, std::span<void* const> memory, void* workspace) const {
  std::vector<void*> pointers;
  pointers.reserve(stored_.size());
  for (Index number : stored_) pointers.push_back(memory[static_cast<std::size_t>(number - 1)]);
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, op_);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, stored_);
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, std::ssize(pointers), pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  pack.finish();
  return cudnnBackendExecute(handle, plan_.raw(), pack.raw());
}

std::vector<Engine> engines(const Graph& graph, const Target& target, const EngineRules& rules, std::string& why) {
  std::vector<Engine> found;
  std::size_t seen = 0;
  for (auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) try {
      for (const Descriptor& config : recommended(graph, target, mode)) {
        ++seen;
        const Descriptor about = engine_of(config);
        if (!follows(rules, about)) continue;
        Engine engine = read(config, about);
        auto is_alike = [&](const Engine& e) { return e.number == engine.number; };
        const auto alike = static_cast<std::size_t>(std::count_if(found.begin(), found.end(), is_alike));
        if (alike >= rules.alike || std::find(found.begin(), found.end(), engine) != found.end()) continue;
        found.push_back(std::move(engine));
      }
    } catch (const Error& e) { why = e.what(); }
  if (found.empty() && why.empty())
    why = seen == 0 ? "cuDNN recommends no engine" : "none of the engines keeps to the rules";
  return found;
}

}  // namespace trireme::gpu
