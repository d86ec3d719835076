// Catch2, whichever major version the distribution has. Where they differ, tests use: Approx, and
// contains("...") for the matcher of part of a text.
#pragma once
#ifdef CATCH_V3
#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace trireme::test {
inline auto contains(const std::string& part) { return Catch::Matchers::ContainsSubstring(part); }
}  // namespace trireme::test
#else
#include <catch2/catch.hpp>
namespace trireme::test {
inline auto contains(const std::string& part) { return Catch::Matchers::Contains(part); }
}  // namespace trireme::test
#endif
