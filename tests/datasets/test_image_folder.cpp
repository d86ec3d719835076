#include "datasets/formats/image_folder.h"

#include <set>

#include "datasets/formats/open_dataset.h"
#include "tests/datasets/image_files.h"
#include "tests/support/catch.h"

namespace test_image_folder {

using namespace trireme;
using namespace trireme::test;
namespace fs = std::filesystem;

namespace {

void put(const Folder& folder, const std::string& file, const Bytes& bytes = {1}) {
  fs::create_directories(fs::path(folder.path(file)).parent_path());
  folder.write(file, bytes);
}
std::vector<std::string> all(const EncodedSource& source) {
  std::vector<std::string> names;
  for (Index id = 0; id < source.size(); ++id) names.push_back(source.describe(id));
  return names;
}

}  // namespace

TEST_CASE("image folder: classes and files in the order of torchvision's ImageFolder, other files passed over") {
  const Folder folder;
  for (const char* file :
       {"train/dog/b.JPG", "train/dog/a.png", "train/cat/10.jpeg", "train/cat/9.jpg", "train/cat/notes.txt",
        "train/cat/.hidden.jpg", "train/.git/x.jpg", "val/cat/1.jpg", "val/dog/2.jpg", "train/cat/more/a/11.jpg",
        "train/cat/more-/12.jpg", "train/cat/more/13.jpg", "train/cat/more/.old/14.jpg"})
    put(folder, file);
  const auto train = image_folder(folder.path(), "train");
  const std::string root = folder.path("train");
  CHECK(all(*train) == std::vector{root + "/cat/10.jpeg", root + "/cat/9.jpg", root + "/cat/more/13.jpg",
                                   root + "/cat/more-/12.jpg", root + "/cat/more/a/11.jpg", root + "/dog/a.png",
                                   root + "/dog/b.JPG"});
  CHECK(train->classes() == std::vector<std::string>{"cat", "dog"});
  CHECK((train->label(1) == 0 && train->label(4) == 0 && train->label(5) == 1 && train->label(6) == 1));
  std::vector<std::byte> bytes(100);
  train->read(6, bytes);
  CHECK(bytes == std::vector{std::byte{1}});
  CHECK_ERROR(train->label(7), usage, 7, 0);
  CHECK(all(*image_folder(folder.path(), "test")) ==
        std::vector{folder.path("val/cat/1.jpg"), folder.path("val/dog/2.jpg")});
  CHECK(image_folder(root, "test")->size() == 7);  // without train/ inside, one folder is both

  put(folder, "classes.txt",
      {0xef, 0xbb, 0xbf, 'd', 'o', 'g', ' ', 'b', 'i', 'g', ' ', 'd', 'o', 'g', '\n', 'c', 'a', 't', '\r', '\n'});
  const auto named = image_folder(folder.path(), "train");
  CHECK(named->classes() == std::vector<std::string>{"big dog", "cat"});
  CHECK((named->label(0) == 0 && named->describe(0) == root + "/dog/a.png" && named->label(3) == 1));
}

TEST_CASE("image folder: pictures that are not decoded are refused, folders that are linked are entered") {
  const Folder folder;
  for (const char* file : {"f/cat/a.png", "f/cat/more/b.PNG", "f/dog/a.png", "elsewhere/c.png"}) put(folder, file);
  fs::create_symlink(folder.path("elsewhere"), folder.path("f/dog/linked"));
  const auto open = [&] { return image_folder(folder.path("f"), "train"); };
  CHECK(open()->size() == 4);
  for (const char* other : {"b.webp", "c.bmp", "d.TIF", "e.ppm", "f.gif"}) {
    put(folder, std::string("f/cat/more/") + other);
    CHECK_ERROR(open(), data, "f/cat/more", 1, other);
    fs::remove(folder.path(std::string("f/cat/more/") + other));
  }
  put(folder, "f/cat/notes.txt");
  CHECK(open()->size() == 4);
  fs::create_symlink(folder.path("f/cat"), folder.path("f/cat/more/again"));
  CHECK_ERROR(open(), data, "f/cat", "link");
}

TEST_CASE("image folder: a fingerprint tells names, sizes and contents, and not where the folder is") {
  const Folder folder;
  const auto make = [&](const std::string& root) {
    for (const char* file : {"/cat/a.png", "/cat/b.png", "/dog/a.png"}) put(folder, root + file, {1, 2, 3});
    return image_folder(folder.path(root), "train")->fingerprint();
  };
  const std::string first = make("one");
  CHECK(first.starts_with("3 files of 9 bytes"));
  CHECK(make("two") == first);
  std::set<std::string> seen{first};
  const auto differs = [&] { return seen.insert(image_folder(folder.path("two"), "train")->fingerprint()).second; };
  put(folder, "two/cat/b.png", {1, 2, 4});
  CHECK(differs());
  put(folder, "two/cat/b.png", {1, 2, 3, 3});
  CHECK(differs());
  fs::remove(folder.path("two/cat/b.png"));
  CHECK(differs());
  put(folder, "two/cat/c.png", {1, 2, 3});
  CHECK(differs());
  fs::rename(folder.path("two/dog"), folder.path("two/ant"));
  CHECK(differs());
}

TEST_CASE("image folder: what cannot be right is one clear line") {
  const Folder folder;
  const auto open = [&](const std::string& split = "train") { return image_folder(folder.path(), split); };
  const auto classes = [&](const std::string& text) { put(folder, "classes.txt", Bytes(text.begin(), text.end())); };
  CHECK_ERROR(image_folder(folder.path("none"), "train"), file, "image folder", "none");
  CHECK_ERROR(image_folder("", "train"), usage, "image folder", "data.root");
  CHECK_ERROR(open(), data, "image folder");
  put(folder, "train/cat/1.jpg");
  put(folder, "train/dog/notes.txt");
  CHECK_ERROR(open("test"), data, "image folder");
  CHECK_ERROR(open(), data, "image folder", "train/dog");
  put(folder, "train/dog/1.jpg");
  put(folder, "val/cat/1.jpg");
  CHECK_ERROR(open("test"), data, "image folder", "dog");
  put(folder, "val/dog/1.jpg");
  put(folder, "val/owl/1.jpg");
  CHECK_ERROR(open("test"), data, "image folder", "owl");
  classes("cat\n");
  CHECK_ERROR(open(), data, "dog", "classes.txt");
  classes("cat\ndog\nowl\n");
  CHECK_ERROR(open(), data, "owl", "classes.txt:3");
  classes("cat\ndog\ncat\n");
  CHECK_ERROR(open(), data, "cat", "classes.txt:3");
  classes("cat animal\ndog animal\n");
  CHECK_ERROR(open(), data, "cat", "dog", "animal", "classes.txt:2");
  fs::remove(folder.path("classes.txt"));
  put(folder, "train/Cat/1.jpg");
  CHECK_ERROR(open(), data, "Cat", "cat");
  fs::create_symlink("loop", folder.path("loop"));  // what the file system refuses is an Error, too
  CHECK_THROWS_AS(image_folder(folder.path("loop"), "train"), Error);
}

TEST_CASE("imagenet: bad images stop, or are passed over and counted") {
  const Folder folder;
  const Bytes good = jpeg(photo(40, 30), 40, 30);
  put(folder, "a/0.jpg", good);
  put(folder, "a/1.jpg", Bytes(good.begin(), good.end() - 30));
  put(folder, "b/2.jpg", {});
  put(folder, "b/3.jpg", good);
  const auto open = [&](OnBad on_bad) {
    return open_dataset("imagenet", "train",
                        {.root = folder.path(), .image_size = 16, .augment = true, .on_bad = on_bad});
  };
  const AugmentKey draw{.seed = 1, .epoch = 2};
  Bytes pixels(16 * 16 * 3), other(pixels);
  const Dataset strict = open(OnBad::stop), lenient = open(OnBad::skip);
  CHECK(strict->classes() == 2);
  CHECK(strict->read(0, pixels, draw) == 0);
  CHECK_ERROR(strict->read(1, pixels, draw), data, 1, "a/1.jpg");
  CHECK_ERROR(strict->read(2, pixels, draw), data, 2, "b/2.jpg");
  CHECK(lenient->read(0, pixels, draw) == 0);
  CHECK(lenient->bad().count == 0);
  CHECK(lenient->read(1, pixels, draw) == 1);
  CHECK(lenient->read(2, other, draw) == 1);
  CHECK(pixels == other);  // both are sample 3
  CHECK(lenient->read(3, other, draw) == 1);
  CHECK(pixels == other);
  CHECK(lenient->bad().count == 2);
  CHECK_THAT(lenient->bad().first, contains("a/1.jpg"));
  for (const char* file : {"a/0.jpg", "b/3.jpg"}) put(folder, file, {1, 2, 3});
  CHECK_ERROR(lenient->read(1, pixels, draw), data, 1, 4);
}

}  // namespace test_image_folder
