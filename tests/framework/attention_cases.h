// Rows of the op table (cases.h) for the ops of transformers.
#pragma once
#include "tests/framework/cases.h"

namespace trireme::test {

/// Attention with all its options, of drawn shapes too, and rotary positions.
std::vector<Case> attention_cases();

}  // namespace trireme::test
