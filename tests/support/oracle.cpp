#include "tests/support/oracle.h"

#include <stdlib.h>
#include <sys/wait.h>

#include <fstream>

#include "tests/support/catch.h"

namespace trireme::test {
namespace {

std::string python(Python which) {
  if (which == Python::oracles) {
    const char* chosen = std::getenv("TRIREME_ORACLE_PYTHON");
    return chosen ? chosen : "python3";
  }
  if (const char* chosen = std::getenv("TRIREME_PYTHON")) return chosen;
  return std::filesystem::exists("/usr/bin/python3") ? "/usr/bin/python3"
                                                     : "python3";  // where the distribution puts torch
}

/// NumPy's format 1.0: magic, version, header length (u16), a Python dict padded to 64 bytes, the elements.
void write_npy(const std::filesystem::path& path, const std::vector<double>& values, const Shape& shape) {
  std::string header = "{'descr': '<f8', 'fortran_order': False, 'shape': (";
  for (Index extent : shape) header += std::to_string(extent) + ",";
  header += "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());
  std::ofstream out(path, std::ios::binary);
  out.write("\x93NUMPY\x01\x00", 8).write(reinterpret_cast<const char*>(&length), 2) << header;
  out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(double)));
  check(out.good(), "oracle", "cannot write {}", path.string());
}

std::pair<std::vector<double>, Shape> read_npy(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  check(in.good(), "oracle", "cannot read {}", path.string());
  std::uint16_t length = 0;
  in.seekg(8).read(reinterpret_cast<char*>(&length), 2);
  std::string header(length, ' ');
  in.read(header.data(), length);
  check(header.find("'<f8'") != header.npos && header.find("False") != header.npos, "oracle",
        "{} is {}, expected '<f8' in C order", path.string(), header);
  Shape shape;
  for (std::size_t at = header.find('(') + 1; header[at] != ')';) {
    std::size_t digits = 0;
    shape.push_back(std::stoll(header.substr(at), &digits));
    at = header.find_first_not_of(", ", at + digits);
  }
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  in.read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(double)));
  check(in.good() && in.peek() == EOF, "oracle", "{} is truncated, or goes on", path.string());
  return {std::move(values), shape};
}

}  // namespace

namespace {
std::vector<std::string> lacked;
}
const std::vector<std::string>& missing() { return lacked; }
void note_missing(const std::string& what) {
  if (std::find(lacked.begin(), lacked.end(), what) == lacked.end()) lacked.push_back(what);
  SUCCEED("skipped: " << what);
}

std::filesystem::path root() { return TRIREME_ROOT; }

Oracle::Oracle() {
  std::string pattern = (std::filesystem::temp_directory_path() / "trireme_oracle_XXXXXX").string();
  check(mkdtemp(pattern.data()) != nullptr, "oracle", "cannot make a folder like {}", pattern);
  folder_ = pattern;
}

Oracle::~Oracle() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void Oracle::put(const std::string& name, const Tensor& t) const {
  write_npy(folder_ / (name + ".npy"), t.to_vector(), t.shape());
}

void Oracle::put(const std::string& name, const std::vector<double>& values) const {
  write_npy(folder_ / (name + ".npy"), values, {static_cast<Index>(values.size())});
}

void Oracle::note(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }

bool Oracle::run(const std::string& script, const std::string& arguments, Python which) const {
  // Oracles are not what the sanitizers that a test may run under are for.
  const std::string command = "env -u LD_PRELOAD -u LD_LIBRARY_PATH " + python(which) + " " +
                              (root() / "tests/oracles" / script).string() + " " + folder_.string() + " " + arguments;
  const int status = std::system(command.c_str());
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (code == 77) {
    note_missing(script + " needs Python packages: tools/setup --oracles installs them");
    return false;
  }
  check(code == 0, "oracle", "'{}' ended with {}", command, code);
  return true;
}

std::vector<double> Oracle::get(const std::string& name) const { return read_npy(folder_ / (name + ".npy")).first; }

Tensor Oracle::tensor(const std::string& name, DType dtype) const {
  auto [values, shape] = read_npy(folder_ / (name + ".npy"));
  return Tensor::of(values, shape, dtype);
}

}  // namespace trireme::test
