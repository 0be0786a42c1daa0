// Allocations. The worker decides where they lie, and checks what kernels access; they are noted here as well, for
// checks of copies.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "driver.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Allocation* table;  // by start, ascending
static size_t count, capacity;
static uint64_t ends[MX_MOST_DEVICES];

void mx_forget_memory(void) {
  pthread_mutex_init(&lock, NULL);
  count = 0;
}

uint64_t mx_memory_end(int device) {
  uint64_t first = device * MX_REGION;
  return ends[device] > first ? ends[device] : first;
}

// How many allocations start at or before an address.
static size_t position(uint64_t address) {
  size_t low = 0, high = count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (table[middle].start <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

bool mx_find(const void* pointer, size_t bytes, Allocation* found) {
  uint64_t address = (uint64_t)pointer;
  pthread_mutex_lock(&lock);
  size_t k = position(address);
  bool inside = k && bytes <= table[k - 1].bytes && address - table[k - 1].start <= table[k - 1].bytes - bytes;
  if (inside) *found = table[k - 1];
  pthread_mutex_unlock(&lock);
  return inside;
}

static bool remember(Allocation new) {
  pthread_mutex_lock(&lock);
  if (count == capacity) {
    Allocation* larger = realloc(table, (capacity * 2 + 64) * sizeof *table);
    if (larger) table = larger, capacity = capacity * 2 + 64;
  }
  bool room = count < capacity;
  if (room) {
    size_t k = position(new.start);
    memmove(table + k + 1, table + k, (count - k) * sizeof *table);
    table[k] = new;
    ++count;
    uint64_t end = new.start + new.bytes - MX_BASE;
    if (new.kind != MX_REGISTERED_MEMORY && end > ends[new.device]) ends[new.device] = end;
  }
  pthread_mutex_unlock(&lock);
  return room;
}

// Where the worker died during work on a stream, allocations must not fail either before the host is told (streams.c):
// device memory is some that was never used, and that nothing will use. Host memory is where it is told.
static hipError_t allocate_without_worker(Allocation* new) {
  if (new->kind != MX_DEVICE_MEMORY) return mx_tell(mx_untold());
  pthread_mutex_lock(&lock);
  uint64_t start = (mx_memory_end(new->device) + 4095) / 4096 * 4096;
  bool room = new->bytes <= (new->device + 1) * MX_REGION - start;
  if (room) ends[new->device] = start + new->bytes;
  pthread_mutex_unlock(&lock);
  new->start = MX_BASE + start;
  return room ? hipSuccess : mx_fail(hipErrorOutOfMemory, "no room for %zu bytes", (size_t)new->bytes);
}

static hipError_t allocate(void** result, size_t bytes, MemoryKind kind) {
  if (!result) return mx_fail(hipErrorInvalidValue, "no place for the address");
  *result = NULL;
  if (!bytes) return hipSuccess;
  Allocation new = {0, bytes, 0, mx_current_device(), kind};
  hipError_t error = mx_call(MX_ALLOC, new.device, bytes, kind, NULL, 0, &new.start, NULL, 0);
  new.generation = mx_generation();
  if (error == hipErrorOutOfMemory && kind == MX_DEVICE_MEMORY && mx_is_queue()) {
    mx_put_off_allocation();  // nothing will use more than the address
    new.bytes = 1;
    error = mx_call(MX_ALLOC, new.device, new.bytes, kind, NULL, 0, &new.start, NULL, 0);
  }
  if (error == hipErrorDeinitialized && mx_untold()) {
    error = allocate_without_worker(&new);
    --new.generation;
  }
  if (error != hipSuccess) return error;
  if (!remember(new)) return mx_fail(hipErrorOutOfMemory, "no room for one more allocation of %zu bytes", bytes);
  *result = (void*)new.start;
  return hipSuccess;
}

// Takes what starts at an address out of the table.
static bool forget(const void* pointer, bool registered, Allocation* old) {
  pthread_mutex_lock(&lock);
  size_t k = position((uint64_t)pointer);
  bool known = k && table[k - 1].start == (uint64_t)pointer && (table[k - 1].kind == MX_REGISTERED_MEMORY) == registered;
  if (known) {
    *old = table[k - 1];
    memmove(table + k - 1, table + k, (count - k) * sizeof *table);
    --count;
  }
  pthread_mutex_unlock(&lock);
  return known;
}

static hipError_t release(void* pointer) {
  Allocation old;
  if (!pointer) return hipSuccess;
  if (!forget(pointer, false, &old))
    return mx_fail(hipErrorInvalidValue, "%p is not the start of an allocation", pointer);
  if (old.generation == mx_generation()) return mx_call(MX_FREE, old.device, old.start, 0, NULL, 0, NULL, NULL, 0);
  uint64_t pages = (old.bytes + 4095) / 4096 * 4096;  // its worker died
  madvise(pointer, pages, MADV_REMOVE);
  madvise(mx_marks() + (old.start - MX_BASE), pages, MADV_REMOVE);
  return hipSuccess;
}

struct Mirror {
  Mirror* next;
  uint64_t own;
  void* copy;
  size_t bytes;
};

static hipError_t mirror_of(const Allocation* own, Mirror** mirrors, Mirror** result) {
  for (*result = *mirrors; *result; *result = (*result)->next)
    if ((*result)->own == own->start) return hipSuccess;
  Mirror* new = malloc(sizeof *new);
  if (!new) return mx_fail(hipErrorOutOfMemory, "no room for a copy of registered memory");
  *new = (Mirror){*mirrors, own->start, NULL, own->bytes};
  *mirrors = *result = new;
  hipError_t error = allocate(&new->copy, own->bytes, MX_HOST_MEMORY);
  if (error == hipSuccess) memcpy(new->copy, (void*)own->start, own->bytes);
  return error;
}

hipError_t mx_mirror(uint8_t* kernarg, size_t bytes, Mirror** mirrors) {
  for (size_t at = 0; at + 8 <= bytes; at += 8) {
    uint64_t word;
    Allocation own;
    Mirror* mirror;
    memcpy(&word, kernarg + at, 8);
    if (!mx_find((void*)word, 1, &own) || own.kind != MX_REGISTERED_MEMORY) continue;
    hipError_t error = mirror_of(&own, mirrors, &mirror);
    if (error != hipSuccess) return error;
    word += (uint64_t)mirror->copy - own.start;
    memcpy(kernarg + at, &word, 8);
  }
  return hipSuccess;
}

hipError_t mx_unmirror(Mirror* mirrors) {
  hipError_t error = hipSuccess;
  for (Mirror* next; mirrors; mirrors = next) {
    next = mirrors->next;
    if (mirrors->copy) memcpy((void*)mirrors->own, mirrors->copy, mirrors->bytes);
    if (mirrors->copy && error == hipSuccess) error = release(mirrors->copy);
    free(mirrors);
  }
  return error;
}

// ---- HIP ----

typedef struct Pool {
  uint64_t attributes[16];
} *hipMemPool_t;

HIP_API hipError_t hipMalloc(void** pointer, size_t bytes) { return allocate(pointer, bytes, MX_DEVICE_MEMORY); }
HIP_API hipError_t hipMallocAsync(void** pointer, size_t bytes, hipStream_t stream) {
  return hipMalloc(pointer, bytes);
}
HIP_API hipError_t hipMallocFromPoolAsync(void** pointer, size_t bytes, hipMemPool_t pool, hipStream_t stream) {
  return hipMalloc(pointer, bytes);
}
HIP_API hipError_t hipMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  return allocate(pointer, bytes, MX_HOST_MEMORY);
}
HIP_API hipError_t hipHostMalloc(void** pointer, size_t bytes, unsigned flags) {
  return allocate(pointer, bytes, MX_HOST_MEMORY);
}
HIP_API hipError_t hipFree(void* pointer) { return release(pointer); }
HIP_API hipError_t hipHostFree(void* pointer) { return release(pointer); }
HIP_API hipError_t hipFreeAsync(void* pointer, hipStream_t stream) { return release(pointer); }

HIP_API hipError_t hipHostGetDevicePointer(void** device, void* host, unsigned flags) {
  Allocation found;
  if (!device || !mx_find(host, 1, &found) || found.kind == MX_DEVICE_MEMORY)
    return mx_fail(hipErrorInvalidValue, "%p is not from hipHostMalloc or hipHostRegister", host);
  *device = host;
  return hipSuccess;
}

HIP_API hipError_t hipHostRegister(void* pointer, size_t bytes, unsigned flags) {
  Allocation found, new = {(uint64_t)pointer, bytes, 0, mx_current_device(), MX_REGISTERED_MEMORY};
  if (!pointer || !bytes) return mx_fail(hipErrorInvalidValue, "%zu bytes at %p to register", bytes, pointer);
  if (mx_find(pointer, 1, &found)) return mx_fail(hipErrorHostMemoryAlreadyRegistered, "%p", pointer);
  return remember(new) ? hipSuccess : mx_fail(hipErrorOutOfMemory, "no room to register %p", pointer);
}
HIP_API hipError_t hipHostUnregister(void* pointer) {
  Allocation old;
  return forget(pointer, true, &old) ? hipSuccess : mx_fail(hipErrorHostMemoryNotRegistered, "%p", pointer);
}

// Pools keep nothing back: what is freed is free.
HIP_API hipError_t hipMemPoolCreate(hipMemPool_t* pool, const void* properties) {
  *pool = calloc(1, sizeof **pool);
  return *pool ? hipSuccess : mx_fail(hipErrorOutOfMemory, "no room for a memory pool");
}
HIP_API hipError_t hipMemPoolDestroy(hipMemPool_t pool) {
  free(pool);
  return hipSuccess;
}
HIP_API hipError_t hipMemPoolSetAttribute(hipMemPool_t pool, unsigned attribute, const void* value) {
  if (attribute > 8) return mx_fail(hipErrorInvalidValue, "memory pool attribute %u", attribute);
  memcpy(&pool->attributes[attribute], value, attribute < 4 ? sizeof(int) : sizeof(uint64_t));
  return hipSuccess;
}
HIP_API hipError_t hipMemPoolGetAttribute(hipMemPool_t pool, unsigned attribute, void* value) {
  if (attribute > 8) return mx_fail(hipErrorInvalidValue, "memory pool attribute %u", attribute);
  memcpy(value, &pool->attributes[attribute], attribute < 4 ? sizeof(int) : sizeof(uint64_t));
  return hipSuccess;
}
HIP_API hipError_t hipMemPoolTrimTo(hipMemPool_t pool, size_t bytes) { return hipSuccess; }
