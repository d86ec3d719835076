#include "datasets/formats/cifar.h"
#include "datasets/formats/webdataset.h"
#include "framework/io/file.h"
#include "tests/datasets/tar_files.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace test_shards {

using namespace trireme;
using namespace trireme::test;

namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// "name size offset, ..." or the message.
std::string listing(const std::string& archive) {
  std::string text;
  try {
    scan_tar({"F", bytes_of(archive)},
             [&](const TarMember& m) { text += fmt::format("{} {} {}, ", m.name, m.size, m.offset); });
  } catch (const Error& e) { return told(e); }
  return text;
}

/// "name label, ..." or the message.
std::string samples(const std::string& members) {
  std::string text;
  const std::string archive = members + tar_end();
  try {
    scan_shard({"F", bytes_of(archive)},
               [&](const ShardSample& s) { text += fmt::format("{} {}, ", s.image.name, s.label); });
  } catch (const Error& e) { return told(e); }
  return text;
}

std::string record(std::size_t labels, int label, int pixel) {
  std::string bytes(labels, static_cast<char>(label));
  for (int i = 0; i < 3072; ++i) bytes += static_cast<char>(pixel + i / 1024 + i % 7);
  return bytes;
}

std::string refusal(const std::string& bytes, Index classes) {
  try {
    parse_cifar(bytes_of(bytes), classes, "F");
    return "";
  } catch (const Error& e) { return told(e); }
}

}  // namespace

TEST_CASE("tar: members where they lie") {
  const std::string a = tar_member("a.txt", "hello"), b = tar_member("b.txt", std::string(512, 'b'));
  CHECK(listing(tar_end()).empty());
  CHECK(listing(a + b + tar_end()) == "a.txt 5 512, b.txt 512 1536, ");
  CHECK(listing(a + tar_end() + std::string(8192, '\0')) == "a.txt 5 512, ");
  CHECK(listing(tar_member("d/", "", '5') + tar_member("7.jpg", "x", '0', "long/folder") + tar_end()) ==
        "long/folder/7.jpg 1 1024, ");
  const std::string name = std::string(150, 'n') + "/7.jpg";
  CHECK(listing(tar_member("././@LongLink", name + '\0', 'L') + tar_member(name, "x") + tar_end()) ==
        name + " 1 1536, ");
  CHECK(listing(tar_member("h", fmt::format("{} path={}\n", name.size() + 10, name), 'x') + tar_member("cut", "x") + a +
                tar_end()) == name + " 1 1536, a.txt 5 2560, ");
  CHECK(listing(tar_member("h", "10 size=5\n", 'x') + tar_member("a", "xxxxx") + tar_end()) == "a 5 1536, ");
  CHECK(listing(tar_member("h", "20 comment=whatever\n", 'g') + a + tar_end()) == "a.txt 5 1536, ");
}

TEST_CASE("tar: what is damaged, cut off or leads elsewhere is refused in one line") {
  const std::string a = tar_member("a.txt", "hello");
  std::string sum = a, size = a;
  sum[0] = 'b';
  size.replace(124, 11, "77777777777");
  put_checksum(size.data());
  CHECK_THAT(listing(sum + tar_end()), mentions("data", "F", 0));
  CHECK_THAT(listing(size + tar_end()), mentions("data", "a.txt", 0, 8589934591, 1536));
  CHECK_THAT(listing(a + std::string(512, '\0')), mentions("data", "F"));
  CHECK_THAT(listing(a + std::string(512, '\0') + a), mentions("data", 1024));
  CHECK_THAT(listing(a + tar_end() + a + tar_end()), mentions("data", 2048));
  CHECK_THAT(listing(tar_member("evil", "", '2') + tar_end()), mentions("data", "evil", "link"));
  CHECK_THAT(listing(tar_member("evil", "", '1') + tar_end()), mentions("data", "evil", "link"));
  CHECK_THAT(listing(tar_member("tty", "", '3') + tar_end()), mentions("data", "tty"));
  for (const char* name : {"/etc/passwd", "../x", "a/../../x", "a/.."})
    CHECK_THAT(listing(tar_member(name, "x") + tar_end()), mentions("data", "F"));
  for (const char* text : {"8 path=a\n", "99 path=a\n", "path=a\n", "5 a\n\n", "0 =\n"})
    CHECK_THAT(listing(tar_member("h", text, 'x') + a + tar_end()), mentions("data", "F", "header"));
  CHECK_THAT(listing(tar_member("h", "10 path=a\n", 'g') + a + tar_end()), mentions("data", "F"));
  CHECK_THAT(listing(tar_member("h", "22 GNU.sparse.major=1\n", 'x') + a + tar_end()), mentions("data", "sparse"));
  CHECK_THAT(listing(tar_member("h", "10 path=a\n", 'x') + tar_end()), mentions("data", "F", "header"));

  const std::string whole = a + tar_member("b.txt", std::string(700, 'b')) + tar_end();
  for (std::size_t n = 0; n < whole.size(); ++n) CHECK_THAT(listing(whole.substr(0, n)), mentions("data", "F"));
}

TEST_CASE("tar: as Python's tarfile writes it in its three formats") {
  Oracle oracle;
  if (!oracle.run("tar_oracle.py")) return;
  for (const char* format : {"ustar", "gnu", "pax"}) {
    std::string list;
    FileReader archive((oracle.folder() / format).string() + ".tar");
    scan_tar({"F", archive.map()},
             [&](const TarMember& m) { list += fmt::format("{} {} {}\n", m.offset, m.size, m.name); });
    CHECK(list == slurp((oracle.folder() / format).string() + ".txt"));
  }
}

TEST_CASE("shards: consecutive members of one key are a sample") {
  const std::string jpg = tar_member("cat/1.jpg", "J"), cls = tar_member("cat/1.cls", " 3\n");
  CHECK(samples("").empty());
  CHECK(samples(jpg + cls + tar_member("cat/2.b.JPEG", "") + tar_member("cat/2.json", "{}"))
            .find("\"cat/2\" is a sample without .jpg") != std::string::npos);
  CHECK(samples(jpg + cls + tar_member("./dog/1.x.txt", "t") + tar_member("./dog/1.png", "") +
                tar_member("./dog/1.json", R"({"label": 4, "b": []})")) == "cat/1.jpg 3, ./dog/1.png 4, ");
  CHECK(samples(cls + jpg + tar_member("cat/._1.jpg", "") + tar_member("__meta__", "") + tar_member("README", "")) ==
        "cat/1.jpg 3, ");
  CHECK(samples(jpg + tar_member("cat/1.json", R"({"cls": 2})")) == "cat/1.jpg 2, ");
  CHECK(samples(jpg + cls + tar_member("cat/1.json", R"({"caption": "3"})")) == "cat/1.jpg 3, ");

  const auto refused = [&](const std::string& members, const char* part) {
    CHECK_THAT(samples(members), mentions("data", "webdataset", "F") && contains(part));
  };
  refused(jpg, "\"cat/1\" is a sample without label");
  refused(cls, "\"cat/1\" is a sample without .jpg");
  refused(jpg + tar_member("cat/2.jpg", "") + cls, "\"cat/1\" is a sample without label");
  refused(tar_member("a 2.0.jpg", "") + tar_member("a 2.0.cls", "1"), "\"a 2\" is a sample without .jpg");
  refused(tar_member("a 2.0.jpg", "") + tar_member("a 2.0.cls", "1"), "\"a 2.0.jpg\" ends the sample's name");
  refused(jpg + tar_member("cat/1.cls", "dog"), "\"cat/1.cls\" holds \"dog\", not the number of a class");
  refused(jpg + tar_member("cat/1.cls", ""), "holds \"\"");
  refused(jpg + tar_member("cat/1.cls", "-1"), "says label -1");
  refused(jpg + tar_member("cat/1.cls", "99999999"), "says label 99999999, it must lie in [0, 1048576)");
  refused(jpg + tar_member("cat/1.cls", "9999999999999999999"), "not the number");
  refused(jpg + cls + tar_member("cat/1.json", R"({"label": 4})"), "says label 4, another member of its sample 3");
  refused(jpg + tar_member("cat/1.json", R"({"label": "4"})"), "\"label\" that is not the number");
  refused(jpg + tar_member("cat/1.json", R"({"label": 18446744073709551615})"), "not the number");
  refused(jpg + tar_member("cat/1.json", "{"), "\"cat/1.json\" is no JSON");
  refused(jpg + tar_member("cat/1.png", "") + cls, "\"cat/1.png\" is a second image");
}

TEST_CASE("shards: names by braces and lists") {
  const auto names = [](const std::string& pattern, const std::string& root = "") {
    std::string all;
    for (const std::string& name : expand_shards(pattern, root)) all += name + " ";
    return all;
  };
  CHECK(names("s-{08..11}.tar") == "s-08.tar s-09.tar s-10.tar s-11.tar ");
  CHECK(names("{a,b}-{0..1}.tar") == "a-0.tar a-1.tar b-0.tar b-1.tar ");
  CHECK(names("a.tar,/b.tar::{c,d}.tar", "/data") == "/data/a.tar /b.tar /data/c.tar /data/d.tar ");
  CHECK(expand_shards("shard-{000000..000099}.tar").size() == 100);
  for (const char* bad :
       {"", "a,,b", "a{", "a}", "{{a}}", "{3..1}", "{a..b}", "{0..99999999}", "{..3}", "{0..9999}{0..9999}"}) {
    INFO(bad);
    CHECK_ERROR(expand_shards(bad), usage, "webdataset");
  }
}

TEST_CASE("shards: images are read where they lie") {
  Temporary folder;
  std::string first, second;
  for (int i = 0; i < 3; ++i)
    first += tar_member(fmt::format("{}.jpg", i), std::string(i + 1, 'a')) + tar_member(fmt::format("{}.cls", i), "2");
  second = tar_member("x/9.cls", "4") + tar_member("x/9.png", "image");
  spill(folder / "0.tar", first + tar_end());
  spill(folder / "1.tar", second + tar_end());
  const auto shards = expand_shards("{0..1}.tar", folder.path());
  const auto data = WebDataset(shards);
  CHECK(data->size() == 4);
  CHECK(data->classes() == std::vector<std::string>{"0", "1", "2", "3", "4"});
  CHECK(WebDataset(shards, 10)->classes().size() == 10);
  CHECK((data->label(0) == 2 && data->label(3) == 4));
  CHECK(data->describe(3) == folder / "1.tar: x/9.png");
  std::vector<std::byte> bytes;
  data->read(2, bytes);
  CHECK(bytes == std::vector<std::byte>(3, std::byte{'a'}));
  data->read(3, bytes);
  CHECK(std::string(reinterpret_cast<char*>(bytes.data()), bytes.size()) == "image");
  CHECK_ERROR(WebDataset(shards, 4), data, "1.tar", "x/9.png", 4);
  CHECK_ERROR(WebDataset({folder / "2.tar"}), file, "2.tar");
  spill(folder / "2.tar", tar_end());
  CHECK_ERROR(WebDataset({folder / "2.tar"}), data, "2.tar");
  spill(folder / "1.tar", second);
  CHECK_ERROR(data->read(3, bytes), data, "1.tar");
}

TEST_CASE("cifar: records become images, rows first") {
  Temporary folder;
  for (int i = 1; i <= 5; ++i) spill(folder / fmt::format("data_batch_{}.bin", i), record(1, i, i) + record(1, 9, 50));
  std::filesystem::create_directory(folder / "cifar-100-binary");
  spill(folder / "test_batch.bin", record(1, 0, 7));
  spill(folder / "cifar-100-binary/train.bin", std::string(1, '\1') + record(1, 99, 3));
  const Dataset train = Cifar10("train", folder.path()), test = Cifar10("test", folder.path());
  CHECK((train->size() == 10 && test->size() == 1 && train->classes() == 10));
  CHECK(train->shape() == Shape{32, 32, 3});
  std::vector<std::uint8_t> pixels(3072);
  CHECK(train->read(4, pixels) == 3);
  CHECK((pixels[0] == 3 && pixels[1] == 3 + 1 + 1024 % 7 && pixels[3] == 4));
  const Dataset fine = Cifar100("train", folder.path());
  CHECK((fine->read(0, pixels) == 99 && fine->classes() == 100));

  CHECK_THAT(refusal("", 10), mentions("data", "cifar", "F", 0));
  CHECK_THAT(refusal(record(1, 1, 1) + "x", 10), mentions("data", "F", 3074, 3073));
  CHECK_THAT(refusal(record(1, 1, 1), 100), mentions("data", 3074));
  CHECK_THAT(refusal(record(1, 1, 1) + record(1, 10, 1), 10), mentions("data", 10, 1));
  CHECK_ERROR(Cifar100("test", folder.path()), file, "test.bin", "--data.root");
  const std::size_t bytes = std::size_t{3073} << 24;  // whole records, more than fit into memory
  std::filesystem::resize_file(folder / "data_batch_3.bin", bytes);
  CHECK_ERROR(Cifar10("train", folder.path()), data, "data_batch_3.bin", bytes);
  CHECK_ERROR(Cifar10("validation", folder.path()), usage, "validation");
}

}  // namespace test_shards
