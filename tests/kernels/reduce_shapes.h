// The shapes that reductions are tested on, from and to: rows, columns, several axes, all; long ones, and of nothing.
#pragma once
#include "kernels/core/view.h"

namespace trireme::test {

inline const Shape reduce_shapes[][2] = {{{4, 33}, {4, 1}},
                                         {{100, 7}, {100, 1}},
                                         {{33, 1000}, {1, 1000}},
                                         {{1000, 3}, {1, 3}},
                                         {{2000, 33}, {1, 33}},
                                         {{700, 64}, {1, 64}},
                                         {{70, 1000}, {1, 1}},
                                         {{3, 50, 7}, {3, 1, 7}},
                                         {{3, 500, 8}, {3, 1, 8}},
                                         {{3, 5, 7}, {1, 5, 1}},
                                         {{2, 3, 4, 5}, {2, 1, 4, 1}},
                                         {{2, 3, 4, 5}, {2, 3, 4, 5}},
                                         {{0, 5}, {1, 5}},
                                         {{0, 5}, {0, 1}},
                                         {{1}, {1}},
                                         {{}, {}},
                                         {{5, 0}, {5, 1}},
                                         {{65, 64}, {65, 64}},
                                         {{3, 40000}, {3, 1}},
                                         {{300001}, {1}},
                                         {{2, 20001}, {2, 1}},
                                         {{20000, 3, 2}, {20000, 1, 2}}};

}  // namespace trireme::test
