// Volumes in files: what is written box by box, by several writers, is read in any box; files of NumPy, tifffile and
// zarr; damaged and hostile ones.
#include "datasets/volumes/volume.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <csignal>
#include <set>
#include <sstream>
#include <thread>

#include "datasets/core/fingerprint.h"
#include "datasets/volumes/crops.h"
#include "datasets/volumes/volume_writer.h"
#include "framework/io/file.h"
#include "framework/io/foreign/npy.h"
#include "tests/datasets/volumes.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace test_volumes {

using namespace trireme;
using test::contains;
using test::cut;
using test::random_number;
using test::spill;
namespace fs = std::filesystem;

namespace {

constexpr std::string_view names[] = {"uint8",  "int8",  "uint16",  "int16",   "uint32",  "int32",
                                      "uint64", "int64", "float16", "float32", "float64", "bool"};

Tensor tensor_of(const std::vector<double>& values, const Box& box, DType dtype) {
  return Tensor::of(values, box.size, dtype);
}
/// One of the types that the file's numbers come in.
DType random_dtype(std::mt19937_64& dice, const VoxelType& type) {
  const DType all[] = {type.dtype, DType::f64, type.is_integer() ? DType::i64 : DType::f64};
  return all[dice() % 3];
}
void check_boxes(std::mt19937_64& dice, const Volume& v, const std::vector<double>& values) {
  CHECK(v.read(v.box(), DType::f64).to_vector() == values);
  for (int i = 0; i < 12; ++i) {
    const Box box = test::random_part(dice, v.shape());
    const Tensor read = v.read(box, random_dtype(dice, v.type()));
    CHECK(read.shape() == box.size);
    CHECK(read.to_vector() == cut(values, v.shape(), box));
  }
}

}  // namespace

TEST_CASE("boxes that several writers wrote are read in any box") {
  const auto seed = GENERATE(1, 2, 3);
  std::mt19937_64 dice(static_cast<std::uint64_t>(seed));
  for (const std::string_view name : names)
    for (const char* end : {".npy", ".raw"}) {
      INFO("seed " << seed << ", " << name << end);
      const test::Temporary folder;
      const std::string path = folder / (std::string("v") + end);
      const VolumeOptions options{test::random_array(dice, 9), std::string(name)};
      const VoxelType& type = *find_voxel_type(name);
      const Shape shape = volume_shape(path, options.array, type);
      const std::vector<double> values = test::voxels(dice, type, shape.numel());
      const std::vector<Box> boxes = test::pieces_of(dice, shape);
      std::vector<DType> dtypes;
      for (std::size_t i = 0; i < boxes.size(); ++i) dtypes.push_back(random_dtype(dice, type));
      constexpr std::size_t writers = 3;
      std::vector<std::jthread> threads;
      for (std::size_t w = 0; w < writers; ++w)
        threads.emplace_back([&, w] {
          const VolumeWriter mine(path, options);
          for (std::size_t i = w; i < boxes.size(); i += writers)
            mine.write(boxes[i], tensor_of(cut(values, shape, boxes[i]), boxes[i], dtypes[i]));
          mine.sync();
        });
      threads.clear();
      CHECK(!fs::exists(path));
      VolumeWriter last(path, options);
      CHECK(last.resumed());
      CHECK(last.shape() == shape);
      last.finish();
      CHECK(fs::exists(path));
      CHECK(!fs::exists(path + ".partial"));
      CHECK(!fs::exists(path + ".partial.json"));
      CHECK_ERROR(last.write({{0, 0, 0, 0}, {0, 0, 0, 0}}, Tensor::zeros({0})), usage, "volume");
      const Volume v = open_volume(path);
      CHECK(v.array() == options.array);
      CHECK(v.shape() == shape);
      CHECK(v.type().name == name);
      check_boxes(dice, v, values);
      const bool ours = name != "uint16" && name != "uint32" && name != "uint64";
      if (end == std::string(".npy") && ours) CHECK(read_npy(path).to_vector() == values);
    }
}

TEST_CASE("NumPy reads what is written, and its files, tifffile's and zarr's are read") {
  const test::Oracle oracle;
  std::mt19937_64 dice(5);
  std::ostringstream written;
  for (const std::string_view name : names) {
    const VoxelType& type = *find_voxel_type(name);
    const Shape array = test::random_array(dice, 7);
    const std::vector<double> values = test::voxels(dice, type, array.numel());
    for (const char* end : {".npy", ".raw"}) {
      const std::string file = "ours_" + std::string(name) + end;
      VolumeWriter out(oracle.folder() / file, {array, std::string(name)});
      out.write({{0, 0, 0, 0}, out.shape()}, Tensor::of(values, out.shape(), DType::f64));
      out.finish();
      oracle.put(file + ".want", Tensor::of(values, array, DType::f64));
      written << file << " " << name << "\n";
    }
  }
  oracle.note("written", written.str());
  if (!oracle.run("volume_files.py", "3", test::Python::oracles)) return;
  std::istringstream expected(test::slurp(oracle.folder() / "expected"));
  int read = 0;
  for (std::string line; std::getline(expected, line); ++read) {
    INFO(line);
    std::istringstream words(line);
    std::string name, type;
    words >> name >> type;
    Shape array;
    for (Index extent = 0; words >> extent;) array.push_back(extent);
    const Volume v = open_volume(oracle.folder() / name);
    CHECK(v.array() == array);
    CHECK(v.type().name == type);
    check_boxes(dice, v, oracle.get(name + ".want"));
  }
  CHECK(read >= 60);
  std::istringstream refused(test::slurp(oracle.folder() / "refused"));
  for (std::string line; std::getline(refused, line);) {
    INFO(line);
    const auto tab = line.find('\t');
    const std::string name = line.substr(0, tab);
    try {
      const Volume v = open_volume(oracle.folder() / name);
      (void)v.read(v.box(), DType::f64);
      FAIL_CHECK("was read");
    } catch (const Error& e) {
      CHECK_THAT(e.what(), contains(line.substr(tab + 1)));
      CHECK_THAT(e.what(), contains(name));
      CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
    }
  }
}

TEST_CASE("a writer that was killed is followed by one that goes on") {
  const test::Temporary folder;
  const std::string path = folder / "v.npy";
  const VolumeOptions options{{2, 3, 4}, "int16"};
  {
    const VolumeWriter first(path, options);
    CHECK(!first.resumed());
    first.write({{1, 0, 0, 0}, {1, 3, 4, 1}}, Tensor::full({3, 4}, 7, DType::i64));
  }
  CHECK(fs::file_size(path + ".partial") == 128 + 48);
  for (const VolumeOptions& other :
       {VolumeOptions{{2, 3, 4}, "uint16"}, VolumeOptions{{2, 4, 3}, "int16"}, VolumeOptions{{2, 3, 5}, "int16"}})
    CHECK_ERROR(VolumeWriter(path, other), usage, "volume", "v.npy.partial");
  spill(folder / "r.raw.partial.json", "{}");
  CHECK_ERROR(VolumeWriter(folder / "r.raw", options), usage, "volume", "r.raw.partial.json");
  spill(path, "an old file");
  VolumeWriter second(path, options);
  CHECK(second.resumed());
  second.finish();
  const Volume v = open_volume(path);
  const auto all = v.read(v.box(), DType::i64).to_vector<Index>();
  CHECK(std::count(all.begin(), all.end(), 0) == 12);  // what nobody wrote
  CHECK(std::count(all.begin(), all.end(), 7) == 12);
  CHECK_ERROR(VolumeWriter(folder / "v.tif", options), usage, "volume", "NAME.npy");
  CHECK_ERROR(VolumeWriter(path, {{2, 3}, "complex64"}), usage, "complex64", "uint8");
  CHECK_ERROR(VolumeWriter(path, {{2, -3}, "int8"}), data, "volume", "[2, -3]");
  CHECK_ERROR(VolumeWriter(path, {{Index{1} << 40, 1 << 30}, "int8"}), data, "[1099511627776, 1073741824]", "int8");
  CHECK_ERROR(VolumeWriter(path, {{7}, "int8"}), data, "volume", "[7]");
  CHECK_ERROR(VolumeWriter(folder / "none/v.npy", options), file, "none/v.npy");
}

TEST_CASE("processes that are killed while they write are followed by others") {
  std::mt19937_64 dice(std::random_device{}());
  for (int round = 0; round < 8; ++round) {
    const test::Temporary folder;
    const std::string path = folder / (round % 2 ? "v.npy" : "v.raw");
    const VolumeOptions options{{16, 64, 1024}, "uint16"};
    const Shape shape{16, 64, 1024, 1};
    const std::vector<double> values = test::voxels(dice, *find_voxel_type("uint16"), shape.numel());
    const std::vector<Box> boxes = test::pieces_of(dice, shape);
    std::vector<Tensor> parts;
    for (const Box& box : boxes) parts.push_back(tensor_of(cut(values, shape, box), box, DType::i64));
    const auto start = [&](std::size_t writer) {
      const pid_t child = ::fork();
      REQUIRE(child >= 0);
      if (child > 0) return child;
      try {
        const VolumeWriter mine(path, options);
        for (std::size_t i = writer; i < boxes.size(); i += 3) mine.write(boxes[i], parts[i].view());
        mine.sync();
      } catch (const std::exception&) { ::_exit(1); }
      ::_exit(0);
    };
    std::array<pid_t, 3> children{};
    for (std::size_t w = 0; w < 3; ++w) children[w] = start(w);
    for (std::size_t w = 0; w < 3; ++w)
      for (int kills = 0, status = 1; status != 0; ++kills) {
        if (kills < 5) {
          std::this_thread::sleep_for(std::chrono::microseconds(dice() % 3000));
          ::kill(children[w], SIGKILL);
        }
        REQUIRE(::waitpid(children[w], &status, 0) == children[w]);
        REQUIRE((status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)));
        if (status != 0) children[w] = start(w);
      }
    VolumeWriter(path, options).finish();
    const Volume v = open_volume(path);
    CHECK(v.read(v.box(), DType::f64).to_vector() == values);
    for (const auto& file : fs::directory_iterator(folder.path())) {  // of a writer that was killed as it made the file
      struct stat about {};
      if (file.path().extension() != ".tmp" || ::stat(file.path().c_str(), &about) != 0) continue;
      // Between link() and unlink() the file has two names, and takes no room for the second.
      if (fs::equivalent(file.path(), path)) continue;
      CHECK(about.st_blocks * 512 < 65536);
    }
  }
}

TEST_CASE("numbers that do not fit, boxes that are not inside, types that are not numbers of the file") {
  const test::Temporary folder;
  const Box one{{0, 0, 0, 0}, {1, 1, 1, 1}};
  const auto fits = [&](const char* type, double value, DType of = DType::f64) {
    const std::string path = folder / (std::string(type) + ".npy");
    VolumeWriter out(path, {{1, 1}, type});
    try {
      out.write(one, Tensor::full({1}, value, of));
    } catch (const Error& e) {
      CHECK_THAT(e.what(), contains(std::string("does not fit in ") + type));
      return false;
    }
    return true;
  };
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  CHECK((fits("uint8", 255.4) && fits("uint8", -0.5) && !fits("uint8", 255.5) && !fits("uint8", -0.6)));
  CHECK((fits("int8", -128.5) && !fits("int8", 128) && !fits("int8", nan) && !fits("int8", inf)));
  CHECK((fits("uint64", 0x1.fffffffffffffp63) && !fits("uint64", 0x1p64) && !fits("int64", 0x1p63) &&
         fits("int64", -0x1p63)));
  CHECK((fits("uint16", 65535, DType::i64) && !fits("uint16", 65536, DType::i64) && !fits("uint64", -1, DType::i64)));
  CHECK((fits("float16", 65504) && !fits("float16", 1e6) && fits("float16", inf) && fits("float16", nan)));
  CHECK(
      (fits("float32", 3e38) && !fits("float32", 1e300) && fits("bool", 1) && !fits("bool", 2) && !fits("bool", nan)));
  VolumeWriter out(folder / "v.npy", {{4, 5}, "uint16"});
  CHECK_ERROR(out.write({{0, 3, 0, 0}, {1, 2, 1, 1}}, Tensor::zeros({2})), usage, "volume", "[1, 4, 5, 1]");
  CHECK_ERROR(out.write({{0, 0}, {1, 2}}, Tensor::zeros({2})), usage, "[0, 0]", "[1, 2]", "[1, 4, 5, 1]");
  CHECK_ERROR(out.write(one, Tensor::zeros({2})), usage, "volume", "[2]");
  CHECK_ERROR(out.write(one, Tensor::zeros({1}, DType::u8)), usage, "u8", "uint16");
  CHECK_ERROR(out.write(one, Tensor()), usage);
  out.finish();
  const Volume v = open_volume(folder / "v.npy");
  CHECK(v.dtype() == DType::i32);
  CHECK(v.read({{0, 1, 2, 0}, {1, 0, 3, 1}}, DType::f32).shape() == Shape{1, 0, 3, 1});
  CHECK_ERROR(v.read({{0, 0, 0, 0}, {1, 5, 5, 1}}, DType::f32), usage, "volume", "[1, 4, 5, 1]");
  CHECK_ERROR(v.read({{0, -1, 0, 0}, {1, 2, 2, 1}}, DType::f32), usage, "[0, -1, 0, 0]", "[1, 2, 2, 1]",
              "[1, 4, 5, 1]");
  CHECK_ERROR(v.read({{0, 0, 0, 0}, {1, -2, 2, 1}}, DType::f32), usage, "volume", "[1, -2, 2, 1]");
  CHECK_ERROR(v.read(one, DType::u8), usage, "uint16", "i32", "u8", "f32");
  CHECK_ERROR(Volume().read(one, View{}), usage, "volume");
}

TEST_CASE("a volume larger than memory is read where it is asked for") {
  const test::Temporary folder;
  const std::string path = folder / "v.npy", front = npy_front({1024, 65536, 65536}, "<u2");
  spill(path, front);
  const std::uintmax_t bytes = front.size() + (std::uintmax_t{2} << 42);
  std::error_code wrong;
  fs::resize_file(path, bytes, wrong);  // of which the disk holds the header
  if (wrong) {
    SUCCEED("no sparse files of 8 TiB here");
    return;
  }
  const Volume v = open_volume(path);
  const Box end{{1023, 65530, 65533, 0}, {1, 6, 3, 1}};
  CHECK(v.read(end, DType::i32).to_vector() == std::vector<double>(18, 0));
  fs::resize_file(path, bytes - 1);
  CHECK_ERROR(v.read(end, DType::i32), file, "8796093022336", "8796093022335");
  CHECK_ERROR(open_volume(path), data, "uint16", "[1024, 65536, 65536]", "8796093022208");
}

TEST_CASE("a JSON file beside raw numbers says all, or one line what it lacks") {
  const test::Temporary folder;
  const std::string path = folder / "v.raw";
  spill(path, std::string("xy\1\2\3\4", 6));
  const auto said = [&](const std::string& json) -> std::string {
    spill(path + ".json", json);
    try {
      const Volume v = open_volume(path);
      std::string all;
      for (const double x : v.read(v.box(), DType::f64).to_vector()) all += std::to_string(std::llround(x)) + " ";
      return all;
    } catch (const Error& e) {
      const std::string what = e.what();
      CHECK(what.starts_with("volume: " + path));
      CHECK(what.find('\n') == what.npos);
      return what;
    }
  };
  CHECK(said(R"({"shape": [1, 2], "dtype": "uint16", "byte_order": "big", "offset": 2})") == "258 772 ");
  CHECK(
      said(
          R"({"shape": [2, 1], "dtype": "uint16", "byte_order": "little", "offset": 2, "voxel": "1 um", "order": "C"})") ==
      "513 1027 ");
  CHECK(said(R"({"shape": [1, 2, 3], "dtype": "uint8"})") == "120 121 1 2 3 4 ");
  const std::pair<const char*, const char*> wrong[] = {
      {"", "no JSON object"},
      {"[1]", "no JSON object"},
      {"{}", "\"shape\" is no list"},
      {R"({"shape": "7"})", "\"shape\" is no list"},
      {R"({"shape": [1,1,1,1,1]})", "\"shape\" is no list"},
      {R"({"shape": [1.5,2], "dtype": "uint8"})", "an extent of \"shape\" is no 64-bit number"},
      {R"({"shape": [99999999999999999999,2], "dtype": "uint8"})", "an extent of \"shape\" is no 64-bit number"},
      {R"({"shape": [18446744073709551614,2], "dtype": "uint8"})", "impossible shape [-2, 2]"},
      {R"({"shape": [4611686018427387904,4], "dtype": "uint8"})", "impossible shape"},
      {R"({"shape": [6], "dtype": "uint8"})", "the array is [6]"},
      {R"({"shape": [0, 6], "dtype": "uint8"})", "impossible shape"},
      {R"({"shape": [1, 6]})", "\"dtype\" is no text"},
      {R"({"shape": [1, 6], "dtype": "u1"})", "\"dtype\" is \"u1\"; uint8,"},
      {R"({"shape": [1, 2], "dtype": "uint16"})", "\"byte_order\" must be"},
      {R"({"shape": [1, 2], "dtype": "uint16", "byte_order": "big", "order": "F"})", "\"order\" is"},
      {R"({"shape": [1, 2], "dtype": "uint16", "byte_order": "big", "chunks": [1, 1]})", "\"chunks\" is"},
      {R"({"shape": [1, 2], "dtype": "uint16", "byte_order": "<"})", "\"byte_order\" must be"},
      {R"({"shape": [1, 6], "dtype": "uint8", "offset": -1})", "\"offset\" is no number"},
      {R"({"shape": [1, 6], "dtype": "uint8", "offset": 7})", "the file holds 0"},
      {R"({"shape": [1, 5], "dtype": "uint8"})", "are 5 bytes, the file holds 6"},
      {R"({"shape": [1, 7], "dtype": "uint8"})", "are 7 bytes, the file holds 6"}};
  for (const auto& [json, message] : wrong) {
    INFO(json);
    CHECK_THAT(said(json), contains(message));
  }
  spill(path + ".json", R"({"shape": [1, 6], "dtype": "int8"})");
  CHECK(open_volume(path + ".json").array() == Shape{1, 6});
}

TEST_CASE("a fill value may be the largest of 64 bits") {
  const test::Temporary folder;
  spill(folder / ".zarray", R"({"zarr_format": 2, "shape": [2, 3], "chunks": [2, 2], "dtype": "<u8", "order": "C",
                                "compressor": null, "filters": null, "fill_value": 18446744073709551615})");
  const Volume v = open_volume(folder.path());
  CHECK(v.read(v.box(), DType::f64).to_vector() == std::vector<double>(6, 0x1p64));
  CHECK_ERROR(v.read(v.box(), DType::i64), data, 2, 63);
}

TEST_CASE("chunk files say how they are named where .zarray does not, and must be as it says") {
  const test::Temporary folder;
  const auto array = [&](const std::string& more) {
    spill(folder / ".zarray", R"({"zarr_format": 2, "shape": [2, 3], "chunks": [2, 2], "dtype": "|u1", "order": "C",
                                  "compressor": null, "filters": null, "fill_value": 7)" +
                                  more + "}");
    const Volume v = open_volume(folder.path());
    return v.read(v.box(), DType::f64).to_vector();
  };
  const std::string dot = R"(, "dimension_separator": ".")", slash = R"(, "dimension_separator": "/")";
  const std::vector<double> none(6, 7), both{1, 2, 5, 3, 4, 6};
  for (const std::string& said : {std::string(), dot, slash}) CHECK(array(said) == none);  // no chunk is there
  fs::create_directories(folder / "0");
  spill(folder / "0/0", "\1\2\3\4");
  spill(folder / "0/1", std::string("\5\0\6\0", 4));
  CHECK(array("") == both);
  CHECK(array(slash) == both);
  CHECK_ERROR(array(dot), data, "0/0", folder.path());
  spill(folder / "0.0", "\1\2\3\4");
  spill(folder / "0.1", std::string("\5\0\6\0", 4));
  CHECK_ERROR(array(""), data, "dimension_separator");
  CHECK((array(dot) == both && array(slash) == both));
  fs::remove_all(folder / "0");
  CHECK(array("") == both);
  CHECK_ERROR(array(slash), data, "0.0");
  fs::remove(folder / "0.1");  // a hole among others
  CHECK(array(dot) == std::vector<double>{1, 2, 7, 3, 4, 7});
  fs::rename(folder / "0.0", folder / "0.0.0");
  CHECK_ERROR(array(""), data, "0.0.0", 2);
}

TEST_CASE("integers of 8 and 16 bits have a scale of their own, wider ones need one") {
  const auto std_of = [](const char* type, double std) { return voxel_scale(*find_voxel_type(type), 0, std).std; };
  CHECK((std_of("uint8", 0) == 255 && std_of("int16", 0) == 32767 && std_of("float32", 0) == 1 &&
         std_of("bool", 0) == 1));
  for (const char* type : {"int32", "uint32", "int64", "uint64"}) {
    CHECK(std_of(type, 32767) == 32767);
    CHECK_ERROR(std_of(type, 0), usage, type, "std");
  }
}

TEST_CASE("a volume's fingerprint is of all its files") {
  const test::Temporary folder;
  const auto print = [](const std::string& path) {
    Fingerprint all;
    add_volume(all, path);
    return all.text();
  };
  std::set<std::string> seen;
  spill(folder / "v.raw", "123456");
  spill(folder / "v.raw.json", R"({"shape": [1, 6], "dtype": "int8"})");
  CHECK(seen.insert(print(folder / "v.raw")).second);
  CHECK_FALSE(seen.insert(print(folder / "v.raw.json")).second);
  spill(folder / "v.raw.json", R"({"shape": [6, 1], "dtype": "int8"})");
  CHECK(seen.insert(print(folder / "v.raw")).second);
  fs::create_directories(folder / "z/0/1");
  spill(folder / "z/.zarray", "{}");
  spill(folder / "z/0/1/2", "12");
  const std::string chunked = print(folder / "z");
  CHECK(chunked.starts_with("2 files of 4 bytes"));
  seen.insert(chunked);
  spill(folder / "z/0/1/2", "13");
  CHECK(seen.insert(print(folder / "z")).second);
  fs::rename(folder / "z/0/1/2", folder / "z/0/1/3");
  CHECK(seen.insert(print(folder / "z")).second);
  spill(folder / "z/.zarray", "[]");
  CHECK(seen.insert(print(folder / "z")).second);
  // Of a large file a part is read; its size counts in any case.
  for (const std::size_t size : {(4u << 20) - 1, 4u << 20, 5u << 20, (5u << 20) + 1}) {
    spill(folder / "large", std::string(size, 'x'));
    CHECK(seen.insert(print(folder / "large")).second);
  }
}

TEST_CASE("a volume for which the disk has no room leaves nothing there") {
  const test::Temporary folder;
  const Index side = static_cast<Index>(std::cbrt(static_cast<double>(fs::space(folder.path()).available) / 4)) + 4096;
  for (const char* name : {"v.npy", "v.raw"}) {
    CHECK_ERROR(VolumeWriter(folder / name, {.array = {side, side, side}}), file, name);
    CHECK(fs::is_empty(folder.path()));
  }
}

TEST_CASE("a path that is no volume") {
  const test::Temporary folder;
  CHECK_ERROR(open_volume(folder / "none"), file, "none");
  CHECK_ERROR(open_volume(folder.path()), data, "volume");
  spill(folder / ".zgroup", "{}");
  CHECK_ERROR(open_volume(folder.path()), data, "volume");
  spill(folder / "zarr.json", "{}");
  CHECK_ERROR(open_volume(folder.path()), data, "volume", "v3");
  const std::pair<std::string, const char*> wrong[] = {
      {"", "neither .npy, TIFF nor a Zarr v2 folder"},
      {"nonsense", "neither .npy, TIFF nor a Zarr v2 folder"},
      {"\x89HDF\r\n\x1a\n", "HDF5 is not read"},
      {npy_front({2, 2}, "<c8") + std::string(32, ' '), "elements of type \"<c8\"; uint8,"},
      {npy_front({2, 2}, "|O") + std::string(32, ' '), "elements of type \"|O\"; uint8,"},
      {npy_front({2, 2}, "<f4") + std::string(15, ' '), "15"},
      {npy_front({2, 2}, "<f4") + std::string(17, ' '), "17"},
      {npy_front({2, -2}, "<f4"), "[2, -2]"},
      {npy_front({Index{1} << 62, 4}, "<f4"), "impossible shape"},
      {npy_front({16}, "|u1") + std::string(16, ' '), "[16]"},
      {npy_front({2, 2}, "<f4").substr(0, 40), "cut off in its header"}};
  for (const auto& [bytes, message] : wrong) {
    INFO(message);
    spill(folder / "v.npy", bytes);
    CHECK_ERROR(open_volume(folder / "v.npy"), data, message);
  }
}

}  // namespace test_volumes
