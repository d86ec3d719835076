// A model that Python trains: a shared library with a C interface for ctypes. Tensors are passed by DLPack, without a
// copy. python_bridge.py in this folder is the other side, with PyTorch and NumPy.
#include <trireme/trireme.h>

#include <exception>
#include <string>

using namespace trireme;

namespace {

struct Trained {
  Module model = Sequential{Linear(8, 16), trireme::tanh, Linear(16, 3)};
  Parameters parameters{model};
  Optimizer optimizer{parameters, Sgd{.lr = 0.1, .momentum = 0.9}};
};
thread_local std::string last_error;

/// Catches all exceptions, which must not leave a C function, and keeps the message for trireme_error().
template <class R, class F>
R guarded(R failed, F&& f) {
  try {
    return f();
  } catch (const std::exception& e) {
    last_error = e.what();
    return failed;
  }
}

}  // namespace

extern "C" {

const char* trireme_error() { return last_error.c_str(); }
void* trireme_new() {
  return guarded<void*>(nullptr, [] { return new Trained; });
}
void trireme_delete(void* trained) { delete static_cast<Trained*>(trained); }
/// The weight with this name; null: none. Python may write to it: the model uses the same memory.
DLManagedTensor* trireme_weight(void* trained, const char* name) {
  return guarded<DLManagedTensor*>(nullptr, [&] {
    const auto* entry = static_cast<Trained*>(trained)->parameters.find(name);
    check(entry != nullptr, "bridge", "there is no weight '{}'", name);
    return to_dlpack(entry->tensor);
  });
}
/// One optimizer step on x [N, 8] and labels y [N], i64. Takes ownership of both. Returns the loss; -1: error.
double trireme_step(void* trained, DLManagedTensor* x, DLManagedTensor* y) {
  return guarded(-1.0, [&] {
    auto* t = static_cast<Trained*>(trained);
    const Tensor loss = cross_entropy(t->model(from_dlpack(x)), from_dlpack(y));
    loss.backward();
    t->optimizer.step();
    return loss.item();
  });
}

}  // extern "C"
