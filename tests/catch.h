// Catch2, whichever major version the distribution has.
#pragma once
#ifdef CATCH_V3
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif
