// Devices and contexts: MI355X as far as a program can ask.
#include <stdio.h>
#include <string.h>

#include "driver.h"

static Context contexts[MX_MOST_DEVICES];
static __thread Context* stack[64];
static __thread int depth;

// hipDeviceAttribute_t → value; others are 0.
static const struct {
  int attribute, value;
} attributes[] = {
    {0, 1},                                 // ECC
    {3, 1}, {4, 1},                         // host memory is mapped, at the same address
    {5, 2400000},                           // kHz
    {8, 1}, {9, 1},                         // concurrent kernels, concurrent access to managed memory
    {19, 4 << 20},                          // L2
    {23, 9}, {61, 5},                       // compute capability
    {24, 1},                                // managed memory
    {26, 1024}, {27, 1024}, {28, 1024},     // block
    {29, 0x7fffffff}, {30, 65536}, {31, 65536},  // grid
    {56, 1024}, {57, 2048},                 // threads per block, per compute unit
    {58, 0x7fffffff},                       // pitch
    {59, 8192}, {60, 2000000},              // memory bus, kHz
    {63, 256},                              // compute units
    {71, 131072}, {72, 131072},             // registers per block, per compute unit
    {74, 160 << 10}, {75, 160 << 10}, {76, 160 << 10},  // LDS
    {78, 1},                                // stream priorities
    {83, 0x7fffffff}, {85, 1}, {87, 64}, {88, 1},  // constant memory, unified addresses, wave, memory pools
};

static const char device_name[] = "AMD Instinct MI355X (mxcomp simulator)";

static int attribute_value(int attribute) {
  for (size_t i = 0; i < sizeof attributes / sizeof *attributes; ++i)
    if (attributes[i].attribute == attribute) return attributes[i].value;
  return 0;
}

static hipError_t valid(int device) {
  if (device >= 0 && device < mx_device_count()) return hipSuccess;
  return mx_fail(hipErrorInvalidDevice, "device %d of %d (MXCOMP_SIM_DEVICES)", device, mx_device_count());
}

static Context* context_of(int device) {
  contexts[device].device = device;
  return &contexts[device];
}

int mx_current_device(void) { return depth ? stack[depth - 1]->device : 0; }

static __thread bool is_host;
bool mx_is_queue(void) { return depth && !is_host; }
void mx_is_asked_by_host(void) { is_host = true; }

HIP_API hipError_t hipInit(unsigned flags) {
  mx_is_asked_by_host();
  return hipSuccess;  // the worker starts when someone looks for devices
}

// IREE asks before it makes a device, where an error does no harm, and again while it does, where one would crash it:
// then there is a context. What is wrong is reported by the first allocation.
HIP_API hipError_t hipGetDeviceCount(int* result) {
  hipError_t error = mx_start(true);
  *result = mx_device_count();
  return depth ? hipSuccess : error;
}

HIP_API hipError_t hipDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return valid(ordinal);
}

HIP_API hipError_t hipDeviceGetName(char* name, int bytes, int device) {
  if (!name || bytes <= 0) return mx_fail(hipErrorInvalidValue, "%d bytes for a name", bytes);
  snprintf(name, bytes, "%s", device_name);
  return valid(device);
}

HIP_API hipError_t hipDeviceGetUuid(char uuid[16], int device) {
  snprintf(uuid, 16, "mxcomp-gfx950%02d", device);
  uuid[15] = (char)device;
  return valid(device);
}

HIP_API hipError_t hipDeviceGetAttribute(int* value, int attribute, int device) {
  if (!value || attribute < 0) return mx_fail(hipErrorInvalidValue, "device attribute %d", attribute);
  *value = attribute_value(attribute);
  return valid(device);
}

// hipDeviceProp_tR0000: what hipGetDeviceProperties meant before HIP 6, and what IREE still asks for.
typedef struct {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock;
  int regsPerBlock, warpSize, maxThreadsPerBlock, maxThreadsDim[3], maxGridSize[3];
  int clockRate, memoryClockRate, memoryBusWidth;
  size_t totalConstMem;
  int major, minor, multiProcessorCount, l2CacheSize, maxThreadsPerMultiProcessor, computeMode;
  int clockInstructionRate;
  unsigned arch;
  int concurrentKernels, pciDomainID, pciBusID, pciDeviceID;
  size_t maxSharedMemoryPerMultiProcessor;
  int isMultiGpuBoard, canMapHostMemory, gcnArch;
  char gcnArchName[256];
  int integrated, cooperativeLaunch, cooperativeMultiDeviceLaunch;
  int maxTexture1DLinear, maxTexture1D, maxTexture2D[2], maxTexture3D[3];
  unsigned *hdpMemFlushCntl, *hdpRegFlushCntl;
  size_t memPitch, textureAlignment, texturePitchAlignment;
  int kernelExecTimeoutEnabled, ECCEnabled, tccDriver, cooperativeUnmatched[4], isLargeBar, asicRevision;
  int managedMemory, directManagedMemAccessFromHost, concurrentManagedAccess, pageableMemoryAccess[2];
} OldProperties;

HIP_API hipError_t hipGetDeviceProperties(OldProperties* result, int device) {
  memset(result, 0, sizeof *result);
  strcpy(result->name, device_name);
  strcpy(result->gcnArchName, "gfx950");
  result->gcnArch = 950;
  result->totalGlobalMem = MX_REGION;
  result->totalConstMem = 0x7fffffff;
  result->sharedMemPerBlock = result->maxSharedMemoryPerMultiProcessor = attribute_value(74);
  for (int i = 0; i < 3; ++i) {
    result->maxThreadsDim[i] = attribute_value(26 + i);
    result->maxGridSize[i] = attribute_value(29 + i);
  }
  const struct {
    int* field;
    int attribute;
  } fields[] = {
      {&result->regsPerBlock, 71}, {&result->warpSize, 87}, {&result->maxThreadsPerBlock, 56},
      {&result->clockRate, 5}, {&result->memoryClockRate, 60}, {&result->memoryBusWidth, 59},
      {&result->major, 23}, {&result->minor, 61}, {&result->multiProcessorCount, 63},
      {&result->l2CacheSize, 19}, {&result->maxThreadsPerMultiProcessor, 57}, {&result->concurrentKernels, 8},
      {&result->canMapHostMemory, 3}, {&result->managedMemory, 24}, {&result->concurrentManagedAccess, 9},
  };
  for (size_t i = 0; i < sizeof fields / sizeof *fields; ++i) *fields[i].field = attribute_value(fields[i].attribute);
  return valid(device);
}

// ---- peers ----

HIP_API hipError_t hipDeviceCanAccessPeer(int* result, int device, int peer) {
  *result = device != peer && valid(device) == hipSuccess && valid(peer) == hipSuccess;
  return hipSuccess;
}

HIP_API hipError_t hipDeviceEnablePeerAccess(int peer, unsigned flags) {
  if (valid(peer) != hipSuccess) return hipErrorInvalidDevice;
  return mx_call(MX_PEER, peer, mx_current_device(), 0, NULL, 0, NULL, NULL, 0);
}

// ---- contexts: one per device; each thread has a stack of them ----

HIP_API hipError_t hipDevicePrimaryCtxRetain(Context** context, int device) {
  if (valid(device) != hipSuccess) return hipErrorInvalidDevice;
  *context = context_of(device);
  mx_start(true);  // see hipGetDeviceCount
  return hipSuccess;
}

HIP_API hipError_t hipDevicePrimaryCtxRelease(int device) { return valid(device); }

HIP_API hipError_t hipCtxSetCurrent(Context* context) {
  if (depth) --depth;
  if (context) stack[depth++] = context;
  return hipSuccess;
}

HIP_API hipError_t hipCtxGetCurrent(Context** context) {
  *context = depth ? stack[depth - 1] : NULL;
  return hipSuccess;
}

HIP_API hipError_t hipCtxPushCurrent(Context* context) {
  if (!context) return mx_fail(hipErrorInvalidContext, "no context to push");
  if (depth == sizeof stack / sizeof *stack) memmove(stack, stack + 1, --depth * sizeof *stack);  // the oldest goes
  stack[depth++] = context;
  return hipSuccess;
}

HIP_API hipError_t hipCtxPopCurrent(Context** context) {
  if (context) *context = depth ? stack[depth - 1] : NULL;
  if (!depth) return mx_fail(hipErrorInvalidContext, "no context to pop");
  --depth;
  return hipSuccess;
}

HIP_API hipError_t hipSetDevice(int device) {
  mx_is_asked_by_host();
  return valid(device) == hipSuccess ? hipCtxSetCurrent(context_of(device)) : hipErrorInvalidDevice;
}
