#include "parallel/executor.h"

#include "framework/tape.h"

namespace trireme {

std::vector<PartInfo> Chain::parts(const Parameters& parameters) const {
  std::vector<PartInfo> parts;
  auto& entries = parameters.entries();
  std::size_t next = 0;  // entries come in the order of the layers
  for (int p = 0; p < size(); ++p) {
    auto [first, last] = row_ ? row_->group(static_cast<std::size_t>(p)) : std::pair<std::size_t, std::size_t>{0, 0};
    std::string name = "model";
    if (row_) name = row_->name(first) + (last - first > 1 ? "-" + row_->name(last - 1) : "");
    auto belongs = [&](const std::string& entry) {
      if (!row_) return true;
      for (std::size_t i = first; i < last; ++i)
        if (entry.starts_with(row_->name(i) + ".")) return true;
      return false;
    };
    Index begin = parts.empty() ? 0 : parts.back().slice.end;
    while (next < entries.size() && belongs(entries[next].name)) ++next;
    Index end = next < entries.size() ? entries[next].slice.begin : parameters.size();
    parts.push_back({std::move(name), {begin, next == 0 ? 0 : end}});
  }
  check(next == entries.size(), "step", "parameter '{}' belongs to no layer of the model's chain",
        next < entries.size() ? entries[next].name : "");
  return parts;
}

Executor::Executor(const Plan& plan, int role, const Chain& chain, Loss loss, Optimizer& optimizer, Mesh& mesh)
    : actions_(plan.roles.at(static_cast<std::size_t>(role)).actions),
      chain_(chain),
      loss_fn_(std::move(loss)),
      optimizer_(optimizer),
      slots_(actions_.size()) {
  std::vector<Slice> slices;
  std::vector<Communicator*> comms;
  for (std::size_t id = 0; id < actions_.size(); ++id) {
    const Action& a = actions_[id];
    Slot& s = slots_[id];
    check(a.micro == 0, "executor", "action {} ({}): micro-batches are not run yet", id, to_string(a));
    switch (a.verb) {
      case Verb::forward:
      case Verb::loss:
      case Verb::backward:
      case Verb::update: break;
      case Verb::all_reduce:
      case Verb::average:
        if (mesh.size(a.peer.axis) > 1) s.comm = &mesh.comm(a.peer.axis);
        break;
      default: fail("executor", "action {} ({}) is not run yet", id, to_string(a));
    }
    if (!a.on_ready || !s.comm) continue;
    s.bucket = static_cast<int>(slices.size());
    slices.push_back(a.slice);
    comms.push_back(s.comm);
  }
  if (!slices.empty())
    buckets_ = std::make_unique<Buckets>(
        optimizer.parameters(), std::move(slices),
        [comms](std::size_t i, const Tensor& gradients) { return comms[i]->all_reduce(gradients); });
  prepare_backward();
  prepare_updates();
}

// The tape runs backward from the loss in one go, so the parts' backwards must stand together, last part
// first.
void Executor::prepare_backward() {
  int last = -1, part = chain_.size();
  for (std::size_t id = 0; id < actions_.size(); ++id) {
    const Action& a = actions_[id];
    if (a.verb == Verb::backward) {
      check(a.part == part - 1, "executor", "action {} ({}): a backward that is cut into pieces is not run yet", id,
            to_string(a));
      slots_[id].first_backward = last < 0;
      last = static_cast<int>(id);
      part = a.part;
    } else if (last >= 0 && part > 0) {
      check(a.on_ready || a.lane == Lane::comm, "executor", "action {} ({}) in the midst of backward is not run yet",
            id, to_string(a));
    }
  }
  check(last >= 0 && part == 0, "executor", "the plan has no backward");
  slots_[static_cast<std::size_t>(last)].last_backward = true;
}

void Executor::prepare_updates() {
  Slot* last = nullptr;
  bool whole = true;
  for (std::size_t id = 0; id < actions_.size(); ++id) {
    if (actions_[id].verb != Verb::update) continue;
    slots_[id].first_update = last == nullptr;
    last = &slots_[id];
    whole = whole && actions_[id].slice == Slice{0, optimizer_.parameters().size()};
  }
  check(last != nullptr, "executor", "the plan has no update");
  last->last_update = true;
  check(whole || optimizer_.options().clip_norm <= 0, "executor",
        "clipping by the global norm wants one update of the whole block, the plan cuts it: leave clip_norm "
        "at 0");
}

void Executor::run(const Tensor& x, const Tensor& y, const OnLoss& on_loss, const BeforeUpdate& before_update) {
  Tensor activation = x;
  for (std::size_t id = 0; id < actions_.size(); ++id) {
    for (ActionId before : actions_[id].after) finish(before);
    execute(static_cast<ActionId>(id), activation, y, on_loss, before_update);
  }
  for (std::size_t id = 0; id < actions_.size(); ++id) finish(static_cast<ActionId>(id));
}

void Executor::execute(ActionId id, Tensor& activation, const Tensor& y, const OnLoss& on_loss,
                       const BeforeUpdate& before_update) {
  const Action& a = actions_[static_cast<std::size_t>(id)];
  Slot& s = slots_[static_cast<std::size_t>(id)];
  switch (a.verb) {
    case Verb::forward: activation = chain_.run(a.part, std::move(activation)); break;
    case Verb::loss:
      loss_ = loss_fn_(activation, y);
      activation = {};
      on_loss(loss_);
      break;
    case Verb::backward:
      if (s.first_backward) {
        if (buckets_) buckets_->arm();
        std::exchange(loss_, {}).backward();
      }
      if (s.last_backward && buckets_) buckets_->flush();
      break;
    case Verb::all_reduce:
      if (s.bucket < 0 && s.comm)
        s.work = s.comm->all_reduce(optimizer_.parameters().grads().rows(a.slice.begin, a.slice.end));
      s.pending = s.comm != nullptr;
      break;
    case Verb::average:
      if (s.comm) start_average(s);
      break;
    case Verb::update: update(a, s, before_update); break;
    default: break;  // refused by the constructor
  }
}

void Executor::update(const Action& a, const Slot& s, const BeforeUpdate& before_update) {
  if (s.first_update) before_update();
  if (a.slice == Slice{0, optimizer_.parameters().size()}) return optimizer_.step();
  optimizer_.update(a.slice, 1.0);
  if (s.last_update) optimizer_.finish();
}

void Executor::finish(ActionId id) {
  Slot& s = slots_[static_cast<std::size_t>(id)];
  if (!std::exchange(s.pending, false)) return;
  if (s.bucket >= 0)
    buckets_->wait(static_cast<std::size_t>(s.bucket));
  else
    s.work.wait();
  if (s.buffer) finish_average(s);
}

// Buffers are packed into one block, so that the average is one collective however many layers have running
// statistics.
void Executor::start_average(Slot& s) {
  NoGrad off;
  auto& buffers = optimizer_.parameters().buffers();
  if (buffers.empty()) return;
  if (!s.buffer) {
    Index total = 0;
    for (auto& b : buffers) total += b.tensor.numel();
    s.buffer = Tensor::empty({total}, buffers[0].tensor.dtype(), buffers[0].tensor.device());
  }
  Index at = 0;
  for (auto& b : buffers) {
    s.buffer.rows(at, at + b.tensor.numel()).copy_from(b.tensor.reshape({b.tensor.numel()}));
    at += b.tensor.numel();
  }
  s.work = s.comm->all_reduce(s.buffer);
  s.pending = true;
}

void Executor::finish_average(Slot& s) {
  NoGrad off;
  const Tensor mean = scale(s.buffer, 1.0 / s.comm->size());
  Index at = 0;
  for (auto& b : optimizer_.parameters().buffers()) {
    b.tensor.copy_from(mean.rows(at, at + b.tensor.numel()).reshape(b.tensor.shape()));
    at += b.tensor.numel();
  }
}

}  // namespace trireme
