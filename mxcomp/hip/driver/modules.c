// Code objects, kernels and launches.
#include <stdlib.h>
#include <string.h>

#include "driver.h"

typedef struct Module {
  uint64_t id;
  unsigned generation;
  int device;
  Function* functions;
} *hipModule_t;

struct Function {
  Function* next;
  hipModule_t module;
  uint64_t id;
  FunctionInfo info;
  char name[];
};

HIP_API hipError_t hipModuleLoadData(hipModule_t* module, const void* image) {
  *module = NULL;
  uint8_t* copy;
  uint64_t bytes;
  hipError_t error = mx_read_image(image, &copy, &bytes);
  if (error != hipSuccess) return error;
  hipModule_t new = calloc(1, sizeof *new);
  if (!new) {
    free(copy);
    return mx_fail(hipErrorOutOfMemory, "no room for a module");
  }
  new->device = mx_current_device();
  error = mx_call(MX_LOAD, new->device, 0, 0, copy, bytes, &new->id, NULL, 0);
  free(copy);
  new->generation = mx_generation();
  if (error == hipSuccess)
    *module = new;
  else
    free(new);
  return error;
}

HIP_API hipError_t hipModuleLoadDataEx(hipModule_t* module, const void* image, unsigned count, void* options, void** values) {
  return hipModuleLoadData(module, image);  // the rest says how to compile; code objects are compiled
}

HIP_API hipError_t hipModuleUnload(hipModule_t module) {
  if (!module) return mx_fail(hipErrorInvalidHandle, "no module to unload");
  bool known = module->generation == mx_generation();
  hipError_t error = known ? mx_call(MX_UNLOAD, module->device, module->id, 0, NULL, 0, NULL, NULL, 0) : hipSuccess;
  for (Function *next, *function = module->functions; function; function = next) {
    next = function->next;
    free(function);
  }
  free(module);
  return error;
}

// The worker has checked what the code object says of arguments; memory of this process depends on it.
static hipError_t check_info(const FunctionInfo* info, const char* name) {
  if (info->arguments > MX_MOST_ARGUMENTS || info->kernarg_bytes > MX_MOST_KERNARG_BYTES)
    return mx_fail(hipErrorInvalidImage, "kernel %s: %u arguments in %u bytes", name, info->arguments,
                   info->kernarg_bytes);
  for (uint32_t i = 0; i < info->arguments; ++i)
    if ((uint64_t)info->argument[i].offset + info->argument[i].bytes > info->kernarg_bytes)
      return mx_fail(hipErrorInvalidImage, "kernel %s: argument %u, %u bytes at %u, lies outside of %u bytes", name, i,
                     info->argument[i].bytes, info->argument[i].offset, info->kernarg_bytes);
  return hipSuccess;
}

HIP_API hipError_t hipModuleGetFunction(Function** function, hipModule_t module, const char* name) {
  *function = NULL;
  if (!module || !name) return mx_fail(hipErrorInvalidHandle, "no module or no name");
  if (module->generation != mx_generation()) return mx_lost("the module");
  size_t length = strlen(name);
  Function* new = calloc(1, sizeof *new + length + 1);
  if (!new) return mx_fail(hipErrorOutOfMemory, "no room for a function");
  hipError_t error = mx_call(MX_FUNCTION, module->device, module->id, 0, name, length, &new->id, &new->info, sizeof new->info);
  if (error == hipSuccess) error = check_info(&new->info, name);
  if (error != hipSuccess) {
    free(new);
    return error;
  }
  memcpy(new->name, name, length);
  new->module = module;
  new->next = module->functions;  // modules are loaded by one thread
  *function = module->functions = new;
  return hipSuccess;
}

HIP_API hipError_t hipModuleGetGlobal(void** pointer, size_t* bytes, hipModule_t module, const char* name) {
  uint64_t address = 0, size = 0;
  if (!module || !name) return mx_fail(hipErrorInvalidHandle, "no module or no name");
  if (module->generation != mx_generation()) return mx_lost("the module");
  hipError_t error = mx_call(MX_GLOBAL, module->device, module->id, 0, name, strlen(name), &address, &size, sizeof size);
  if (pointer) *pointer = (void*)address;
  if (bytes) *bytes = size;
  return error;
}

HIP_API hipError_t hipFuncGetAttribute(int* value, unsigned attribute, const Function* function) {
  if (!value || !function) return mx_fail(hipErrorInvalidValue, "no function or no place for the value");
  const FunctionInfo* info = &function->info;
  const int values[] = {
      (int)info->most_threads, (int)info->lds_bytes, 0, (int)info->scratch_bytes, (int)info->registers, 0, 0, 0,
      (int)((160 << 10) - info->lds_bytes), 0,
  };
  if (attribute >= sizeof values / sizeof *values) return mx_fail(hipErrorInvalidValue, "attribute %u", attribute);
  *value = values[attribute];
  return hipSuccess;
}

HIP_API hipError_t hipFuncSetAttribute(const Function* function, unsigned attribute, int value) {
  // the value is how much dynamic LDS a kernel may have: all there is
  if (!function || (attribute != 8 && attribute != 9)) return mx_fail(hipErrorInvalidValue, "attribute %u", attribute);
  return hipSuccess;
}

// ---- launches ----

static hipError_t copy_arguments(PackedLaunch* launch, void** parameters, void** extra) {
  const FunctionInfo* info = &launch->function->info;
  if (parameters) {
    for (uint32_t i = 0; i < info->arguments; ++i)
      memcpy(launch->kernarg + info->argument[i].offset, parameters[i], info->argument[i].bytes);
    return hipSuccess;
  }
  const void* data = NULL;
  size_t bytes = 0;
  for (int i = 0; extra && extra[i] && extra[i] != (void*)3; i += 2) {  // HIP_LAUNCH_PARAM_END
    if (extra[i] == (void*)1) data = extra[i + 1];                      // HIP_LAUNCH_PARAM_BUFFER_POINTER
    if (extra[i] == (void*)2) bytes = *(const size_t*)extra[i + 1];     // HIP_LAUNCH_PARAM_BUFFER_SIZE
  }
  if (bytes > info->kernarg_bytes)
    return mx_fail(hipErrorInvalidValue, "%zu bytes of arguments, the kernel has %u", bytes, info->kernarg_bytes);
  if (data) memcpy(launch->kernarg, data, bytes);
  return hipSuccess;
}

hipError_t mx_pack(PackedLaunch* launch, Function* function, dim3 grid, dim3 block, uint32_t dynamic_lds,
                   void** parameters, void** extra) {
  if (!function) return mx_fail(hipErrorInvalidHandle, "no function to launch");
  bool fits = block.x <= 1024 && block.y <= 1024 && block.z <= 1024 && block.x * block.y * block.z <= 1024;
  bool empty = !grid.x || !grid.y || !grid.z || !block.x || !block.y || !block.z;
  if (empty || !fits || (uint64_t)grid.x * block.x > UINT32_MAX || (uint64_t)grid.y * block.y > UINT32_MAX ||
      (uint64_t)grid.z * block.z > UINT32_MAX)
    return mx_fail(hipErrorInvalidConfiguration, "kernel %s: grid %u×%u×%u, block %u×%u×%u", function->name, grid.x,
                   grid.y, grid.z, block.x, block.y, block.z);
  *launch = (PackedLaunch){function, {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, dynamic_lds, 0}, NULL};
  launch->kernarg = calloc(1, function->info.kernarg_bytes + 8);
  if (!launch->kernarg) return mx_fail(hipErrorOutOfMemory, "no room for kernel arguments");
  return copy_arguments(launch, parameters, extra);
}

hipError_t mx_launch(const PackedLaunch* launch) {
  const Function* function = launch->function;
  if (function->module->generation != mx_generation()) return mx_lost("the kernel");
  uint64_t bytes = sizeof launch->header + function->info.kernarg_bytes;
  uint8_t* payload = malloc(bytes);
  if (!payload) return mx_fail(hipErrorOutOfMemory, "no room for kernel arguments");
  memcpy(payload, &launch->header, sizeof launch->header);
  memcpy(payload + sizeof launch->header, launch->kernarg, function->info.kernarg_bytes);
  Mirror* mirrors = NULL;
  hipError_t error = mx_mirror(payload + sizeof launch->header, function->info.kernarg_bytes, &mirrors);
  if (error == hipSuccess)
    error = mx_call(MX_LAUNCH, function->module->device, function->id, 0, payload, bytes, NULL, NULL, 0);
  hipError_t copied = mx_unmirror(mirrors);
  free(payload);
  return error == hipSuccess ? copied : error;
}

HIP_API hipError_t hipModuleLaunchKernel(Function* function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                         unsigned block_x, unsigned block_y, unsigned block_z, unsigned dynamic_lds,
                                         hipStream_t stream, void** parameters, void** extra) {
  PackedLaunch launch = {0};
  if (stream && function && stream->device != function->module->device)
    return mx_fail(hipErrorInvalidHandle, "a stream of device %d, a kernel of device %d", stream->device,
                   function->module->device);
  if (mx_failure_of(stream)) return hipSuccess;
  dim3 grid = {grid_x, grid_y, grid_z}, block = {block_x, block_y, block_z};
  hipError_t error = mx_check_stream(stream);
  if (error == hipSuccess) error = mx_pack(&launch, function, grid, block, dynamic_lds, parameters, extra);
  if (error == hipSuccess) error = mx_launch(&launch);
  free(launch.kernarg);
  return mx_put_off(stream, error);
}
