#include "settings.h"

#include <cstdlib>
#include <string>

namespace emulator {
namespace {

Settings read() {
  Settings s;
  if (const char* v = std::getenv("TRIREME_EMULATOR_DEVICES")) s.devices = std::atoi(v);
  if (const char* v = std::getenv("TRIREME_EMULATOR_MEMORY")) s.memory = std::strtoull(v, nullptr, 10);
  if (const char* v = std::getenv("TRIREME_EMULATOR_FENCE")) s.fence = std::string(v) != "0";
  if (const char* v = std::getenv("TRIREME_EMULATOR_ASYNC")) s.async = std::string(v) == "1";
  if (const char* v = std::getenv("TRIREME_EMULATOR_ALONE")) s.alone = std::string(v) != "0";
  if (const char* v = std::getenv("TRIREME_EMULATOR_VIRTUAL")) s.virtual_memory = std::string(v) != "0";
  if (const char* v = std::getenv("TRIREME_EMULATOR_PEERS")) s.peers = std::string(v) == "1";
  if (const char* v = std::getenv("TRIREME_EMULATOR_DRIVER")) s.driver = std::atoi(v);
  if (const char* v = std::getenv("TRIREME_EMULATOR_CARD")) s.card = std::atoi(v);
  if (const char* v = std::getenv("TRIREME_EMULATOR_ORDER")) {
    const std::string order = v;
    if (order == "backward") s.order.kind = Order::backward;
    if (order.starts_with("shuffled")) {
      s.order.kind = Order::shuffled;
      if (const auto colon = order.find(':'); colon != std::string::npos)
        s.order.seed = static_cast<unsigned>(std::strtoul(order.c_str() + colon + 1, nullptr, 10));
    }
  }
  return s;
}

Settings& changeable() {
  static Settings s = read();
  return s;
}

}  // namespace

const Settings& settings() { return changeable(); }
void set_order(Order order) { changeable().order = order; }

}  // namespace emulator
