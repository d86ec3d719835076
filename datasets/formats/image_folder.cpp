#include "datasets/formats/image_folder.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "datasets/formats/data_paths.h"
#include "framework/io/file.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view folder_op = "image folder";

/// The folders in a folder, hidden ones left out, in byte order.
std::vector<std::string> class_folders(const std::string& path) {
  std::error_code error;
  check(fs::is_directory(path, error), ErrorKind::file, folder_op,
        "{}: there is no such folder; --data.root names the one that holds a folder "
        "per class, or train/ and val/",
        path);
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    if (entry.is_directory() && !entry.path().filename().string().starts_with('.'))
      names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  check(!names.empty(), ErrorKind::data, folder_op, "{}: holds no folders, one per class is expected", path);
  return names;
}

/// Refuses two folders that some file systems would take for one.
void check_apart(const std::vector<std::string>& folders, const std::string& path) {
  std::map<std::string, std::string> seen;
  for (const std::string& folder : folders) {
    const auto [at, fresh] = seen.emplace(lower_case(folder), folder);
    check(fresh, ErrorKind::data, folder_op, "{}: two classes with one name: {} and {}", path, at->second, folder);
  }
}

/// Which of two sorted lists has what the other lacks; empty: none.
std::string only_in(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  for (const std::string& name : a)
    if (!std::binary_search(b.begin(), b.end(), name)) return name;
  return {};
}

struct Class {
  std::string folder, name;
};

/// classes.txt: a line per class, its folder and, after a blank, its name.
std::vector<Class> read_classes(const std::string& file, const std::vector<std::string>& folders,
                                const std::string& path) {
  constexpr std::size_t most = std::size_t{16} << 20;
  const std::string text = read_text(file, most);
  std::vector<Class> classes;
  std::map<std::string, std::string> folder_of;  // by name
  std::vector<std::string> listed;
  for (std::size_t at = 0, line = 1; at < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string words = text.substr(at, end - at);
    at = end + 1;
    if (words.ends_with('\r')) words.pop_back();
    if (words.empty()) continue;
    const std::size_t blank = words.find_first_of(" \t");
    Class one{words.substr(0, blank), blank == words.npos ? words : words.substr(blank + 1)};
    check(std::binary_search(folders.begin(), folders.end(), one.folder), ErrorKind::data, folder_op,
          "{}:{}: {} has no folder {}", file, line, path, one.folder);
    check(std::find(listed.begin(), listed.end(), one.folder) == listed.end(), ErrorKind::data, folder_op,
          "{}:{}: lists {} a second time", file, line, one.folder);
    const auto [same, fresh] = folder_of.emplace(one.name, one.folder);
    check(fresh, ErrorKind::data, folder_op, "{}:{}: two classes with one name: {} and {} are both '{}'", file, line,
          same->second, one.folder, one.name);
    listed.push_back(one.folder);
    classes.push_back(std::move(one));
  }
  std::sort(listed.begin(), listed.end());
  const std::string missing = only_in(folders, listed);
  check(missing.empty(), ErrorKind::data, folder_op, "{}: does not list the folder {} of {}", file, missing, path);
  return classes;
}

/// Which folder a split is in, and that all splits have the same classes.
std::string split_folder(const std::string& root, const std::string& split) {
  check(split == "train" || split == "test", folder_op, "split is '{}', it must be train or test", split);
  check(!root.empty(), folder_op,
        "no folder is named: --data.root DIR is the one that holds a folder per class, or train/ and "
        "val/");
  const std::string train = root + "/train";
  if (!fs::is_directory(train)) return root;  // one folder for both
  if (split == "train") return train;
  for (const char* name : {"/val", "/test"})
    if (const std::string path = root + name; fs::is_directory(path)) {
      const auto ours = class_folders(path), theirs = class_folders(train);
      const std::string more = only_in(ours, theirs), fewer = only_in(theirs, ours);
      check(more.empty(), ErrorKind::data, folder_op, "{} and {} disagree: only the first has a class {}", path, train, more);
      check(fewer.empty(), ErrorKind::data, folder_op, "{} and {} disagree: only the second has a class {}", path, train,
            fewer);
      return path;
    }
  fail(ErrorKind::data, folder_op, "{}: has train/, but neither val/ nor test/", root);
}

/// The images directly in one class folder. Their names are in byte order, each followed by '\0' in one text: an image
/// costs no allocation of its own.
struct FolderFiles {
  std::string folder, names;
};

bool is_image(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (name.starts_with('.') || dot == name.npos) return false;
  return is_image_ending(lower_case(name.substr(dot + 1)));
}

FolderFiles list_images(const std::string& parent, const std::string& folder) {
  const std::string path = parent + "/" + folder;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  check(directory != nullptr, ErrorKind::file, folder_op, "cannot list {}: {}", path, [&] { return std::strerror(errno); });
  std::vector<std::string> names;
  // The entry's type comes with its name; links are taken for files, since asking each would cost a call.
  while (const dirent* entry = ::readdir(directory.get()))
    if (entry->d_type != DT_DIR && is_image(entry->d_name)) names.emplace_back(entry->d_name);
  check(!names.empty(), ErrorKind::data, folder_op, "{}: holds no .jpg, .jpeg or .png file; a class needs at least one", path);
  std::sort(names.begin(), names.end());
  FolderFiles files{folder, {}};
  for (const std::string& name : names) files.names.append(name).push_back('\0');
  return files;
}

class ImageFolder final : public EncodedSource {
 public:
  ImageFolder(std::string path, const std::vector<Class>& classes) : path_(std::move(path)) {
    for (const Class& one : classes) {
      names_.push_back(one.name);
      const FolderFiles& files = files_.emplace_back(list_images(path_, one.folder));
      for (std::size_t at = 0; at < files.names.size(); at = files.names.find('\0', at) + 1) starts_.push_back(at);
      ends_.push_back(std::ssize(starts_));
    }
  }
  std::string name() const override { return path_; }
  Index size() const override { return std::ssize(starts_); }
  const std::vector<std::string>& classes() const override { return names_; }
  std::int64_t label(Index id) const override {
    check(id >= 0 && id < size(), folder_op, "{}: file {} is outside [0, {})", path_, id, size());
    return std::upper_bound(ends_.begin(), ends_.end(), id) - ends_.begin();
  }
  std::string describe(Index id) const override {
    const FolderFiles& files = files_[static_cast<std::size_t>(label(id))];
    return path_ + "/" + files.folder + "/" + (files.names.c_str() + starts_[static_cast<std::size_t>(id)]);
  }
  void read(Index id, std::vector<std::byte>& bytes) const override {
    const FileReader file(describe(id));
    bytes.resize(file.size());
    file.read(0, bytes);
  }

 private:
  std::string path_;
  std::vector<FolderFiles> files_;   // by label
  std::vector<std::string> names_;   // by label
  std::vector<Index> ends_;          // by label: the first file of the next
  std::vector<std::size_t> starts_;  // by file: where its name begins in its folder's
};

}  // namespace

std::unique_ptr<const EncodedSource> image_folder(const std::string& root, const std::string& split) try {
  const std::string path = split_folder(root, split);
  const std::vector<std::string> folders = class_folders(path);
  check_apart(folders, path);
  std::vector<Class> classes;
  if (const std::string file = root + "/classes.txt"; fs::exists(file))
    classes = read_classes(file, folders, path);
  else
    for (const std::string& folder : folders) classes.push_back({folder, folder});
  return std::make_unique<ImageFolder>(path, classes);
} catch (const fs::filesystem_error& e) {  // a folder without permission to read, a loop of links, ...
  fail(ErrorKind::file, folder_op, "{}: {}", root, e.code().message());
}

}  // namespace trireme
