#include "kernels/core/environment.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "kernels/core/error.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

using Variable = EnvironmentVariable;
constexpr double year_9999 = 253402300799, largest_int = 2147483647, largest_step = 4294967295;

constexpr std::array variables{
    Variable{"TRIREME_TIMEOUT", Variable::seconds, 0.001, 1e9, ""},  // that a rank waits for others
    Variable{"TRIREME_SHARED_MEMORY", Variable::word, 0, 0, "0, 1, staged, direct"},
    Variable{"TRIREME_COMPARE_CALLS", Variable::word, 0, 0, "0, 1"},
    Variable{"TRIREME_FENCE", Variable::word, 0, 0, "0, 1"},
    Variable{"TRIREME_DATA", Variable::text, 0, 0, ""},
    Variable{"TRIREME_CUDA_PLUGIN", Variable::text, 0, 0, ""},
    Variable{"TRIREME_CUDA_VIRTUAL_MEMORY", Variable::word, 0, 0, "on, off"},
    Variable{"TRIREME_PLAN_CACHE", Variable::text, 0, 0, ""},
    Variable{"TRIREME_PLAN_SECONDS", Variable::seconds, 0, 1e9, ""},      // that cuDNN's plans are tried for
    Variable{"SLURM_JOB_END_TIME", Variable::seconds, 0, year_9999, ""},  // Unix time; 0: none
    Variable{"SLURM_STEP_ID", Variable::whole, 0, largest_step, ""},
    Variable{"SLURM_PROCID", Variable::whole, 0, largest_int, ""},
    Variable{"SLURM_STEP_NUM_TASKS", Variable::whole, 1, largest_int, ""},
    Variable{"SLURM_NTASKS", Variable::whole, 1, largest_int, ""},
    Variable{"OMPI_COMM_WORLD_SIZE", Variable::whole, 1, largest_int, ""},
    Variable{"OMPI_COMM_WORLD_LOCAL_SIZE", Variable::whole, 1, largest_int, ""},
    Variable{"PMI_SIZE", Variable::whole, 1, largest_int, ""},
    Variable{"PMI_FD", Variable::whole, 0, largest_int, ""},
    Variable{"MPI_LOCALNRANKS", Variable::whole, 1, largest_int, ""},
    Variable{"NCCL_HOSTID", Variable::text, 0, 0, ""},
    Variable{"HYDRA_LAUNCHER_EXEC", Variable::text, 0, 0, ""},
};

const Variable& find(const char* name) {
  const auto at = std::ranges::find(variables, std::string_view(name), &Variable::name);
  check(at != variables.end(), ErrorKind::internal, "environment", "{} is not in the table of variables", name);
  return *at;
}

[[noreturn]] void refuse(const Variable& v, std::string_view value, const std::string& expected) {
  fail("environment", "{} is \"{:.100}\", expected {}; set it so, or unset it", v.name, value, expected);
}

double number_in(const Variable& v, std::string_view value) {
  double number = 0;
  const bool whole = v.type == Variable::whole;
  const bool digits = !whole || std::ranges::all_of(value, [](char c) { return '0' <= c && c <= '9'; });
  if (!digits || !parse_number(value, number) || !(number >= v.least && number <= v.most))
    refuse(v, value, fmt::format("a {}number from {} to {:.0f}", whole ? "whole " : "", v.least, v.most));
  return number;
}

void check_value(const Variable& v, std::string_view value) {
  if (v.type == Variable::seconds || v.type == Variable::whole) {
    (void)number_in(v, value);
  } else if (v.type == Variable::word) {
    bool known = false;
    for (const std::string& word : split_text(v.words, ',')) known = known || trimmed(word) == value;
    if (!known) refuse(v, value, fmt::format("one of {}", v.words));
  } else if (value.empty()) {
    refuse(v, value, "a text");
  }
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() { return variables; }

void check_environment() {
  for (const Variable& v : variables)
    if (const char* value = std::getenv(v.name)) check_value(v, value);
}

std::optional<double> environment_number(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional(number_in(find(name), value)) : std::nullopt;
}

std::optional<std::string> environment_text(const char* name) {
  const char* value = std::getenv(name);
  if (!value) return {};
  check_value(find(name), value);
  return value;
}

double number_of_variable(const char* name, std::string_view value) { return number_in(find(name), value); }

}  // namespace trireme
