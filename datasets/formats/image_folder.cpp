#include "datasets/formats/image_folder.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "datasets/core/fingerprint.h"
#include "datasets/formats/data_paths.h"
#include "framework/io/file.h"
#include "framework/io/lines.h"

namespace trireme {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view folder_op = "image folder";

/// The folders in a folder without hidden ones, in byte order.
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

/// Throws for two folders whose names are equal on file systems that ignore case.
void check_apart(const std::vector<std::string>& folders, const std::string& path) {
  std::map<std::string, std::string> seen;
  for (const std::string& folder : folders) {
    const auto [at, fresh] = seen.emplace(lower_case(folder), folder);
    check(fresh, ErrorKind::data, folder_op, "{}: two classes with one name: {} and {}", path, at->second, folder);
  }
}

/// The first element that only `a` has, of two sorted lists; empty: none.
std::string only_in(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  for (const std::string& name : a)
    if (!std::binary_search(b.begin(), b.end(), name)) return name;
  return {};
}

struct Class {
  std::string folder, name;
};

/// Parses classes.txt: a line per class with its folder and, after a blank, its name.
std::vector<Class> read_classes(const std::string& file, const std::vector<std::string>& folders,
                                const std::string& path) {
  constexpr std::size_t most = std::size_t{16} << 20;
  const std::string text = read_text(file, most);
  std::vector<Class> classes;
  std::map<std::string, std::string> folder_of;  // by display name
  std::vector<std::string> listed;
  std::size_t line = 0;
  for (const std::string& words : text_lines(text)) {
    ++line;
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

/// The folder of a split. Throws if the splits have different classes.
std::string split_folder(const std::string& root, const std::string& split) {
  check(split == "train" || split == "test", folder_op, "split is '{}', it must be train or test", split);
  check(!root.empty(), folder_op,
        "no folder is named: --data.root DIR is the one that holds a folder per class, or train/ and "
        "val/");
  const std::string train = root + "/train";
  if (!fs::is_directory(train)) return root;  // both splits are in one folder
  if (split == "train") return train;
  for (const char* name : {"/val", "/test"})
    if (const std::string path = root + name; fs::is_directory(path)) {
      const auto ours = class_folders(path), theirs = class_folders(train);
      const std::string more = only_in(ours, theirs), fewer = only_in(theirs, ours);
      check(more.empty(), ErrorKind::data, folder_op, "{} and {} disagree: only the first has a class {}", path, train,
            more);
      check(fewer.empty(), ErrorKind::data, folder_op, "{} and {} disagree: only the second has a class {}", path,
            train, fewer);
      return path;
    }
  fail(ErrorKind::data, folder_op, "{}: has train/, but neither val/ nor test/", root);
}

/// The images in a class folder and its subfolders, by relative path ("more/7.jpg"). All names are in one text, each
/// ended by '\0', so that an image needs no allocation.
struct FolderFiles {
  std::string folder, names;
};

/// The part after the last dot, in lower case; empty for hidden files.
std::string ending_of(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  return name.starts_with('.') || dot == name.npos ? "" : lower_case(name.substr(dot + 1));
}
/// Whether a file is a picture in a format that cannot be decoded. Ignoring it would silently change the data.
bool is_other_picture(std::string_view ending) {
  constexpr std::string_view others[] = {"avif", "bmp", "gif", "heic", "jfif", "jp2",  "jpe", "jxl",
                                         "pbm",  "pgm", "pnm", "ppm",  "tif",  "tiff", "webp"};
  return std::ranges::find(others, ending) != std::end(others);
}

/// The entries of one folder of a class.
struct Listed {
  std::vector<std::string> images, folders;
};

Listed list_folder(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::opendir(path.c_str()), ::closedir);
  check(directory != nullptr, ErrorKind::file, folder_op, "cannot list {}: {}", path,
        [&] { return std::strerror(errno); });
  Listed found;
  std::string other;
  Index others = 0;
  // readdir gives an entry's type with its name. Links with names of pictures are assumed to be files, because checking
  // each link would cost a system call.
  while (const dirent* entry = ::readdir(directory.get())) {
    const std::string name = entry->d_name, ending = ending_of(name);
    if (name.starts_with('.')) continue;
    std::error_code unknown;
    if (entry->d_type == DT_DIR)
      found.folders.push_back(name);
    else if (is_image_ending(ending))
      found.images.push_back(name);
    else if ((entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) && fs::is_directory(path + "/" + name, unknown))
      found.folders.push_back(name);
    else if (is_other_picture(ending) && others++ == 0)
      other = name;
  }
  check(others == 0, ErrorKind::data, folder_op,
        "{}: holds {} picture{} of formats that are not decoded ({}), JPEG and PNG are: convert them, or move them out "
        "of the folder",
        path, others, others == 1 ? "" : "s", other);
  return found;
}

/// In torchvision's order: folder by folder, each folder's files in byte order.
FolderFiles list_images(const std::string& parent, const std::string& folder) {
  constexpr int deepest = 32;  // links may form a loop
  const std::string path = parent + "/" + folder;
  std::map<std::string, std::vector<std::string>> images;  // by subfolder
  const auto list = [&](auto& self, const std::string& below, int depth) -> void {
    check(depth <= deepest, ErrorKind::data, folder_op, "{}{}: more than {} folders deep; does a link lead back?", path,
          below, deepest + 0);
    Listed found = list_folder(path + below);
    for (const std::string& name : found.folders) self(self, below + "/" + name, depth + 1);
    if (!found.images.empty()) images.emplace(below, std::move(found.images));
  };
  list(list, "", 0);
  check(!images.empty(), ErrorKind::data, folder_op,
        "{}: holds no .jpg, .jpeg or .png file; a class needs at least one", path);
  FolderFiles files{folder, {}};
  for (auto& [below, names] : images) {
    std::sort(names.begin(), names.end());
    const std::string begin = below.empty() ? "" : below.substr(1) + "/";
    for (const std::string& name : names) files.names.append(begin).append(name).push_back('\0');
  }
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
  std::string fingerprint() const override {
    Fingerprint all;
    const Index step = (size() + 255) / 256;
    for (Index id = 0; id < size(); ++id) {
      const std::string file = describe(id);
      all.add_file(file.substr(path_.size() + 1), file);
      if (id % step == 0) all.add_content(file);
    }
    return all.text();
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
  std::vector<Index> ends_;          // by label: index of the next label's first file
  std::vector<std::size_t> starts_;  // by file: offset of its name in the folder's text
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
