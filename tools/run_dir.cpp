#include "tools/run_dir.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "framework/file.h"
#include "kernels/error.h"

namespace trireme {
namespace fs = std::filesystem;

RunDir::RunDir(const std::string& path, const std::string& name, const std::string& config, bool resume) : path_(path) {
  if (path_.empty()) {
    path_ = "runs/" + name;
    for (int i = 2; fs::exists(path_); ++i) path_ = fmt::format("runs/{}-{}", name, i);
  }
  if (resume) {
    check(fs::is_directory(path_ + "/checkpoints"), "resume", "{} holds no checkpoints; train without --resume first",
          path_);
  } else {
    check(!fs::exists(path_ + "/checkpoints"), "run directory",
          "{} holds another run; add --resume to go on with it, or name a new --run.dir", path_);
    std::error_code error;
    fs::create_directories(path_, error);
    check(!error, "run directory", "cannot create {}: {}", path_, error.message());
    replace_file(path_ + "/config.toml", config);
  }
  open();
}

void RunDir::open() {
  file_.reset(std::fopen(metrics().c_str(), "a"));
  check(file_ != nullptr, "run directory", "cannot write {}: {}", metrics(), std::strerror(errno));
}

void RunDir::record(const nlohmann::json& line) {
  std::string text = line.dump() + "\n";
  bool ok = std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() && std::fflush(file_.get()) == 0;
  check(ok, "run directory", "cannot write {}: {}", metrics(), std::strerror(errno));
}

void RunDir::write_classes(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  if (!text.empty()) replace_file(path_ + "/" + class_file, text);
}

void RunDir::rewind(std::int64_t step) {
  file_.reset();
  std::string kept, line;
  for (std::ifstream in(metrics()); std::getline(in, line);) {
    auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_discarded() && json.value("step", std::int64_t{0}) <= step) kept += line + "\n";
  }
  replace_file(metrics(), kept);
  open();
}

}  // namespace trireme
