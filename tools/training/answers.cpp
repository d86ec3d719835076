#include "tools/training/answers.h"

namespace trireme {

Loss Answers::counting(Loss loss) {
  return [this, loss = std::move(loss)](const Tensor& logits, const Tensor& labels) {
    kept_.emplace_back(argmax(logits.detach()), labels.detach());
    return loss(logits, labels);
  };
}

std::pair<HostCopy, Answers::HostCopies> Answers::run(Step& step, const Tensor& x, const Tensor& y) {
  auto before = std::exchange(kept_, {});
  HostCopy loss(step(x, y));
  if (step.replayed() && kept_.empty()) kept_ = std::move(before);
  // The first of more than one per micro-batch is of a step that could not be noted.
  while (std::ssize(kept_) > step.plan().micros) kept_.erase(kept_.begin());
  HostCopies answers;
  for (const auto& [likeliest, labels] : kept_) answers.emplace_back(HostCopy(likeliest), HostCopy(labels));
  if (!step.replayed()) kept_.clear();
  return {std::move(loss), std::move(answers)};
}

}  // namespace trireme
