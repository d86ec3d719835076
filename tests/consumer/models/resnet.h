// Another one.
#pragma once
inline constexpr double own_rate = 0.1;
