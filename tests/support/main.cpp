// main() of every test program. A program holds the tests of a folder; started as test_GROUP,
// or with --group NAME[,NAME...] as its first words, it runs the cases of those groups' files (groups.h), narrowed by
// what else the command line asks for. A test case without an assertion fails: one that has nothing to do here says so
// by SUCCEED("why"). Exit status 77 (meson: SKIP) when all passed but something was missing, such as an oracle;
// standard error says what.
#define CATCH_CONFIG_RUNNER
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/groups.h"
#include "tests/support/catch.h"
#include "tests/support/oracle.h"

/// The path of the library under test, as the dynamic loader found it.
static std::string loaded_library() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        const std::string name = info->dlpi_name;
        if (name.find("/libtrireme.so") != name.npos) *static_cast<std::string*>(found) = name;
        return 0;
      },
      &path);
  return path;
}

/// What selects the cases of a group: for each file and each alternative that was asked for, the tag of the file (Catch
/// makes one of each file's name) and the alternative's patterns.
static std::vector<std::string> narrowed(const std::string& files, const std::vector<std::string>& asked) {
  std::vector<std::vector<std::string>> alternatives(1);
  for (const std::string& pattern : asked) {
    std::istringstream parts(pattern);
    std::string part;
    for (bool first = true; std::getline(parts, part, ','); first = false) {
      if (!first) alternatives.emplace_back();
      alternatives.back().push_back(part);
    }
  }
  std::vector<std::string> filters;
  std::istringstream names(files);
  for (std::string name; names >> name;)
    for (auto& patterns : alternatives) {
      filters.push_back((filters.empty() ? "[#" : ",[#") + name + "]");
      filters.insert(filters.end(), patterns.begin(), patterns.end());
      if (std::ranges::all_of(patterns, [](auto& p) { return p.starts_with("~"); }))
        filters.push_back("~[.]");  // hidden cases are asked for by name or tag
    }
  return filters;
}

/// The files of groups, a comma between two groups; empty: there is no such group.
static std::string files_of(const std::string& groups) {
  std::string files, name;
  for (std::istringstream names(groups); std::getline(names, name, ',');)
    for (const TestGroup& group : test_groups)
      if (name == group.name) files += group.files + std::string(" ");
  return files;
}

int main(int argc, char** argv) {
  const char* sanitized = std::getenv("TRIREME_SANITIZED");
  if (const std::string path = loaded_library(); sanitized && path != sanitized) {
    std::cerr << "the library under test is " << path << ", not " << sanitized << ", which has the sanitizers\n";
    return 1;
  }
  std::string groups = std::filesystem::path(argv[0]).filename();
  groups.erase(0, groups.starts_with("test_") ? 5 : 0);
  const bool asked = argc > 2 && argv[1] == std::string("--group");
  if (asked) {
    groups = argv[2];
    argv[2] = argv[0];
    argv += 2;
    argc -= 2;
  }
  Catch::Session session;
  if (const int wrong = session.applyCommandLine(argc, argv); wrong != 0) return wrong;
  if (const std::string files = files_of(groups); !files.empty()) {
    auto& data = session.configData();
    data.filenamesAsTags = true;
    data.testsOrTags = narrowed(files, data.testsOrTags);
  } else if (asked) {
    std::cerr << "no group of tests is named " << groups << "\n";
    return 2;
  }
  auto& warnings = session.configData().warnings;
  warnings = static_cast<Catch::WarnAbout::What>(warnings | Catch::WarnAbout::NoAssertions);
  const int failed = session.run();
  for (auto& what : trireme::test::missing()) std::cerr << "SKIPPED: " << what << "\n";
  return failed == 0 && !trireme::test::missing().empty() ? 77 : failed;
}
