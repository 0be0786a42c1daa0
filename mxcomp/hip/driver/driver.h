// A HIP driver library whose GPUs are simulated. Declarations that its files share.
//
// Enumerations and struct layouts are those of HIP 6.1 (hip_runtime_api.h, driver_types.h, hip_deprecated.h), which is
// what IREE's HIP driver is built with.
#ifndef MXCOMP_HIP_DRIVER_H_
#define MXCOMP_HIP_DRIVER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HIP_API __attribute__((visibility("default")))

// Name, number, meaning.
#define HIP_ERRORS(X)                                                                     \
  X(hipSuccess, 0, "no error")                                                            \
  X(hipErrorInvalidValue, 1, "invalid argument")                                          \
  X(hipErrorOutOfMemory, 2, "out of memory")                                              \
  X(hipErrorNotInitialized, 3, "the simulator cannot be started")                         \
  X(hipErrorDeinitialized, 4, "the simulator has ended")                                  \
  X(hipErrorInvalidConfiguration, 9, "invalid launch configuration")                      \
  X(hipErrorInvalidDevicePointer, 17, "invalid device pointer")                           \
  X(hipErrorInvalidMemcpyDirection, 21, "invalid direction of a copy")                    \
  X(hipErrorInvalidDevice, 101, "invalid device ordinal")                                 \
  X(hipErrorInvalidImage, 200, "the code object cannot be loaded")                        \
  X(hipErrorInvalidContext, 201, "invalid device context")                                \
  X(hipErrorInvalidHandle, 400, "invalid resource handle")                                \
  X(hipErrorNotFound, 500, "named symbol not found")                                      \
  X(hipErrorNotReady, 600, "not ready")                                                   \
  X(hipErrorPeerAccessAlreadyEnabled, 704, "peer access is already enabled")              \
  X(hipErrorHostMemoryAlreadyRegistered, 712, "host memory is already registered")        \
  X(hipErrorHostMemoryNotRegistered, 713, "host memory is not registered")                \
  X(hipErrorLaunchFailure, 719, "the kernel failed on the simulated gfx950")              \
  X(hipErrorNotSupported, 801, "not supported by the simulated device")                   \
  X(hipErrorUnknown, 999, "unknown error")

typedef enum {
#define X(name, number, meaning) name = number,
  HIP_ERRORS(X)
#undef X
} hipError_t;

// Remembers what the calling thread's next hipGetErrorString(code) is to say; returns the code.
hipError_t mx_fail(hipError_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));

// What the calling thread failed with last, for later and other threads. A process that ends without having been told
// fails.
typedef struct Failure Failure;
Failure* mx_keep_failure(void);  // NULL without memory
hipError_t mx_tell(Failure* failure);
Failure* mx_untold(void);  // the last one, unless it has been told

// ---- protocol: the same numbers as in protocol.py ----

enum {
  MX_SETTINGS = 1,  // payload: lines "name=value"
  MX_ALLOC = 2,     // a: bytes, b: kind of memory → address
  MX_FREE = 3,      // a: address
  MX_LOAD = 4,      // payload: code object → module
  MX_UNLOAD = 5,    // a: module
  MX_FUNCTION = 6,  // a: module, payload: name → function; FunctionInfo
  MX_GLOBAL = 7,    // a: module, payload: name → address; size as uint64
  MX_LAUNCH = 8,    // a: function, payload: Launch and arguments
  MX_PEER = 9,      // a: device that is to access this one
  MX_GUESS = 10,    // the host is going to look at what was never written
};

typedef struct {
  uint32_t operation, device;
  uint64_t a, b, bytes;  // bytes of payload that follow
} Request;

typedef struct {
  int32_t code;  // hipError_t; unless it is success, the payload is a message
  uint32_t bytes;
  uint64_t value;
} Reply;

enum { MX_MOST_ARGUMENTS = 256 };
enum { MX_MOST_KERNARG_BYTES = 65536 };
typedef struct {
  uint32_t kernarg_bytes, lds_bytes, scratch_bytes, registers, most_threads, arguments;
  struct {
    uint32_t offset, bytes;
  } argument[MX_MOST_ARGUMENTS];
} FunctionInfo;

typedef struct {
  uint32_t grid[3], block[3], dynamic_lds, reserved;
} Launch;

// ---- worker.c: the simulator's process ----

enum { MX_MOST_DEVICES = 16 };
#define MX_BASE 0x400000000000ull     // mxcomp.sim.memory.BASE
#define MX_REGION (64ull << 30)       // addresses of one device
int mx_device_count(void);            // MXCOMP_SIM_DEVICES, default 1
unsigned mx_generation(void);         // grows with every worker: what an older one made is lost
uint8_t* mx_marks(void);              // which bytes from MX_BASE on have been written
hipError_t mx_start(bool restart);    // starts the worker unless it runs, and gives it the current settings
hipError_t mx_call(uint32_t operation, int device, uint64_t a, uint64_t b, const void* payload, uint64_t bytes,
                   uint64_t* value, void* result, uint64_t result_bytes);
hipError_t mx_lost(const char* what);  // the error for something of an older generation

// ---- interpreter.c ----

void mx_find_python(char* python);  // gives a path of up to PATH_MAX bytes, or a name to look for in PATH

// ---- devices.c ----

typedef struct Context {
  int device;
} Context;
int mx_current_device(void);
// Whether the calling thread is one that only works off what others have queued, as IREE's does: it has entered a
// context, and never asked for a device or a stream.
bool mx_is_queue(void);
void mx_is_asked_by_host(void);

// ---- memory.c, copies.c ----

// Registered memory is the host program's own, which the worker cannot see: a kernel that gets a pointer to it works on
// a copy, its mirror.
typedef enum { MX_DEVICE_MEMORY = 0, MX_HOST_MEMORY = 1, MX_REGISTERED_MEMORY = 2 } MemoryKind;
typedef struct {
  uint64_t start, bytes;
  unsigned generation;
  int device;
  MemoryKind kind;
} Allocation;
typedef struct Mirror Mirror;  // a list

bool mx_find(const void* pointer, size_t bytes, Allocation* found);      // what holds so many bytes from there
uint64_t mx_memory_end(int device);                                      // the first byte that was never allocated
hipError_t mx_mirror(uint8_t* kernarg, size_t bytes, Mirror** mirrors);  // makes mirrors, changes pointers to them
hipError_t mx_unmirror(Mirror* mirrors);                                 // copies back
void mx_forget_memory(void);                                             // after a fork, in the child

typedef enum {
  hipMemcpyHostToHost,
  hipMemcpyHostToDevice,
  hipMemcpyDeviceToHost,
  hipMemcpyDeviceToDevice,
  hipMemcpyDefault
} hipMemcpyKind;
hipError_t mx_copy(void* to, const void* from, size_t bytes, hipMemcpyKind kind);
hipError_t mx_fill(void* to, uint32_t value, size_t element_bytes, size_t elements);

// ---- streams.c: everything is complete when a call returns, so streams and events carry little ----

typedef struct Stream {
  int device;
  unsigned generation;
  Failure* _Atomic failure;  // of its work, or of work that it waited for; what is put on it afterwards is left out
} *hipStream_t;
typedef struct Event {
  uint64_t nanoseconds;
  Failure* failure;  // of the stream that it was recorded on
} *hipEvent_t;
hipError_t mx_record(hipEvent_t event);
hipError_t mx_check_stream(hipStream_t stream);  // an older worker's stream belongs to a device that lost its memory
Failure* mx_failure_of(hipStream_t stream);
hipError_t mx_put_off(hipStream_t stream, hipError_t error);  // what a call returns whose work on a stream came to that

void mx_put_off_allocation(void);  // the calling thread's last failure goes to all streams that it uses next

// ---- image.c ----

#define MX_MOST_IMAGE_BYTES (1ull << 30)
hipError_t mx_read_image(const void* image, uint8_t** result, uint64_t* bytes);  // copies an ELF file, for free()

// ---- modules.c ----

typedef struct Function Function;
typedef struct {
  uint32_t x, y, z;
} dim3;
// Arguments packed as the kernel expects them.
typedef struct {
  Function* function;
  Launch header;
  uint8_t* kernarg;  // from malloc
} PackedLaunch;
hipError_t mx_pack(PackedLaunch* launch, Function* function, dim3 grid, dim3 block, uint32_t dynamic_lds,
                   void** parameters, void** extra);
hipError_t mx_launch(const PackedLaunch* launch);

#endif  // MXCOMP_HIP_DRIVER_H_
