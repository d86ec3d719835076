// A driver without a device: cuDNN compiles kernels for a GPU that is only described, but wants the driver's library
// (libcuda.so.1) there and its calls answered. cuInit says that there is no device, so that nothing goes further.
extern "C" {

int cuInit(unsigned) { return 100; }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = 1, 0; }
int cuGetErrorName(int, const char** text) { return *text = "", 0; }
int cuGetErrorString(int, const char** text) { return *text = "", 0; }
int cuKernelGetAttribute(int* value, int, void*, int) { return *value = 0, 0; }
int cuOccupancyMaxPotentialClusterSize(int* size, void*, const void*) { return *size = 8, 0; }
// Handles: something that is not null.
int cuLibraryLoadData(void** library, ...) { return *library = library, 0; }
int cuLibraryGetKernel(void** kernel, ...) { return *kernel = kernel, 0; }

int cuCtxGetDevice(...) { return 0; }
int cuCtxPopCurrent(...) { return 0; }
int cuCtxPushCurrent(...) { return 0; }
int cuDeviceGetAttribute(...) { return 0; }
int cuDevicePrimaryCtxRelease(...) { return 0; }
int cuDevicePrimaryCtxReset(...) { return 0; }
int cuDevicePrimaryCtxRetain(...) { return 0; }
int cuFuncGetAttribute(...) { return 0; }
int cuFuncSetAttribute(...) { return 0; }
int cuKernelSetAttribute(...) { return 0; }
int cuLaunchCooperativeKernel(...) { return 0; }
int cuLaunchKernel(...) { return 0; }
int cuLaunchKernelEx(...) { return 0; }
int cuLibraryLoadFromFile(...) { return 0; }
int cuLibraryUnload(...) { return 0; }
int cuLinkAddData(...) { return 0; }
int cuLinkAddData_v2(...) { return 0; }
int cuLinkAddFile_v2(...) { return 0; }
int cuLinkComplete(...) { return 0; }
int cuLinkCreate(...) { return 0; }
int cuLinkCreate_v2(...) { return 0; }
int cuLinkDestroy(...) { return 0; }
int cuMemcpyDtoH_v2(...) { return 0; }
int cuModuleGetFunction(...) { return 0; }
int cuModuleGetGlobal_v2(...) { return 0; }
int cuModuleLoadData(...) { return 0; }
int cuModuleLoadDataEx(...) { return 0; }
int cuModuleLoadFatBinary(...) { return 0; }
int cuModuleUnload(...) { return 0; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(...) { return 0; }
int cuStreamGetCtx(...) { return 0; }
int cuStreamSynchronize(...) { return 0; }
int cuTensorMapEncodeTiled(...) { return 0; }
int cuDeviceGet(...) { return 0; }
int cuCtxGetLimit(...) { return 0; }
int cuCtxGetCurrent(...) { return 0; }

}  // extern "C"
