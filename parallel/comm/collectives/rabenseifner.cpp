#include "parallel/comm/collectives/collectives.h"

namespace trireme::collectives {

void rabenseifner(Communicator& link, const Tensor& x, ReduceOp op) {
  Tensor scratch = Tensor::like(x);
  Fold fold(link, x, scratch, op);
  struct Level {
    int peer;
    Tensor mine, other;
  };
  std::vector<Level> levels;
  if (fold.rank() >= 0) {
    // Both partners of a level hold the same window; each keeps the sum of one half of it.
    Index begin = 0, end = x.numel();
    for (int distance = fold.ranks() / 2; distance > 0; distance /= 2) {
      const bool low = (fold.rank() & distance) == 0;
      const Index middle = begin + (end - begin) / 2;
      Tensor lower = slice(x, begin, middle), upper = slice(x, middle, end);
      Level level{fold.real(fold.rank() ^ distance), low ? lower : upper, low ? upper : lower};
      Tensor in = slice(scratch, 0, level.mine.numel());
      exchange(link, level.other, level.peer, in, level.peer);
      accumulate(level.mine, in, op);
      (low ? end : begin) = middle;
      levels.push_back(std::move(level));
    }
    for (auto level = levels.rbegin(); level != levels.rend(); ++level)
      exchange(link, level->mine, level->peer, level->other, level->peer);
  }
  fold.finish(x);
}

}  // namespace trireme::collectives
