// Plans of the emulated cuDNN as text: [type, attribute, ...], an attribute [name, type, count, "bytes" or [node,
// ...]].
#include <charconv>

#include "tests/cuda_emulator/cudnn_engines.h"

namespace emulator::dnn {
namespace {

constexpr char digits[] = "0123456789abcdef";

void write(std::string& text, const Node& n) {
  text += '[' + std::to_string(n.type);
  for (const auto& [name, a] : n.attributes) {
    if (a.type == CUDNN_TYPE_HANDLE || a.type == CUDNN_TYPE_VOID_PTR) continue;  // of the process that wrote it
    text += ",[" + std::to_string(name) + ',' + std::to_string(a.type) + ',' + std::to_string(a.count) + ',';
    if (a.type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      text += '[';
      for (const NodePtr& inner : a.nodes) {
        write(text, *inner);
        text += ',';
      }
      if (text.back() == ',') text.pop_back();
      text += "]]";
      continue;
    }
    text += '"';
    for (std::byte b : a.bytes) {
      text += digits[std::to_integer<int>(b) / 16];
      text += digits[std::to_integer<int>(b) % 16];
    }
    text += "\"]";
  }
  text += ']';
}

class Reader {
 public:
  explicit Reader(const std::string& text) : text_(text) {}

  Node all() {
    Node n = node();
    expect(at_ == text_.size());
    return n;
  }

 private:
  static void expect(bool holds) { demand(holds, CUDNN_STATUS_BAD_PARAM, "the text is not a plan of this library"); }
  bool next(char c) {
    const bool there = at_ < text_.size() && text_[at_] == c;
    at_ += there;
    return there;
  }
  Index number() {
    Index n = 0;
    const char* from = text_.data() + at_;
    const auto [to, error] = std::from_chars(from, text_.data() + text_.size(), n);
    expect(error == std::errc{});
    at_ += static_cast<std::size_t>(to - from);
    return n;
  }
  unsigned digit() {
    const std::size_t d = at_ < text_.size() ? std::string_view(digits).find(text_[at_++]) : std::string_view::npos;
    expect(d < 16);
    return static_cast<unsigned>(d);
  }

  Attribute attribute() {
    Attribute a{static_cast<cudnnBackendAttributeType_t>(number()), 0, {}, {}};
    expect(next(','));
    a.count = number();
    expect(next(','));
    if (a.type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
      expect(next('['));
      while (!next(']')) {
        expect(a.nodes.empty() || next(','));
        a.nodes.push_back(std::make_shared<Node>(node()));
      }
      expect(std::ssize(a.nodes) == a.count);
    } else {
      expect(next('"'));
      while (!next('"')) {
        const unsigned high = digit();
        a.bytes.push_back(static_cast<std::byte>(high * 16 + digit()));
      }
      expect(a.bytes.size() == static_cast<std::size_t>(a.count) * size_of(a.type));
    }
    return a;
  }
  Node node() {
    expect(next('['));
    Node n{static_cast<cudnnBackendDescriptorType_t>(number()), true};
    while (next(',')) {
      expect(next('['));
      const auto name = static_cast<cudnnBackendAttributeName_t>(number());
      expect(next(','));
      n.attributes[name] = attribute();
      expect(next(']'));
    }
    expect(next(']'));
    return n;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

std::string to_json(const Node& config) {
  std::string text;
  write(text, config);
  return text;
}

NodePtr from_json(const std::string& text) {
  Node n = Reader(text).all();
  demand(n.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_STATUS_BAD_PARAM, "the text is no plan");
  return std::make_shared<Node>(std::move(n));
}

}  // namespace emulator::dnn
