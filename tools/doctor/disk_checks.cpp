#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include "framework/io/file.h"
#include "kernels/core/error.h"
#include "tools/doctor/doctor.h"

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

/// The kind of file system (statfs(2), f_type).
std::string kind_of(const std::string& directory) {
  struct statfs all {};
  if (::statfs(directory.c_str(), &all) != 0) return "unknown";
  constexpr std::pair<unsigned long, const char*> kinds[] = {
      {0xEF53, "ext4"},       {0x58465342, "XFS"},  {0x9123683E, "btrfs"},  {0x794C7630, "overlay"},
      {0x01021994, "tmpfs"},  {0x6969, "NFS"},      {0xFF534D42, "CIFS"},   {0xFE534D42, "SMB"},
      {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"}, {0x00C36400, "Ceph"},
      {0x65735546, "FUSE"},   {0x01021997, "9p"},   {0x2FC12FC1, "ZFS"}};
  for (const auto& [number, name] : kinds)
    if (number == static_cast<unsigned long>(all.f_type & 0xFFFFFFFF)) return name;
  return fmt::format("{:#x}", static_cast<unsigned long>(all.f_type & 0xFFFFFFFF));
}

/// The directory, or its nearest existing parent: doctor creates no directory.
std::string existing(const std::string& directory) {
  std::error_code none;
  std::filesystem::path path = directory;
  while (!std::filesystem::exists(path, none) && path.has_parent_path() && path != path.root_path())
    path = path.parent_path();
  return std::filesystem::exists(path, none) ? path.string() : ".";
}

}  // namespace

std::vector<Finding> check_disk(const std::string& given) {
  const std::string directory = existing(given);
  constexpr std::size_t piece = 1 << 20, pieces = 64;
  std::vector<Finding> all;
  const std::string file = temporary_name(directory + "/doctor");
  const auto fault = [&](const std::string& what, const std::string& remedy) {
    all.push_back({"disk", Verdict::fault, what, remedy});
  };
  try {
    check_writable(directory, 2 * piece * pieces);
  } catch (const Error& e) {
    fault(e.what(), "use another --run.dir, or free space");
    return all;
  }
  struct statvfs room {};
  ::statvfs(directory.c_str(), &room);
  const std::string kind = kind_of(directory);
  const double free = static_cast<double>(room.f_bavail) * static_cast<double>(room.f_frsize) / (1 << 30);
  Finding disk{"disk", Verdict::ok, fmt::format("{} is on {}, {:.1f} GiB free", directory, kind, free)};
  if (kind == "tmpfs") {
    disk.verdict = Verdict::warning;
    disk.remedy = "this is memory: runs are gone when the machine restarts";
  } else if (free < 10) {
    disk.verdict = Verdict::warning;
    disk.remedy = "a run keeps checkpoint.keep checkpoints, and needs the room of two more";
  }
  all.push_back(disk);
  try {
    const std::vector<std::byte> block(piece, std::byte{1});
    const auto begin = Clock::now();
    {
      FileWriter writer(file, piece * pieces);
      for (std::size_t i = 0; i < pieces; ++i) writer.write(block);
      writer.finish();
    }
    const double took = std::chrono::duration<double>(Clock::now() - begin).count(),
                 speed = piece * pieces / took / 1e6;
    Finding f{"disk speed", Verdict::ok, fmt::format("{:.0f} MB/s written and synced", speed)};
    if (speed < 50) {
      f.verdict = Verdict::warning;
      f.remedy = "save less often (checkpoint.minutes): a checkpoint is three to four times the model's weights";
    }
    all.push_back(f);
    const int again = ::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (again >= 0) ::close(again);
    const std::string there = file + ".2";
    rename_durably(file, there);
    std::error_code none;
    const bool moved = std::filesystem::exists(there, none) && !std::filesystem::exists(file, none);
    std::filesystem::remove(there, none);
    Finding rules{"file system", Verdict::ok, "creates files exclusively, and renames them atomically"};
    if (again >= 0 || !moved) {
      rules.verdict = Verdict::fault;
      rules.what = again >= 0 ? "creates a file that exists already (O_EXCL)" : "does not rename a file at once";
      rules.remedy = "write runs to another file system: checkpoints and locks rely on both";
    }
    all.push_back(rules);
  } catch (const Error& e) {
    std::error_code none;
    std::filesystem::remove(file, none);
    fault(e.what(), "choose another --run.dir");
  }
  return all;
}

}  // namespace trireme
