// Reads files for tests/readers.py, which compares what comes of them with other libraries. A line of standard input is
// a request, "KIND PATH" or "tokens PATH TEXT"; fields are divided by tabs. The answer is a line "STATUS BYTES" and
// that number of bytes. STATUS 0: a line of JSON, then the elements of the arrays that the line names. Another: the
// exit status of the error's kind, then its message.
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "datasets/formats/webdataset.h"
#include "datasets/images/image.h"
#include "datasets/text/tokenizer.h"
#include "datasets/volumes/volume.h"
#include "framework/io/file.h"
#include "framework/io/foreign/import.h"
#include "framework/io/foreign/npy.h"
#include "framework/io/json.h"
#include "kernels/core/error.h"
#include "kernels/core/text.h"

namespace trireme {
namespace {

/// The answer: `about` describes what `elements` holds.
struct Answer {
  Json about;
  std::string elements;

  void add(const std::string& name, const Tensor& given) {
    const Tensor tensor = given.clone();
    about["arrays"].push_back({{"name", name},
                               {"dtype", std::string(name_of(tensor.dtype()))},
                               {"shape", std::vector<Index>(tensor.shape().begin(), tensor.shape().end())}});
    const auto bytes = static_cast<std::size_t>(tensor.numel() * size_of(tensor.dtype()));
    if (bytes > 0) elements.append(static_cast<const char*>(tensor.view().data), bytes);
  }
};

Answer volume_of(const std::string& path) {
  const Volume volume = open_volume(path);
  Answer answer;
  answer.about = {{"type", std::string(volume.type().name)},
                  {"shape", std::vector<Index>(volume.array().begin(), volume.array().end())}};
  Tensor all;
  // u64 may hold numbers beyond i64, which f64 holds as far as it can.
  if (volume.type().is_integer() && volume.type().code != "u8")
    all = volume.read(volume.box(), DType::i64);
  else
    all = volume.read(volume.box(), DType::f64);
  answer.add("volume", all);
  // Half of each axis from a quarter on.
  Box part = volume.box();
  for (int i = 0; i < 4; ++i) {
    part.at[i] = volume.shape()[i] / 4;
    part.size[i] = (volume.shape()[i] - part.at[i] + 1) / 2;
  }
  answer.add("part", volume.read(part, all.dtype()));
  return answer;
}

Answer weights_of(const std::string& path) {
  const ForeignWeights weights = read_foreign_weights(path);
  Answer answer;
  answer.about = {{"left_out", weights.left_out}, {"arrays", Json::array()}};
  for (const NamedTensor& each : weights.tensors) answer.add(each.name, each.tensor);
  return answer;
}

Answer members_of(const std::string& path, bool samples) {
  FileReader file(path);
  const NamedBytes bytes{path, file.map(false)};
  Answer answer;
  answer.about["members"] = Json::array();
  const auto add = [&](const TarMember& member, std::int64_t label) {
    answer.about["members"].push_back({member.name, member.offset, member.size, label});
  };
  if (samples)
    scan_shard(bytes, [&](const ShardSample& sample) { add(sample.image, sample.label); });
  else
    scan_tar(bytes, [&](const TarMember& member) { add(member, 0); });
  return answer;
}

Answer tokens_of(const std::string& path, const std::string& text_path) {
  static std::string last;
  static Tokenizer tokenizer;
  if (last != path) {
    last.clear();
    tokenizer = open_tokenizer(path);
    last = path;
  }
  const std::string text = read_text(text_path, std::size_t{1} << 30);
  const auto ids = tokenizer.encode(text);
  Answer answer;
  answer.about = {{"ids", ids}, {"with_special", tokenizer.encode_with_special(text)}};
  answer.elements = tokenizer.decode(ids);
  return answer;
}

Answer answer_to(const std::vector<std::string>& request) {
  const std::string& kind = request.at(0);
  const std::string& path = request.at(1);
  if (kind == "volume") return volume_of(path);
  if (kind == "weights") return weights_of(path);
  if (kind == "tar" || kind == "shard") return members_of(path, kind == "shard");
  if (kind == "tokens") return tokens_of(path, request.at(2));
  Answer answer;
  if (kind == "npy") {
    answer.add("array", read_npy(path));
    return answer;
  }
  check(kind == "rgb" || kind == "grey", "read_files", "{} is no kind of request", kind);
  answer.add("image", read_image(path, kind == "rgb" ? 3 : 1));
  return answer;
}

}  // namespace
}  // namespace trireme

int main() {
  using namespace trireme;
  std::string line;
  while (std::getline(std::cin, line)) {
    int status = 0;
    std::string text;
    try {
      const Answer answer = answer_to(split_text(line, '\t'));
      text = json_text(answer.about, NotUtf8::replaced, -1, true) + "\n" + answer.elements;
    } catch (const std::exception&) {
      status = exit_status(current_kind());
      text = current_message();
    }
    std::printf("%d %zu\n", status, text.size());
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
}
