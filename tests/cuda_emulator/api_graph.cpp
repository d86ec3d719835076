// The runtime API: graphs, which are what a stream was given while it was captured.
#include "emulator/api.h"
#include "emulator/device_access.h"
#include "finish.h"
#include "stream.h"

using namespace emulator;

struct CUgraph_st {
  int device;
  std::vector<std::function<void()>> noted;
};
struct CUgraphExec_st {
  int device;
  std::shared_ptr<const std::vector<std::function<void()>>> noted;  // a launch may outlive the handle
};

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return finish(stream == nullptr ? cudaErrorStreamCaptureUnsupported : stream->begin_capture());
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  std::vector<std::function<void()>> noted;
  if (const cudaError_t status = stream_of(stream).end_capture(noted); status != cudaSuccess) return finish(status);
  *graph = new CUgraph_st{device_of(stream), std::move(noted)};
  return finish(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  *exec = new CUgraphExec_st{graph->device, std::make_shared<const std::vector<std::function<void()>>>(graph->noted)};
  return finish(cudaSuccess);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (device_of(stream) != exec->device) return finish(cudaErrorInvalidValue);
  enqueue(stream, [noted = exec->noted] {
    for (const auto& work : *noted) work();
  });
  return finish(cudaSuccess);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return finish(cudaSuccess);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  delete exec;
  return finish(cudaSuccess);
}
