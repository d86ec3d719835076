// Parameter servers from outside of the tree. Workers send gradients and receive weights. A server sums the gradients
// of all workers, updates and answers; with every=1 it takes one gradient at a time, as they come. With staleness=S no
// worker is more than S steps ahead.
#include <trireme/parallel/runtime/plugin.h>
#include <trireme/trireme.h>

using namespace trireme;

namespace {

struct Servers {
  int servers = 1, every = 0, staleness = -1;

  Action on_channel(ActionKind kind, OperandKind payload, const char* channel, Slice slice, int root = -1) const {
    Action a{.kind = kind, .slice = slice, .payload = payload};
    a.peer.axis = "data";
    a.peer.root = root;
    a.peer.channel = channel;
    return a;
  }
  Program server(Slice slice, int at) const {
    Program server{.name = "server " + std::to_string(at)};
    server.where = {{"data", at, at + 1}};
    server.phases = {{"update", {.channel = "gradients", .count = every}}};
    server.actions = {on_channel(ActionKind::recv, OperandKind::gradients, "gradients", slice),
                      {.kind = ActionKind::update, .slice = slice}};
    Action answer = on_channel(ActionKind::send, OperandKind::weights, "weights", slice);
    if (staleness >= 0)
      answer.phase = add_phase(server, "answer", {.channel = "ready", .guard = "gradients", .staleness = staleness});
    server.actions.push_back(answer);
    Action report = on_channel(ActionKind::recv, OperandKind::loss, "loss", {});
    report.phase = add_phase(server, "report", {.channel = "loss", .count = 0});
    server.phases.back().last = true;
    server.actions.push_back(report);
    return server;
  }
  Plan operator()(Plan plan) const {
    const int workers = plan.size("data") - servers;
    check(workers > 0, "servers", "{} servers leave none of {} ranks to train", servers, plan.size("data"));
    Program worker = plan.programs.at(0);
    worker.actions.pop_back();  // the update
    worker.name = "worker";
    worker.where = {{"data", 0, workers}};
    const auto last = static_cast<ActionId>(worker.actions.size()) - 1;
    plan.programs.resize(1);
    const std::pair<const char*, OperandKind> sent[] = {{"gradients", OperandKind::gradients},
                                                        {"ready", OperandKind::loss},
                                                        {"loss", OperandKind::loss},
                                                        {"weights", OperandKind::weights}};
    for (const auto& [channel, payload] : sent)
      for (int s = 0; s < servers; ++s) {
        const bool of_slice = payload != OperandKind::loss, receives = payload == OperandKind::weights;
        const Slice slice{plan.parameters * s / servers, plan.parameters * (s + 1) / servers};
        if (*channel == 'r' && staleness < 0) continue;
        Action a = on_channel(receives ? ActionKind::recv : ActionKind::send, payload, channel,
                              of_slice ? slice : Slice{}, workers + s);
        a.stream = Stream::comm;
        a.after = {last};
        worker.actions.push_back(a);
        if (receives) plan.programs.push_back(server(slice, workers + s));
      }
    plan.programs[0] = worker;
    const std::int64_t ahead = staleness < 0 ? Consistency::unbounded : staleness;
    if (every > 0) plan.consistency["data"] = {Consistency::Kind::stale, ahead};
    return plan;
  }
};

}  // namespace

extern "C" void trireme_plugin(std::vector<StrategyRow>& rows) {
  rows.push_back({"servers",
                  [](StrategyOptions& given) {
                    Servers o;
                    given.read({{.name = "servers", .value = &o.servers, .least = 1},
                                {.name = "every", .value = &o.every, .least = 0},
                                {.name = "staleness", .value = &o.staleness, .least = -1}});
                    Strategy s("servers", o.every == 0 ? Claim::exact : Claim::statistical, o,
                               fmt::format("servers={}, every={}, staleness={}", o.servers, o.every, o.staleness));
                    s.norm_scope = NormScope::local;
                    return s;
                  },
                  "data"});
}
