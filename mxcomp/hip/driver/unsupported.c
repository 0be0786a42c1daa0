// Functions that IREE's driver looks for and does not need.
#include "driver.h"

#define UNSUPPORTED(X) X(hipLaunchKernel)  // kernels linked into the host program

#define X(name) \
  HIP_API hipError_t name(void) { return mx_fail(hipErrorNotSupported, #name); }
UNSUPPORTED(X)
