#include "datasets/formats/data_paths.h"

#include <dlfcn.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <system_error>

#include "kernels/core/environment.h"
#include "kernels/core/error.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

/// The file with this code: the shared library or the program.
std::vector<fs::path> own_files() {
  std::vector<fs::path> files;
  std::error_code ignored;
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&data_folders), &info) != 0 && info.dli_fname != nullptr)
    // A program's name is as it was called, possibly a bare name found through PATH.
    if (fs::path path(info.dli_fname); path.has_parent_path()) files.push_back(fs::canonical(path, ignored));
  files.push_back(fs::read_symlink("/proc/self/exe", ignored));
  return files;
}

}  // namespace

std::vector<std::string> data_folders(const std::string& name) {
  std::vector<std::string> folders;
  if (const auto root = environment_text("TRIREME_DATA")) folders.push_back((fs::path(*root) / name).string());
  // The library may be in prefix/lib or prefix/lib/<triplet>, a program in prefix/bin. A build folder has share/, too.
  std::error_code ignored;
  for (const fs::path& file : own_files()) {
    fs::path folder = file.parent_path();
    for (int up = 0; up < 4 && folder.has_relative_path(); ++up, folder = folder.parent_path()) {
      const fs::path data = folder / "share" / "trireme" / name;
      if (fs::is_directory(data, ignored)) folders.push_back(data.string());
    }
  }
  if (folders.empty())
    folders.push_back((own_files().back().parent_path().parent_path() / "share" / "trireme" / name).string());
  return folders;
}

std::string find_data_file(const std::vector<std::string>& folders, const std::string& file, std::string_view op,
                           std::string_view remedy) {
  std::error_code ignored;
  for (const std::string& folder : folders)
    for (const char* suffix : {"", ".gz"}) {
      const fs::path path = fs::path(folder) / (file + suffix);
      if (fs::exists(path, ignored)) return path.string();
    }
  fail(ErrorKind::file, op, "no {0} or {0}.gz in {1}: {2}", file, fmt::join(folders, ", "), remedy);
}

std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

}  // namespace trireme
