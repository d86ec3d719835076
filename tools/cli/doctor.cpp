#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "framework/io/json.h"
#include "parallel/comm/world/compare.h"
#include "parallel/comm/world/job_monitor.h"
#include "tools/cli/commands.h"
#include "tools/doctor/doctor.h"

namespace trireme {

int doctor_command(int argc, char** argv, const DoctorOptions& options) {
  if (!options.live.empty()) {
    const std::string file = options.live + "/live.json";
    check(std::filesystem::exists(file), ErrorKind::file, "doctor",
          "{} does not train now: {} is missing; give the directory of a running training", options.live, file);
    bool held = false;
    fmt::print("{}", live_verdict(file, held));
    return held ? 1 : 0;
  }
  return World::run(argc, argv, 1, [&](World& world) {
    std::vector<Finding> own;
    if (world.local_rank() == 0) {  // one rank per host
      own = check_host();
      for (Finding& f : check_disk(options.directory)) own.push_back(std::move(f));
    }
    const auto texts = gather_texts(world.comm(), to_json(own));
    std::vector<Finding> all = check_job(world);
    if (!world.main()) return 0;
    for (std::size_t r = 0; r < texts.size(); ++r)
      for (const Json& f : parse_json(texts[r])) {
        const auto verdict = f["verdict"] == "ok"        ? Verdict::ok
                             : f["verdict"] == "warning" ? Verdict::warning
                                                         : Verdict::fault;
        if (r == 0 || verdict != Verdict::ok)
          all.push_back({f["name"], verdict, f["what"], f["remedy"], static_cast<int>(r)});
      }
    fmt::print("{}", options.json ? to_json(all) : to_text(all));
    return std::ranges::count(all, Verdict::fault, &Finding::verdict) > 0 ? 1 : 0;
  });
}

}  // namespace trireme
