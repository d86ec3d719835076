// Machine files: what is written is read bit for bit, and every way to spoil a key is a line that names file and key.
#include "tools/training/machine_file.h"

#include <random>
#include <regex>

#include "framework/io/options.h"
#include "tests/support/catch.h"

namespace test_machine_file {

using namespace trireme;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

MachineProfile some_machine(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto number = [&] {
    return std::ldexp(static_cast<double>(random() >> 11), -70 + static_cast<int>(random() % 20));
  };
  const auto pair = [&] { return Measured{number(), number()}; };
  MachineProfile m{.about = {{"host", "a \"name\"\x7f"}, {"date", "2026-01-01"}},
                   .jitter = number(),
                   .load = pair(),
                   .fresh = pair(),
                   .vector_op = pair(),
                   .checkpoint = pair()};
  for (const CallKind kind : {CallKind::all_reduce, CallKind::send, CallKind::all_to_all})
    for (int i = 0; i < 3; ++i)
      m.calls.push_back({kind, 2 + static_cast<int>(random() % 7), static_cast<Index>(random() % 1'000'000), number()});
  for (int i = 0; i < 2; ++i) {
    ModelProfile p{.model = "model " + std::to_string(i),
                   .arch = {{"dtype", "bf16"}, {"arch.layers", "4"}},
                   .ranks = 1 + static_cast<int>(random() % 9),
                   .parameters = static_cast<Index>(random() % 1'000'000),
                   .names = {"0-1", "tail"},
                   .optimizer = "sgd",
                   .update = pair()};
    for (Index rows = 1 + static_cast<Index>(random() % 3), n = 0; n < 3; ++n, rows *= 2) {
      ModelProfile::Size s{.rows = rows, .forward = pair(), .backward = pair(), .loss = pair(), .between = pair()};
      for (int part = 0; part < 2; ++part)
        s.parts.push_back({.forward = number(),
                           .backward_input = number(),
                           .backward_weight = number(),
                           .saved = static_cast<Index>(random() % (1 << 30)),
                           .output = static_cast<Index>(random() % 5000)});
      p.sizes.push_back(std::move(s));
    }
    m.models.push_back(std::move(p));
  }
  return m;
}

std::string refusal(const std::string& text) {
  try {
    (void)parse_machine(text, "there/machine.toml");
  } catch (const OptionError& e) { return e.what(); }
  return "";
}

}  // namespace

TEST_CASE("a machine file is read as it was written") {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    const MachineProfile m = some_machine(seed);
    CHECK(parse_machine(machine_toml(m), "x") == m);
  }
}

TEST_CASE("a line of a machine file that is missing, misspelt or impossible is refused in words") {
  const std::string whole = machine_toml(some_machine(1));
  std::vector<std::string> lines;
  std::istringstream in(whole);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  const auto with = [&](std::size_t at, const std::string& line) {
    std::string text;
    for (std::size_t i = 0; i < lines.size(); ++i) text += (i == at ? line : lines[i]) + "\n";
    return text;
  };
  int spoilt = 0;
  bool about = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].starts_with('[')) about = lines[i] == "[about]";
    const auto equals = lines[i].find(" = ");
    if (equals == std::string::npos || about) continue;
    const std::string key = lines[i].substr(0, equals), value = lines[i].substr(equals + 3);
    std::vector<std::string> bad{
        "", "z" + lines[i], key + " = true", key + " = {}", key + " = [[1]]", key + " = 1979-05-27"};
    if (value.starts_with('[') && value.find('"') == value.npos) {
      bad.push_back(key + " = []");
      bad.push_back(key + " = [\"a\"]");
      bad.push_back(
          key + " = " +
          std::regex_replace(value, std::regex("\\[[^,\\]]*"), "[-1.0", std::regex_constants::format_first_only));
      bad.push_back(
          key + " = " +
          std::regex_replace(value, std::regex("\\[[^,\\]]*"), "[nan", std::regex_constants::format_first_only));
    } else if (!value.starts_with('"') && !value.starts_with('[')) {
      bad.push_back(key + " = -1");
      bad.push_back(key + " = inf");
      bad.push_back(key + " = \"1\"");
    }
    for (const std::string& line : bad) {
      const std::string text = with(i, line), why = refusal(text);
      INFO(lines[i] << " -> " << line << ": " << why);
      const bool empties = line == "bytes = []";  // and then the list beside it is not
      CHECK(why.starts_with("there/machine.toml:"));
      CHECK((empties || contains(why, key)));
      CHECK(why.find('\n') == std::string::npos);
      ++spoilt;
    }
  }
  CHECK(spoilt > 300);
  CHECK(contains(refusal(with(0, "jitter = 0.1\nplacement = 3")), "placement"));
}

TEST_CASE("a model is found by name, settings and ranks, and what is missing is named with the remedy") {
  TrainerOptions options;
  options.model = "mlp";
  MachineProfile m;
  m.models = {{.model = "mlp", .ranks = 2, .sizes = {{.rows = 1}}}};
  CHECK(&model_in(m, options, 0) == &m.models[0]);
  CHECK(&model_in(m, options, 2) == &m.models[0]);
  CHECK_THROWS_AS(model_in(m, options, 3), OptionError);
  options.dtype = "bf16";
  options.optim.lr = 3;  // the second does not change what a step takes
  try {
    (void)model_in(m, options, 0);
    FAIL("found");
  } catch (const OptionError& e) {
    CHECK(contains(e.what(), "mlp --dtype"));
    CHECK(contains(e.what(), "trireme bench mlp"));
  }
  m.models[0].arch = settings_of_model(options);
  CHECK(&model_in(m, options, 0) == &m.models[0]);
}

TEST_CASE("a machine that was busy while it was measured is told by its load and its spread") {
  CHECK(busy_in_words(0.5, 0.1) == "");
  CHECK(busy_in_words(1.62, 0.02) == "load average 1.62 per core (above 0.5)");
  MachineProfile m{.about = {{"load_average", "3.20"}}, .jitter = 0.37};
  CHECK(busy_in_words(m) == "load average 3.20 per core (above 0.5), durations spread by 37.0 % (above 10 %)");
  m.about.clear();  // a file of before
  CHECK(busy_in_words(m) == "durations spread by 37.0 % (above 10 %)");
}

}  // namespace test_machine_file
