#include <cstring>
#include <sstream>

#include "framework/io/foreign/import.h"
#include "framework/io/foreign/npz.h"
#include "framework/io/foreign/torch_file.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace test_foreign {

using namespace trireme;
using test::contains;

namespace {

struct Expected {
  std::string file;
  std::vector<std::string> left_out;
  struct Array {
    std::string type, shape, bytes;
  };
  std::map<std::string, Array> arrays;
};

std::string in(const test::Oracle& oracle, const std::string& file) { return (oracle.folder() / file).string(); }

/// What the script wrote down.
std::vector<Expected> read_expected(const test::Oracle& oracle) {
  std::istringstream lines(test::slurp(in(oracle, "expected")));
  std::vector<Expected> all;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string first, name;
    Expected::Array array;
    words >> first;
    if (first == "file") {
      words >> all.emplace_back().file;
    } else if (first == "left") {
      all.back().left_out.push_back(line.substr(5));
    } else {
      words >> array.type >> array.shape >> name;
      array.bytes = test::slurp(in(oracle, all.back().file + "." + first));
      all.back().arrays[name] = array;
    }
  }
  return all;
}

std::string shape_text(const Shape& shape) {
  std::string text;
  for (Index extent : shape) text += (text.empty() ? "" : ",") + std::to_string(extent);
  return text.empty() ? "-" : text;
}

/// The message, or "" for a file that is read.
std::string refusal(const std::string& path) {
  try {
    read_foreign_weights(path);
    return "";
  } catch (const Error& e) { return e.what(); }
}

template <class Read>
std::string refusal(Read read, std::span<const std::byte> bytes) {
  std::vector<std::vector<std::byte>> blocks;
  const auto room = [&](const FileArray& a) { return blocks.emplace_back(a.bytes()).data(); };
  try {
    read(NamedBytes{"F", bytes}, room);
    return "";
  } catch (const Error& e) { return e.what(); }
}

}  // namespace

TEST_CASE("foreign: what NumPy and PyTorch wrote is read bit for bit; what could harm is refused by name") {
  test::Oracle oracle;
  if (!oracle.run("foreign_files.py")) return;
  const auto files = read_expected(oracle);
  CHECK(!files.empty());
  for (const Expected& expected : files) {
    INFO(expected.file);
    const ForeignWeights got = read_foreign_weights(in(oracle, expected.file));
    CHECK(got.left_out == expected.left_out);
    CHECK(got.tensors.size() == expected.arrays.size());
    for (const NamedTensor& t : got.tensors) {
      INFO(t.name);
      const auto at = expected.arrays.find(t.name);
      REQUIRE(at != expected.arrays.end());
      CHECK(name_of(t.tensor.dtype()) == at->second.type);
      CHECK(shape_text(t.tensor.shape()) == at->second.shape);
      REQUIRE(static_cast<std::size_t>(t.tensor.view().bytes()) == at->second.bytes.size());
      CHECK(std::memcmp(t.tensor.data<char>(), at->second.bytes.data(), at->second.bytes.size()) == 0);
    }
  }

  std::istringstream refused(test::slurp(in(oracle, "refused")));
  int n = 0;
  for (std::string line; std::getline(refused, line); ++n) {
    const std::string name = line.substr(0, line.find('\t'));
    INFO(name);
    const std::string message = refusal(in(oracle, name));
    CHECK_THAT(message, contains(line.substr(line.find('\t') + 1)));
    CHECK_THAT(message, contains(in(oracle, name)));
    CHECK(message.find('\n') == std::string::npos);
    CHECK(message.size() < 400);
  }
  CHECK(n > 100);

  // Every truncation is an error.
  for (const char* name : {"small.pt", "version2.npz"}) {
    const std::string whole = test::slurp(in(oracle, name));
    const auto bytes = std::as_bytes(std::span(whole));
    const auto read = [&](std::size_t n) {
      return std::string(name) == "small.pt" ? refusal(read_torch, bytes.first(n)) : refusal(read_npz, bytes.first(n));
    };
    CHECK(read(bytes.size()).empty());
    for (std::size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(read(n).empty());
  }
}

TEST_CASE("foreign: files that are not there, or of another kind") {
  test::Temporary folder;
  CHECK_THAT(refusal(folder / "none.npz"), contains("none.npz") && contains("No such file"));
  CHECK_THAT(refusal(folder / "weights.h5"), contains("weights.h5: is none of .npy, .npz, .pt"));
  write_safetensors(folder / "a.safetensors", {{"w", Tensor::scalar(3)}});
  CHECK(read_foreign_weights(folder / "a.safetensors").tensors[0].name == "w");
}

}  // namespace test_foreign
