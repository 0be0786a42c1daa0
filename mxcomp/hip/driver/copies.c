// Copies and fills, done here directly in memory that is shared with the worker, along with the marks of what has been
// written.
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "driver.h"

// Where a copy reads or writes: in an allocation, or, where `host` memory may be meant, anywhere else.
static hipError_t check(const void* pointer, size_t bytes, bool host, Allocation* found) {
  *found = (Allocation){.kind = MX_HOST_MEMORY};
  if (mx_find(pointer, bytes, found)) return hipSuccess;
  uint64_t end = MX_BASE + MX_REGION * mx_device_count();
  if ((uint64_t)pointer >= MX_BASE && (uint64_t)pointer < end)
    return mx_fail(hipErrorInvalidValue, "%zu bytes at %p lie outside of every allocation", bytes, pointer);
  if (!host) return mx_fail(hipErrorInvalidDevicePointer, "%p is not device memory", pointer);
  return hipSuccess;
}

static void mark(const Allocation* in, void* pointer, size_t bytes) {
  if (in->kind == MX_DEVICE_MEMORY) memset(mx_marks() + ((uint64_t)pointer - MX_BASE), 1, bytes);
}

hipError_t mx_copy(void* to, const void* from, size_t bytes, hipMemcpyKind kind) {
  if (!bytes) return hipSuccess;
  if (kind > hipMemcpyDefault) return mx_fail(hipErrorInvalidMemcpyDirection, "%d", kind);
  Allocation target, source;
  bool to_host = kind != hipMemcpyHostToDevice && kind != hipMemcpyDeviceToDevice;
  bool from_host = kind != hipMemcpyDeviceToHost && kind != hipMemcpyDeviceToDevice;
  hipError_t error = check(to, bytes, to_host, &target);
  if (error == hipSuccess) error = check(from, bytes, from_host, &source);
  if (error != hipSuccess) return error;
  const uint8_t* marks = source.kind == MX_DEVICE_MEMORY ? mx_marks() + ((uint64_t)from - MX_BASE) : NULL;
  // What the host is about to look at; results are copied elsewhere, and may be anything.
  bool is_looked_at = target.kind == MX_HOST_MEMORY && mx_find(to, bytes, &target);
  if (is_looked_at && marks && memchr(marks, 0, bytes))
    error = mx_call(MX_GUESS, source.device, 0, 0, NULL, 0, NULL, NULL, 0);
  if (error != hipSuccess) return error;
  memmove(to, from, bytes);
  if (target.kind == MX_DEVICE_MEMORY && source.kind == MX_DEVICE_MEMORY)
    memmove(mx_marks() + ((uint64_t)to - MX_BASE), marks, bytes);
  else
    mark(&target, to, bytes);
  return hipSuccess;
}

// Zeros: whole pages are given back to the system, as gigabytes of parameters may be that are only timed.
static void clear(uint8_t* to, size_t bytes) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uint8_t* first = (uint8_t*)(((uintptr_t)to + page - 1) & ~(page - 1));
  uint8_t* last = (uint8_t*)(((uintptr_t)to + bytes) & ~(page - 1));
  if (last <= first || madvise(first, (size_t)(last - first), MADV_REMOVE)) {
    memset(to, 0, bytes);
    return;
  }
  memset(to, 0, (size_t)(first - to));
  memset(last, 0, (size_t)(to + bytes - last));
}

hipError_t mx_fill(void* to, uint32_t value, size_t element_bytes, size_t elements) {
  Allocation target;
  size_t bytes;
  if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4)
    return mx_fail(hipErrorInvalidValue, "elements of %zu bytes to fill with", element_bytes);
  if (__builtin_mul_overflow(elements, element_bytes, &bytes))
    return mx_fail(hipErrorInvalidValue, "%zu elements of %zu bytes to fill", elements, element_bytes);
  if (!bytes) return hipSuccess;
  hipError_t error = check(to, bytes, false, &target);
  if (error != hipSuccess) return error;
  if (!value)
    clear(to, bytes);
  else if (element_bytes == 1)
    memset(to, (int)value, bytes);
  else
    for (size_t i = 0; i < elements; ++i) memcpy((uint8_t*)to + i * element_bytes, &value, element_bytes);
  mark(&target, to, bytes);
  return hipSuccess;
}

// ---- HIP ----

// A copy on a stream, or on none, which waits for all. What the host can read is where it is told what failed before.
static hipError_t copy_on(hipStream_t stream, void* to, const void* from, size_t bytes, hipMemcpyKind kind) {
  Allocation target = {.kind = MX_HOST_MEMORY};
  mx_find(to, 1, &target);
  bool to_host = target.kind != MX_DEVICE_MEMORY;
  Failure* failure = stream || !to_host ? mx_failure_of(stream) : mx_untold();
  if (failure) return to_host ? mx_tell(failure) : hipSuccess;
  hipError_t error = mx_copy(to, from, bytes, kind);
  if (error != hipSuccess && !stream && mx_untold()) return mx_tell(mx_untold());  // memory that is none, perhaps
  return to_host ? error : mx_put_off(stream, error);
}

static hipError_t fill_on(hipStream_t stream, void* to, uint32_t value, size_t element_bytes, size_t elements) {
  return mx_failure_of(stream) ? hipSuccess : mx_put_off(stream, mx_fill(to, value, element_bytes, elements));
}

HIP_API hipError_t hipMemcpy(void* to, const void* from, size_t bytes, hipMemcpyKind kind) {
  return copy_on(NULL, to, from, bytes, kind);
}
HIP_API hipError_t hipMemcpyAsync(void* to, const void* from, size_t bytes, hipMemcpyKind kind, hipStream_t stream) {
  return copy_on(stream, to, from, bytes, kind);
}
HIP_API hipError_t hipMemcpyHtoDAsync(void* to, void* from, size_t bytes, hipStream_t stream) {
  return copy_on(stream, to, from, bytes, hipMemcpyHostToDevice);
}
HIP_API hipError_t hipMemPrefetchAsync(const void* pointer, size_t bytes, int device, hipStream_t stream) {
  Allocation found;
  return check(pointer, bytes, false, &found);
}

HIP_API hipError_t hipMemset(void* to, int value, size_t bytes) { return mx_fill(to, value, 1, bytes); }
HIP_API hipError_t hipMemsetAsync(void* to, int value, size_t bytes, hipStream_t stream) {
  return fill_on(stream, to, value, 1, bytes);
}
#define MEMSET(name, type)                                                              \
  HIP_API hipError_t name(void* to, type value, size_t elements, hipStream_t stream) {  \
    return fill_on(stream, to, (uint32_t)value, sizeof value, elements);                \
  }
MEMSET(hipMemsetD8Async, unsigned char)
MEMSET(hipMemsetD16Async, unsigned short)
MEMSET(hipMemsetD32Async, int)
