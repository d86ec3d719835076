#include "framework/io/safetensors.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>

#include "framework/io/weights.h"
#include "framework/layers/layers.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"
#include "tests/support/temporary.h"

namespace test_safetensors {

using namespace trireme;
using test::contains;

namespace {

/// Length, text, n bytes of data.
std::string file_of(const std::string& text, std::size_t n) {
  std::string file(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(text.size() >> (8 * i) & 255);
  return file + text + std::string(n, '\0');
}

std::vector<std::byte> encode_safetensors(const std::vector<NamedTensor>& tensors,
                                          const std::map<std::string, std::string>& metadata) {
  std::vector<std::byte> bytes;
  SafetensorsWriter(tensors, metadata).write([&](auto part) { bytes.insert(bytes.end(), part.begin(), part.end()); });
  return bytes;
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), file.size());
}

struct Case {
  std::string name, file;
  const char* error;      ///< part of the message; null: accepted
  bool stricter = false;  ///< refused by us, by the format's description, though the reference lets it pass
};

std::string one(const std::string& shape, const std::string& offsets, const std::string& type = "F32") {
  return "{\"t\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}";
}

std::vector<Case> cases() {
  const std::string good = one("[2,2]", "[0,16]"), u8 = "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
  std::string attack = "{";
  for (int i = 0; i < 10; ++i)
    attack +=
        fmt::format("{}\"weight_{}\":{{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}", i ? "," : "", i);
  attack += "}";
  std::string deep(100'000, '[');
  return {
      {"empty_object", file_of("{}", 0), nullptr},
      {"padding", file_of("{} \t\r\n   ", 0), nullptr},
      {"empty_metadata", file_of("{\"__metadata__\":{}}", 0), nullptr},
      {"plain", file_of(good, 16), nullptr},
      {"scalar", file_of(one("[]", "[0,4]"), 4), nullptr},
      {"zero_extent", file_of(one("[2,0]", "[0,0]"), 0), nullptr},
      {"misaligned", file_of("{\"b\":{\"shape\":[1],\"data_offsets\":[1,5],\"dtype\":\"F32\"},\"a\":" + u8 + "}", 5),
       nullptr},
      {"types",
       file_of(
           "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]},\"b\":{\"dtype\":\"U64\",\"shape\":[1],"
           "\"data_offsets\":[1,9]},\"c\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[9,12]}}",
           12),
       nullptr},
      {"nothing", "", "header too small"},
      {"seven_bytes", "1234567", "header too small"},
      {"length_all_ones", std::string(8, '\xff'), "header too large"},
      {"length_above_limit", std::string("\x01\xe1\xf5\x05\0\0\0\0", 8), "header too large: 100000001"},
      {"length_beyond_file", file_of("{}", 0).substr(0, 9), "invalid header length"},
      {"not_utf8", file_of("{\"\xff\":1}", 0), "not UTF-8"},
      {"brace_only", file_of("{", 0), "not JSON"},
      {"no_text", file_of("", 0), "invalid header start"},
      {"array", file_of("[]", 0), "invalid header start"},
      {"leading_space", file_of(" {}", 0), "invalid header start", true},
      {"two_objects", file_of("{}{}", 0), "not JSON"},
      {"zero_byte", file_of(std::string("{}\0", 3), 0), "zero byte"},
      {"comment", file_of("{}/**/", 0), "not JSON"},
      {"deep", file_of("{\"a\":" + deep, 0), "\"a\" is an array"},
      {"deeper", file_of("{\"a\":{\"shape\":" + deep, 0), "an array"},
      {"unknown_type", file_of(one("[2,2]", "[0,16]", "F31"), 16), "unknown dtype \"F31\""},
      {"negative_extent", file_of(one("[-2,2]", "[0,16]"), 16), "negative"},
      {"float_extent", file_of(one("[2.0,2]", "[0,16]"), 16), "no 64-bit integer"},
      {"huge_extent", file_of(one("[2,184467440737095516160]", "[0,16]"), 16), "no 64-bit integer"},
      {"string_extent", file_of(one("[\"2\",2]", "[0,16]"), 16), "a string"},
      {"offset_hole", file_of(one("[2,2]", "[4,20]"), 20), "invalid offset for tensor \"t\""},
      {"offset_reversed", file_of(one("[2,2]", "[0,-16]"), 16), "negative"},
      {"end_before_begin",
       file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
               "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}",
               4),
       "invalid offset"},
      {"ten_tensors_on_one_range", file_of(attack, 16), "invalid offset for tensor \"weight_"},
      {"overlap",
       file_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],"
               "\"data_offsets\":[3,7]}}",
               7),
       "invalid offset for tensor \"b\""},
      {"three_offsets", file_of(one("[2,2]", "[0,16,16]"), 16), "two numbers"},
      {"one_offset", file_of(one("[2,2]", "[0]"), 16), "two numbers"},
      {"too_few_bytes_for_shape", file_of(one("[2,2]", "[0,4]"), 4), "make 16 bytes, its offsets 4"},
      {"shape_overflow", file_of(one("[2,18446744073709551614]", "[0,16]"), 16), "overflows"},
      {"bytes_overflow", file_of(one("[2,9223372036854775807]", "[0,16]"), 16), "overflows"},
      {"polyglot_tail", file_of(good, 16) + "#!/bin/sh", "the file holds 25"},
      {"truncated", file_of(good, 14), "incomplete buffer"},
      {"no_dtype", file_of("{\"t\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4), "no dtype"},
      {"no_shape", file_of("{\"t\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4), "no shape"},
      {"no_offsets", file_of("{\"t\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4), "no data_offsets"},
      {"number_for_tensor", file_of("{\"t\":1}", 0), "\"t\" is a number"},
      {"duplicate_tensor", file_of("{\"t\":" + u8 + ",\"t\":" + u8 + "}", 1), "duplicate key \"t\"", true},
      {"duplicate_field",
       file_of("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1), "duplicate key"},
      {"duplicate_metadata", file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "duplicate key"},
      {"duplicate_metadata_key", file_of("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0), "duplicate key \"a\"",
       true},
      {"metadata_number", file_of("{\"__metadata__\":{\"a\":1}}", 0), "not a string"},
      {"metadata_null", file_of("{\"__metadata__\":null}", 0), "null", true},
      {"metadata_nested", file_of("{\"__metadata__\":{\"a\":{}}}", 0), "an object"},
      {"unknown_field", file_of("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"code\":1}}", 1),
       "unknown field", true},
      {"tensor_as_array", file_of("{\"t\":[\"U8\",[1],[0,1]]}", 1), "an array", true},
      {"half_byte", file_of(one("[3]", "[0,2]", "F4"), 2), "whole byte"},
      {"name_with_newline", file_of("{\"a\\nb\":1}", 0), "\"a\\nb\" is a number"},
  };
}

Tensor random_tensor(std::mt19937_64& rng, DType type) {
  Shape shape;
  for (auto axes = rng() % 4; axes > 0; --axes) shape.push_back(static_cast<Index>(rng() % 5));
  Tensor t = Tensor::empty(shape, type);
  auto bytes = t.view();
  for (Index i = 0; i < bytes.bytes(); ++i) bytes.as<unsigned char>()[i] = static_cast<unsigned char>(rng());
  return t;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.data<char>(), b.data<char>(), static_cast<std::size_t>(a.view().bytes())) == 0;
}

/// Of which truth values are 0 or 1.
Tensor random_elements(std::mt19937_64& rng, DType t) {
  const Tensor bytes = random_tensor(rng, t == DType::boolean ? DType::u8 : t);
  return t == DType::boolean ? bytes.to(t) : bytes;
}

std::vector<NamedTensor> samples() {
  std::mt19937_64 rng(3);
  std::vector<NamedTensor> all;
  int i = 0;
  for (DType t :
       {DType::u8, DType::f32, DType::i16, DType::boolean, DType::bf16, DType::i64, DType::i8, DType::f64, DType::i32})
    for (int k = 0; k < 3; ++k)
      all.push_back({fmt::format("part.{}.\u00e9\"\\\n{}", i++, name_of(t)), random_elements(rng, t)});
  return all;
}

}  // namespace

TEST_CASE("the reference's rules: what is malformed is refused with its reason, in one line") {
  for (auto& c : cases()) {
    INFO(c.name);
    if (c.error == nullptr) {
      CHECK_NOTHROW(parse(c.file));
      continue;
    }
    try {
      parse(c.file);
      FAIL_CHECK("accepted");
    } catch (const Error& e) {
      CHECK(e.kind() == ErrorKind::data);
      CHECK_THAT(e.what(), contains(c.error));
      CHECK(std::string(e.what()).find('\n') == std::string::npos);
      CHECK(std::string(e.what()).size() < 300);
    }
  }
}

TEST_CASE("entries come in the order of their bytes, with metadata") {
  auto h =
      parse(file_of("{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[4,5]},\"__metadata__\":{\"k\":\"v\"},"
                    "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
                    5));
  REQUIRE(h.entries.size() == 2);
  CHECK(h.entries[0].name == "a");
  CHECK(h.entries[1].begin == 4);
  CHECK(h.entries[0].shape.empty());
  CHECK(h.metadata == std::map<std::string, std::string>{{"k", "v"}});
}

TEST_CASE("written, then read: the same bits, for every type, odd names and empty tensors") {
  test::Temporary folder;
  auto tensors = samples();
  write_safetensors(folder / "a.safetensors", tensors, {{"note", "\u65e5\u672c \"quoted\""}});
  auto file = read_safetensors(folder / "a.safetensors");
  REQUIRE(file.tensors.size() == tensors.size());
  CHECK(file.metadata.at("note") == "\u65e5\u672c \"quoted\"");
  for (auto& t : tensors) {
    REQUIRE(file.find(t.name));
    CHECK(same_bits(*file.find(t.name), t.tensor));
  }
  auto bytes = encode_safetensors(tensors, {{"note", "\u65e5\u672c \"quoted\""}});
  CHECK(test::slurp(folder / "a.safetensors") ==
        std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  CHECK(parse(test::slurp(folder / "a.safetensors")).data_offset % 8 == 0);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("a golden file, byte for byte") {
  auto bytes =
      encode_safetensors({{"b", Tensor::of(std::vector<double>{1, 2}, {2})}, {"a", Tensor::scalar(3, DType::u8)}}, {});
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::string header =
      "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_"
      "offsets\":[8,9]}}";
  header.append((8 - header.size() % 8) % 8, ' ');
  CHECK(text == file_of(header, 0) + std::string("\0\0\x80\x3f\0\0\0\x40\x03", 9));
}

TEST_CASE("every truncation and every flipped bit of a header is refused or harmless") {
  auto bytes = encode_safetensors(samples(), {});
  std::string whole(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  for (std::size_t n = 0; n < whole.size(); ++n) CHECK_THROWS_AS(parse(whole.substr(0, n)), Error);
  for (std::size_t bit = 0; bit < 8 * parse(whole).data_offset; ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    try {
      parse(damaged);
    } catch (const Error&) {}
  }
}

TEST_CASE("types that cannot be held are an error only when that tensor is loaded") {
  test::Temporary folder;
  test::spill(folder / "mask", file_of("{\"mask\":{\"dtype\":\"F8_E5M2\",\"shape\":[4],\"data_offsets\":[0,4]},"
                                       "\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
                                       "\"x\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1],\"data_offsets\":[8,9]}}",
                                       9));
  SafetensorsReader reader(folder / "mask");
  CHECK(reader.load(reader.header().entries[1]).item() == 0);
  CHECK_ERROR(reader.load(reader.header().entries[0]), data, "mask", "F8_E5M2");
  CHECK_ERROR(reader.load(reader.header().entries[2]), data, "x", 7);
  CHECK_ERROR(read_safetensors(folder / "mask"), data, "safetensors", "mask");
}

TEST_CASE("types that tensors do not have are loaded as the next wider one") {
  test::Temporary folder;
  struct Row {
    std::string type;
    std::string bytes;
    DType loaded;
    std::vector<double> values;
  };
  const std::vector<Row> rows{
      {"BOOL", std::string("\0\1", 2), DType::boolean, {0, 1}},
      {"I8", "\x80\x7f", DType::i8, {-128, 127}},
      {"I16", std::string("\0\x80\xff\x7f", 4), DType::i16, {-32768, 32767}},
      {"U16", std::string("\0\0\xff\xff", 4), DType::i32, {0, 65535}},
      {"F16", std::string("\0\x3c\0\xc0", 4), DType::f32, {1, -2}},
      {"U32", std::string("\1\0\0\0", 4) + "\xff\xff\xff\xff", DType::i64, {1, 4294967295.}},
      {"U64", std::string("\1\0\0\0\0\0\0\0", 8) + std::string("\0\0\0\0\0\0\0\x40", 8), DType::i64, {1, 0x1p62}}};
  for (const Row& row : rows) {
    INFO(row.type);
    const auto entry = [&](const std::string& bytes) {
      return file_of("{\"t\":{\"dtype\":\"" + row.type + "\",\"shape\":[2],\"data_offsets\":[0," +
                         std::to_string(bytes.size()) + "]}}",
                     0) +
             bytes;
    };
    test::spill(folder / "t", entry(row.bytes));
    const Tensor t = read_safetensors(folder / "t").at("t");
    CHECK(t.dtype() == row.loaded);
    CHECK(t.to_vector() == row.values);
    if (row.type != "U64") continue;
    test::spill(folder / "t", entry(std::string(15, '\0') + '\x80'));
    CHECK_ERROR(read_safetensors(folder / "t"), data, "t", "U64", 2, 63);
  }
}

TEST_CASE("f16 is written as F16, and comes back as f32 with the same numbers") {
  test::Temporary folder;
  const std::vector<double> values{0, -1.5, 65504, 0x1p-24, std::numeric_limits<double>::infinity()};
  write_safetensors(folder / "h", {{"h", Tensor::of(values, {5}, DType::f16)}, {"b", Tensor::zeros({2}, DType::bf16)}});
  SafetensorsReader reader(folder / "h");
  REQUIRE(reader.header().entries.size() == 2);
  CHECK(reader.header().entries[0].dtype == "BF16");  // the reference's order
  CHECK(reader.header().entries[1].dtype == "F16");
  const Tensor h = reader.load(reader.header().entries[1]);
  CHECK(h.dtype() == DType::f32);
  CHECK(h.to_vector() == values);
}

TEST_CASE("what cannot be written is refused and leaves the old file") {
  test::Temporary folder;
  std::string path = folder / "w.safetensors";
  write_safetensors(path, {{"a", Tensor::scalar(1)}});
  const std::string before = test::slurp(path);
  CHECK_ERROR(write_safetensors(path, {{"a", Tensor::scalar(1)}, {"a", Tensor::scalar(2)}}), usage, "safetensors", "a");
  CHECK_ERROR(write_safetensors(path, {{"a", Tensor()}}), usage, "safetensors", "a");
  CHECK_ERROR(write_safetensors(path, {{"\xff", Tensor::scalar(1)}}), usage, "safetensors", 8);
  CHECK_ERROR(write_safetensors(folder / "no/such/dir", {}), file, "file", 16);
  CHECK_ERROR(read_safetensors(folder.path()), file, folder.path());
  CHECK_ERROR(read_safetensors(folder / "absent"), file, "absent");
  CHECK(test::slurp(path) == before);
}

TEST_CASE("the reference implementation reads our files, writes the same bytes, and refuses what we refuse") {
  test::Temporary folder;
  auto tensors = samples();
  write_safetensors(folder / "ours.safetensors", tensors, {{"format", "pt"}});
  auto all = cases();
  for (auto& c : all) test::spill(folder / ("case_" + c.name), c.file);
  const char* python = std::getenv("TRIREME_ORACLE_PYTHON");
  std::string command = std::string(python ? python : "python3") + " " +
                        (test::root() / "tests/oracles/safetensors_oracle.py").string() + " " + folder.path();
  int status = std::system(command.c_str());
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
    return test::note_missing("safetensors_oracle.py needs Python packages: tools/setup --oracles installs them");
  }
  REQUIRE(status == 0);
  CHECK(test::slurp(folder / "ours.safetensors") == test::slurp(folder / "theirs.safetensors"));

  auto made = read_safetensors(folder / "made.safetensors");
  CHECK(made.metadata.at("by") == "the reference");
  CHECK(made.find("count")->item() == 7);
  CHECK(made.find("none")->shape() == Shape{0, 3});
  CHECK(made.find("conv")->shape() == Shape{4, 3, 2, 2});
  std::string half = test::slurp(folder / "made.half");
  REQUIRE(half.size() == 65536 * 4);
  auto expected = reinterpret_cast<const float*>(half.data());
  auto got = made.find("half")->view().span<float>();
  int wrong = 0;
  for (std::size_t i = 0; i < 65536; ++i)
    wrong += std::isnan(expected[i]) ? !std::isnan(got[i]) : std::memcmp(&expected[i], &got[i], 4) != 0;
  CHECK(wrong == 0);

  std::istringstream lines(test::slurp(folder / "verdicts"));
  std::map<std::string, std::string> verdicts;
  for (std::string name, verdict; lines >> name >> verdict;) verdicts[name] = verdict;
  CHECK(verdicts.size() == all.size());
  for (auto& c : all) {
    INFO(c.name);
    CHECK(verdicts[c.name] == (c.error == nullptr || c.stricter ? "yes" : "no"));
  }
}

TEST_CASE(
    "weights cross the boundary in PyTorch's layout and come back; what does not fit is listed and changes nothing") {
  Sequential model{Conv2d(3, 2, 3), BatchNorm(2), Linear(2, 4)};
  Parameters p(model);
  for (auto& e : p.entries())
    for (Index i = 0; i < e.tensor.numel(); ++i) e.tensor.data<float>()[i] = static_cast<float>(i);
  auto exported = export_weights(p);
  REQUIRE(exported.size() == 8);
  const Tensor filter = exported[0].tensor;  // [2, 3, 3, 3]: the shape cannot tell the layouts apart
  CHECK(exported[0].name == "0.weight");
  CHECK(filter.shape() == Shape{2, 3, 3, 3});
  for (Index o = 0; o < 2; ++o)
    for (Index s = 0; s < 9; ++s)
      for (Index i = 0; i < 3; ++i)
        CHECK(filter.data<float>()[(o * 3 + i) * 9 + s] == static_cast<float>((o * 9 + s) * 3 + i));

  const auto before = p.values().to_vector();
  SafetensorsFile file;
  for (auto& t : exported) file.tensors.push_back({"module.model." + t.name, t.tensor.to(DType::f64)});
  file.tensors.push_back({"module.model.1.num_batches_tracked", Tensor::scalar(5, DType::i64)});
  for (auto& e : p.entries()) std::fill_n(e.tensor.data<float>(), e.tensor.numel(), -1.0f);
  import_weights(p, file, "a file");
  CHECK(p.values().to_vector() == before);

  SafetensorsFile other;
  other.tensors = {{"0.weight", Tensor::zeros({2, 3, 5, 5})}, {"2.bias", Tensor::zeros({4}, DType::i64)}};
  for (int i = 0; i < 20; ++i) other.tensors.push_back({fmt::format("extra.{}", i), Tensor::zeros({1})});
  try {
    import_weights(p, other, "b.safetensors");
    FAIL_CHECK("accepted");
  } catch (const Error& e) {
    CHECK_THAT(test::told(e), test::mentions("data", "b.safetensors", 6, "0.bias", "1.weight"));
    CHECK_THAT(e.what(), test::mentions(20, "extra.0", 12));
    CHECK_THAT(e.what(), test::mentions("0.weight", "[2, 3, 5, 5]", "[2, 3, 3, 3]", "2.bias", "i64"));
  }
  CHECK(p.values().to_vector() == before);
  file.tensors.push_back({"0.weight", exported[0].tensor});
  CHECK_ERROR(import_weights(p, file, "c"), data, "c", "0.weight");

  // Ten classes for four: the last layer keeps what it holds, all else is as strict as ever.
  file.tensors.pop_back();
  Sequential wider{Conv2d(3, 2, 3), BatchNorm(2), Linear(2, 10)};
  Parameters q(wider);
  const auto head = q.find("2.weight")->tensor.to_vector();
  CHECK(import_but_head(q, file, "a file") == std::vector<std::string>{"2.weight", "2.bias"});
  CHECK(q.find("2.weight")->tensor.to_vector() == head);
  CHECK(q.find("0.weight")->tensor.to_vector() == p.find("0.weight")->tensor.to_vector());
  CHECK(import_but_head(p, file, "a file").empty());
  // A transposed weight of the last layer is no layer of other classes.
  SafetensorsFile turned = file;
  for (NamedTensor& t : turned.tensors)
    if (t.name.ends_with("2.weight")) t.tensor = Tensor::zeros({2, 4});
  CHECK_ERROR(import_but_head(p, turned, "turned"), data, "2.weight", "[2, 4]", "[4, 2]");
  CHECK_ERROR(import_but_head(q, other, "d"), data, "0.weight", "[2, 3, 5, 5]", "[2, 3, 3, 3]");

  // Of a model that is one layer all names are of the head; with others within it, only its own are.
  struct Nested {
    Tensor scale = Init::constant(1).make({3});
    Linear within{2, 2};
    Tensor shift = Init::constant(0).make({3});
    void visit(const StateVisitor& v) {
      v("scale", scale, StateKind::weight);
      v("within", within);
      v("shift", shift, StateKind::no_decay);
    }
    Tensor operator()(const Tensor& x) const { return x; }
  };
  Module nested = Nested{};
  Parameters r(nested);
  SafetensorsFile wide;
  wide.tensors = {{"scale", Tensor::full({3}, 4)},
                  {"within.weight", Tensor::full({2, 2}, 5)},
                  {"within.bias", Tensor::full({2}, 6)},
                  {"shift", Tensor::full({7}, 7)}};
  CHECK(import_but_head(r, wide, "e") == std::vector<std::string>{"shift"});
  CHECK(r.find("within.bias")->tensor.to_vector() == std::vector<double>{6, 6});
  CHECK(r.find("scale")->tensor.to_vector() == std::vector<double>{4, 4, 4});
  wide.tensors[1].tensor = Tensor::full({2, 9}, 5);
  CHECK_ERROR(import_but_head(r, wide, "f"), data, "within.weight", "[2, 9]");

  const auto counted = export_weights(p, 7);
  REQUIRE(counted.size() == 9);
  CHECK(counted.back().name == "1.num_batches_tracked");
  CHECK(counted.back().tensor.shape() == Shape{});
  CHECK(counted.back().tensor.item() == 7);

  const FlatBuffer flat({{p.size()}}, 0, DType::f32);
  for (Index i = 0; i < flat.numel(); ++i) flat.blocks()[0].data<float>()[i] = static_cast<float>(i);
  file.tensors = export_tensors(stored_state(p, "momentum", flat));
  CHECK(file.tensors[0].name == "momentum/0.weight");
  const FlatBuffer back({{p.size()}}, 0, DType::f32);
  Import(stored_state(p, "momentum", back), file, "a file").apply();
  for (auto& e : p.entries())
    CHECK(back.rows(e.slice.begin, e.slice.end).to_vector() == flat.rows(e.slice.begin, e.slice.end).to_vector());
}

}  // namespace test_safetensors
