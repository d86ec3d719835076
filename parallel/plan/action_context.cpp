#include "parallel/plan/action_context.h"

#include "parallel/plan/codec.h"

namespace trireme {

double ActionContext::argument(const std::string& name) const {
  const auto value = find_argument(action, name);
  check(
      value.has_value(), "executor", "{} has no argument '{}'", [&] { return to_string(action); }, name);
  return *value;
}

Tensor ActionContext::all_gather(const Tensor& x) const {
  if (!comm) return x.reshape({1, x.numel()});
  const Tensor all = Tensor::empty({comm->size(), x.numel()}, x.dtype(), x.device());
  comm->all_gather(all, x).wait();
  return all;
}

Work ActionContext::exchange(const Tensor& x, std::vector<Tensor>& received) const {
  std::vector<Work> works;
  for (const auto [to, from] : peers()) {
    if (from != comm->rank()) {
      received.push_back(Tensor::like(x));
      works.push_back(comm->recv(received.back(), from));
    }
    if (to != comm->rank()) works.push_back(comm->send(x, to));
  }
  return when_all(std::move(works));
}

}  // namespace trireme
