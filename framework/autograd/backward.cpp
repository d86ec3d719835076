#include "framework/autograd/backward.h"

#include <algorithm>
#include <climits>
#include <map>

#include "framework/autograd/node.h"
#include "framework/autograd/tape.h"
#include "kernels/core/named_range.h"
#include "kernels/core/runtime.h"

namespace trireme {
namespace {

using detail::LeafState, detail::Node;

thread_local const char* running_op = "an op";  // whose backward this thread is in

/// The tape holds the layer's handle of a weight, which may show another store's numbers by now.
void check_bound(const LeafState& leaf) {
  check(!leaf.elsewhere, "backward",
        "the model is bound to another ParameterStore than during forward: bind() the store of the forward first");
}

class Running {
 public:
  explicit Running(const char* op) : before_(std::exchange(running_op, op)) {}
  ~Running() { running_op = before_; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  const char* before_;
};

Tensor accumulated(Tensor held, Tensor more) {
  if (!is_uniquely_owned(held) && is_uniquely_owned(more)) std::swap(held, more);
  if (is_uniquely_owned(held)) {
    add_into(held, more);
    return held;
  }
  Tensor sum = held.clone();
  add_into(sum, more);
  return sum;
}

Tensor recorded_sum(const Tensor& a, const Tensor& b) {
  Tensor y = a.detach().clone();
  add_into(y, b);
  const auto pass = [](const Tensor& dy, Gradients& g) {
    g.set_grad(0, dy);
    g.set_grad(1, dy);
  };
  return record("add", std::move(y), {a, b}, Backward{.inputs = pass, .twice = true});
}

/// One backward: the nodes that its roots reach, the number of contributions that each still waits for, and the
/// gradients in progress. It lives until its last deferred half has run. Several may run over the same leaves.
class Session : public std::enable_shared_from_this<Session> {
 public:
  explicit Session(const BackwardOptions& options)
      : deferred_(options.defer_weights),
        hooks_(options.hooks),
        retain_(options.retain_graph || options.create_graph),
        records_(options.create_graph) {}
  /// Computes the gradients of these nodes only and stores them here; leaves keep their own gradients unchanged. ends:
  /// no wanted node leads to another one.
  void capture(std::map<const Node*, Tensor>& wanted, bool ends = false) {
    captured_ = &wanted;
    ends_ = ends;
  }
  void run(std::span<const Tensor> roots, std::span<const Tensor> seeds);
  /// The leaves that the roots were computed from.
  std::vector<std::shared_ptr<Node>> leaves() const {
    std::vector<std::shared_ptr<Node>> found;
    for (const Entry& e : entries_)
      if (e.node->leaf) found.push_back(e.node);
    return found;
  }

 private:
  struct Entry {
    std::shared_ptr<Node> node;
    Tensor grad;
    int pending = 0;  // contributions that have not come yet
    int first = 0;    // of its edges
    int edges = 0;
  };
  class Half;
  static constexpr int none = INT_MIN;

  void collect(std::span<const Tensor> roots);
  void prune();
  void visit(const std::shared_ptr<Node>& node);
  void claim(LeafState& leaf);
  void process(int at);
  void run_half(int at, const BackwardFn& half, const Tensor& dy, bool last);
  void compute_half(int at, const BackwardFn& half, const Tensor& dy);
  void settle(int at, bool last);
  void run_later(int at, const BackwardFn& half, const Tensor& dy);
  bool completes_wait(const Entry& e) const;
  void run_kept();
  void contribute(int at, Tensor gradient);
  Gradients::Target target(int at);
  void complete(int at);
  void fire(int at);

  Deferred* deferred_;
  bool hooks_, retain_, records_, ends_ = false;
  std::map<const Node*, Tensor>* captured_ = nullptr;  // null: gradients go to leaves
  std::vector<Entry> entries_;                         // by falling sequence
  std::vector<int> edges_;           // entry index; ~index once given a gradient; none when settled or not wanted
  std::size_t next_ = 0;             // entries before it have run, but for deferred and kept halves
  std::vector<int> ready_;           // of these, those that a deferred or kept half has completed
  std::function<void()> kept_;       // a weights half, until the next op that waits for messages; empty: none
  std::vector<LeafState*> claimed_;  // leaves that this backward has claimed; owned by entries_
};

class Session::Half final : public Gradients {
 public:
  Half(Session& session, int at) : session_(session), entry_(session.entries_[static_cast<std::size_t>(at)]) {}
  bool needs_grad(int i) const override { return edge(i) >= 0; }
  Target grad_buffer(int i) override { return session_.target(take(i)); }
  void set_grad(int i, Tensor gradient) override {
    if (needs_grad(i)) session_.contribute(take(i), std::move(gradient));
  }
  void run_kept() override { session_.run_kept(); }
  bool records() const override { return session_.records_; }
  InputType input(int i) const override {
    const Node& node = *session_.entries_[static_cast<std::size_t>(edge(i))].node;
    return {node.shape, node.dtype, node.device};
  }
  Tensor result(const Tensor& saved) const override {
    Tensor y = saved.detach();
    y.impl()->node = entry_.node;
    return y;
  }
  Tensor zeros_for(int i) const override {
    const auto& node = session_.entries_[static_cast<std::size_t>(edge(i))].node;
    Tensor x = Tensor::zeros(node->shape, node->dtype, node->device);
    x.impl()->node = node;
    return x;
  }

 private:
  int& edge(int i) const {
    check(0 <= i && i < entry_.edges, "backward",
          "the backward of '{}' gives a gradient to input {}, expected one of its {} inputs", entry_.node->op, i,
          entry_.edges);
    return session_.edges_[static_cast<std::size_t>(entry_.first + i)];
  }
  int take(int i) {
    int& e = edge(i);
    check(e >= 0, "backward",
          "the backward of '{}' gives input {} a second gradient, or one that it does not need: ask needs_grad() first",
          entry_.node->op, i);
    const int at = e;
    e = ~e;
    return at;
  }
  Session& session_;
  const Entry& entry_;
};

/// Lists every node that the roots depend on, without recursion.
void Session::collect(std::span<const Tensor> roots) {
  // Slots are scratch in shared nodes. They are reset also if a freed node throws.
  struct Clean {
    std::vector<Entry>& entries;
    ~Clean() {
      for (Entry& e : entries)
        if (e.node) e.node->slot = -1;
    }
  } clean{entries_};
  for (const Tensor& root : roots)
    if (root.impl()->node) visit(root.impl()->node);
  const auto is_end = [&](const Entry& e) { return ends_ && captured_->contains(e.node.get()); };
  for (std::size_t i = 0; i < entries_.size(); ++i)
    for (std::size_t k = 0; k < entries_[i].node->inputs.size() && !is_end(entries_[i]); ++k)
      if (const auto& input = entries_[i].node->inputs[k]) visit(input);
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.node->sequence > b.node->sequence; });
  for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i].node->slot = static_cast<int>(i);
  for (Entry& e : entries_) {
    e.first = static_cast<int>(edges_.size());
    if (is_end(e)) continue;
    e.edges = static_cast<int>(e.node->inputs.size());
    for (const auto& input : e.node->inputs) {
      edges_.push_back(input ? input->slot : none);
      if (input) ++entries_[static_cast<std::size_t>(input->slot)].pending;
    }
  }
}
/// Removes nodes that lead to no wanted node.
void Session::prune() {
  std::vector<bool> needed(entries_.size());
  for (std::size_t i = entries_.size(); i-- > 0;) {  // inputs come after their consumers
    const Entry& e = entries_[i];
    needed[i] = captured_->contains(e.node.get());
    for (int k = e.first; k < e.first + e.edges; ++k) {
      int& edge = edges_[static_cast<std::size_t>(k)];
      if (edge == none) continue;
      if (needed[static_cast<std::size_t>(edge)])
        needed[i] = true;
      else {
        --entries_[static_cast<std::size_t>(edge)].pending;
        edge = none;
      }
    }
  }
}
/// Throws Error if another thread's backward reaches the same leaf: both would write the same gradient.
void Session::claim(LeafState& leaf) {
  check_bound(leaf);
  const auto me = reinterpret_cast<std::uintptr_t>(&running_op);  // one per thread
  std::uintptr_t before = 0;
  if (leaf.walker.compare_exchange_strong(before, me)) return claimed_.push_back(&leaf);
  check(before == me, "backward",
        "another thread runs a backward over the same weights: give each thread its own model (Module::clone())");
}
void Session::visit(const std::shared_ptr<Node>& node) {
  if (node->leaf) claim(*node->leaf);
  if (node->slot >= 0) return;
  check(!node->freed, "backward", "the graph through '{}' was freed by an earlier backward: run the forward again",
        node->op);
  node->slot = static_cast<int>(entries_.size());
  entries_.push_back({node, {}, 0, 0, 0});
}

void Session::run(std::span<const Tensor> roots, std::span<const Tensor> seeds) {
  struct Release {
    std::vector<LeafState*>& claimed;
    ~Release() {
      for (LeafState* leaf : std::exchange(claimed, {})) leaf->walker = 0;
    }
  } release{claimed_};
  collect(roots);
  if (captured_) prune();
  for (std::size_t r = 0; r < roots.size(); ++r) {
    const auto& node = roots[r].impl()->node;
    if (!node) continue;
    const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.node == node; });
    ++at->pending;
    contribute(static_cast<int>(at - entries_.begin()), seeds[r]);
    complete(static_cast<int>(at - entries_.begin()));
  }
  for (; next_ < entries_.size(); ++next_)
    if (entries_[next_].pending == 0) process(static_cast<int>(next_));
  run_kept();
}

void Session::process(int at) {
  Entry& e = entries_[static_cast<std::size_t>(at)];
  Node& node = *e.node;
  if (!node.backward.waits) run_kept();
  if (captured_)
    if (const auto at = captured_->find(&node); at != captured_->end()) at->second = e.grad;
  if (node.leaf || (ends_ && captured_->contains(&node))) return;
  Backward backward = retain_ ? node.backward : std::exchange(node.backward, {});
  if (!retain_) {
    node.freed = true;
    node.recompute_output = nullptr;
    node.inputs.clear();  // entries_ holds them
  }
  Tensor dy = std::exchange(e.grad, {});
  if (node.watched && hooks_ && dy) dy = node.watched->see(std::move(dy));
  if (!dy) return run_half(at, {}, dy, true);
  if (records_) {
    check(backward.twice, "grad", "create_graph: '{}' has no second derivatives; {}", node.op,
          "write it out in other ops, or use grad() without create_graph and detach() the result");
    compute_half(at, backward.inputs, dy);
    return run_half(at, backward.weights, dy, true);
  }
  const bool two = backward.weights != nullptr, at_once = deferred_ == nullptr || next_ == entries_.size();
  const bool keep = two && at_once && completes_wait(e);
  if (two && at_once && !keep && backward.inputs && node.device.kind != DeviceKind::cpu) {  // which may do both at once
    runtime(node.device.kind)
        .fork_join(
            node.device, [&] { compute_half(at, backward.inputs, dy); },
            [&] { compute_half(at, backward.weights, dy); });
    return settle(at, true);
  }
  if (backward.inputs || !two) run_half(at, backward.inputs, dy, !two);
  backward.inputs = nullptr;  // frees what it captured
  if (!two) return;
  const auto edges = std::span(edges_).subspan(static_cast<std::size_t>(e.first), static_cast<std::size_t>(e.edges));
  if (std::none_of(edges.begin(), edges.end(), [](int edge) { return edge >= 0; })) return;
  if (at_once && !keep) return run_half(at, backward.weights, dy, true);
  auto later = [self = keep ? nullptr : shared_from_this(), this, at, dy, half = std::move(backward.weights)] {
    run_later(at, half, dy);
  };
  if (keep)
    kept_ = std::move(later);
  else
    deferred_->push(std::move(later));
}

/// Whether an input waits for nothing but e, and then for messages.
bool Session::completes_wait(const Entry& e) const {
  return std::any_of(edges_.begin() + e.first, edges_.begin() + e.first + e.edges, [&](int edge) {
    if (edge < 0) return false;
    const Entry& input = entries_[static_cast<std::size_t>(edge)];
    return input.node->backward.waits && input.pending == 1;
  });
}
void Session::run_kept() {
  if (kept_) std::exchange(kept_, {})();
}

void Session::run_half(int at, const BackwardFn& half, const Tensor& dy, bool last) {
  compute_half(at, half, dy);
  settle(at, last);
}
void Session::compute_half(int at, const BackwardFn& half, const Tensor& dy) {
  if (!half) return;
  const Node& node = *entries_[static_cast<std::size_t>(at)].node;
  const NamedRange range(node.place);
  const Running running(node.op);
  Half gradients(*this, at);
  half(dy, gradients);
}

/// Settles the edges that have got gradients from a half; after the last half, all edges.
void Session::settle(int at, bool last) {
  const Entry& e = entries_[static_cast<std::size_t>(at)];
  for (int k = e.first; k < e.first + e.edges; ++k) {
    int& edge = edges_[static_cast<std::size_t>(k)];
    if (edge == none || (edge >= 0 && !last)) continue;
    const int to = edge >= 0 ? edge : ~edge;
    edge = none;
    complete(to);
  }
}

void Session::run_later(int at, const BackwardFn& half, const Tensor& dy) {
  run_half(at, half, dy, true);
  while (!ready_.empty()) {
    const int next = ready_.back();
    ready_.pop_back();
    process(next);
  }
  run_kept();
}

void Session::complete(int at) {
  Entry& e = entries_[static_cast<std::size_t>(at)];
  if (--e.pending > 0) return;
  if (e.node->leaf && !captured_)
    fire(at);
  else if (static_cast<std::size_t>(at) < next_)
    ready_.push_back(at);
}
void Session::fire(int at) {
  LeafState& leaf = *entries_[static_cast<std::size_t>(at)].node->leaf;
  if (!hooks_ || leaf.hooks.empty() || !leaf.written) return;
  const Tensor tensor(leaf.tensor.lock());
  const auto hooks = leaf.hooks;  // a hook may remove itself
  for (const auto& [id, hook] : hooks)
    if (tensor) hook(tensor);
}

Gradients::Target Session::target(int at) {
  check(!records_, "grad",
        "create_graph: the backward of an op with Backward::twice asked for a block; use set_grad()");
  Entry& e = entries_[static_cast<std::size_t>(at)];
  const Node& node = *e.node;
  if (node.leaf && !captured_) {
    LeafState& leaf = *node.leaf;
    check_bound(leaf);
    if (!leaf.grad) leaf.grad = Tensor::empty(node.shape, node.dtype, node.device);
    if (leaf.given_back) detail::restore_grad(leaf);
    return {leaf.grad, std::exchange(leaf.written, true)};
  }
  if (!e.grad) {
    e.grad = Tensor::empty(node.shape, node.dtype, node.device);
    return {e.grad, false};
  }
  if (!is_uniquely_owned(e.grad)) e.grad = e.grad.clone();
  return {e.grad, true};
}

void Session::contribute(int at, Tensor gradient) {
  Entry& e = entries_[static_cast<std::size_t>(at)];
  const Node& node = *e.node;
  check(gradient.shape() == node.shape && gradient.dtype() == node.dtype, "backward",
        "'{}' is {} {}, its gradient {} {}: expected the same type and shape", node.op, node.dtype, node.shape,
        gradient.dtype(), gradient.shape());
  if (records_) {
    e.grad = e.grad ? recorded_sum(e.grad, gradient) : std::move(gradient);
    return;
  }
  if (!node.leaf || captured_) {
    e.grad = e.grad ? accumulated(std::move(e.grad), std::move(gradient)) : std::move(gradient);
    return;
  }
  LeafState& leaf = *node.leaf;
  check_bound(leaf);
  if (!leaf.grad && is_uniquely_owned(gradient))
    leaf.grad = std::move(gradient);
  else if (!leaf.grad)
    leaf.grad = gradient.clone();
  else if (leaf.written)
    add_into(leaf.grad, gradient);
  else {
    detail::restore_grad(leaf);
    copy_unnoted(leaf.grad, gradient);
  }
  leaf.written = true;
}

/// g on the tape as a result that no backward can pass: it depends on these nodes, but in an unrecorded way.
Tensor as_gradient(const Tensor& g, std::vector<std::shared_ptr<Node>> inputs) {
  auto node = std::make_shared<Node>(Backward{[](const Tensor&, Gradients&) {
    fail("grad",
         "a gradient that grad() returned is differentiated again, but there are no second derivatives (PyTorch's "
         "create_graph): write the first derivative out in ops, or detach() it to use it as a constant");
  }});
  node->op = "grad";
  for (const auto& input : inputs) node->sequence = std::max(node->sequence, input->sequence + 1);
  node->inputs = std::move(inputs);
  node->shape = g.shape();
  node->dtype = g.dtype();
  node->device = g.device();
  Tensor y = g.detach();
  y.impl()->node = std::move(node);
  return y;
}

/// t as a result of its own.
Tensor alias(const Tensor& t) {
  Tensor y = t.detach();
  y.impl()->batch = t.impl()->batch;
  const auto pass = [](const Tensor& dy, Gradients& g) { g.set_grad(0, dy); };
  return record("alias", std::move(y), {t}, Backward{.inputs = pass, .twice = true});
}

}  // namespace

const char* detail::op_in_backward() { return running_op; }

void backward(std::span<const Tensor> roots, std::span<const Tensor> seeds, const BackwardOptions& options) {
  check(roots.size() == seeds.size(), "backward", "got {} roots and {} seeds, expected one seed per root", roots.size(),
        seeds.size());
  bool any = false;
  for (std::size_t i = 0; i < roots.size(); ++i) {
    check(roots[i] && seeds[i], "backward", "root or seed {} is undefined", i);
    check(seeds[i].shape() == roots[i].shape() && seeds[i].dtype() == roots[i].dtype(), "backward",
          "the root is {} {}, its seed {} {}: expected the same type and shape", roots[i].dtype(), roots[i].shape(),
          seeds[i].dtype(), seeds[i].shape());
    any = any || roots[i].requires_grad();
  }
  check(any, "backward", "nothing to differentiate: no leaf with require_grad() leads to this result");
  const NoGrad guard;
  std::make_shared<Session>(options)->run(roots, seeds);
}
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& given, const BackwardOptions& options) {
  std::vector<Tensor> seeds = given;
  for (const Tensor& y : outputs) {
    if (!given.empty()) break;
    check(y && y.numel() == 1, "grad", "an output is {}, expected one number: give seeds", y ? y.shape() : Shape{});
    seeds.push_back(Tensor::full(y.shape(), 1, y.dtype(), y.device()));
  }
  check(!outputs.empty() && outputs.size() == seeds.size(), "grad",
        "got {} outputs and {} seeds, expected one seed per output", outputs.size(), seeds.size());
  std::map<const Node*, Tensor> wanted;
  for (const Tensor& x : inputs) {
    check(x.requires_grad(), "grad", "an input is not on the tape: require_grad() before the forward");
    wanted[x.impl()->node.get()] = {};
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    check(outputs[i] && seeds[i] && outputs[i].shape() == seeds[i].shape() && outputs[i].dtype() == seeds[i].dtype(),
          "grad", "output {} and its seed differ, expected the same shape and type", i);
  check(options.defer_weights == nullptr, "grad", "defer_weights is set, which is for backward() only: leave it out");
  BackwardOptions quiet = options;
  quiet.hooks = false;
  const bool recorded = !options.create_graph && is_grad_recorded(inputs);
  const GradMode guard(options.create_graph);
  const auto session = std::make_shared<Session>(quiet);
  session->capture(wanted);
  session->run(outputs, seeds);
  std::vector<Tensor> gradients;
  std::vector<std::shared_ptr<Node>> depends_on = session->leaves();
  for (const Tensor& x : inputs)
    if (const auto& node = x.impl()->node; !node->leaf && !node->freed) depends_on.push_back(node);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    gradients.push_back(wanted.at(inputs[i].impl()->node.get()));
    check(gradients.back().defined(), "grad",
          "input {} leads to no output: leave it out, or compute the outputs from it", i);
    if (recorded) gradients.back() = as_gradient(gradients.back(), depends_on);
    if (options.create_graph && !gradients.back().batch()) {  // rows as the input's
      gradients.back() = alias(gradients.back());
      gradients.back().impl()->batch = inputs[i].impl()->batch;
    }
  }
  return gradients;
}

std::vector<Tensor> jvp(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                        const std::vector<Tensor>& tangents) {
  // The gradient is linear in its seeds, and its transpose is the product (github.com/j-towns, "A new trick for
  // calculating Jacobian vector products", 2017).
  check(inputs.size() == tangents.size(), "jvp", "got {} inputs and {} tangents, expected one tangent per input",
        inputs.size(), tangents.size());
  std::vector<Tensor> seeds;
  for (const Tensor& y : outputs) {
    check(y.defined(), "jvp", "an output is undefined");
    seeds.push_back(Tensor::zeros(y.shape(), y.dtype(), y.device()).require_grad());
  }
  return grad(grad(outputs, inputs, seeds, {.create_graph = true}), seeds, tangents, {.create_graph = true});
}

void detail::give_by_ops(Gradients& g, const Tensor& dy, const std::vector<Tensor>& inputs,
                         const std::function<Tensor(const std::vector<Tensor>&)>& same) {
  std::vector<Tensor> own = inputs;
  std::map<const Node*, Tensor> wanted;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (g.needs_grad(static_cast<int>(i))) wanted[(own[i] = alias(inputs[i])).impl()->node.get()] = {};
  if (wanted.empty()) return;
  const auto session = std::make_shared<Session>(BackwardOptions{.hooks = false, .create_graph = true});
  session->capture(wanted, true);
  const Tensor y = same(own);
  session->run({&y, 1}, {&dy, 1});
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (g.needs_grad(static_cast<int>(i)))
      if (const Tensor& dx = wanted.at(own[i].impl()->node.get())) g.set_grad(static_cast<int>(i), dx);
}
void Deferred::run() {
  const NoGrad guard;
  auto halves = std::exchange(halves_, {});
  for (auto& half : halves) {
    half();
    half = nullptr;  // frees what it captured
  }
}

void Tensor::backward() const {
  check(defined() && numel() == 1, "backward",
        "the tensor is {}, expected one number: reduce it with sum() or mean(), or give a seed",
        defined() ? shape() : Shape{0});
  backward(full(shape(), 1, dtype(), device()));
}
void Tensor::backward(const Tensor& seed) const { trireme::backward({this, 1}, {&seed, 1}); }

}  // namespace trireme
