// Graphs. Nodes run in the order they were added: what a node depends on was there before it.
#include <stdlib.h>
#include <string.h>

#include "driver.h"

// driver_types.h and hip_runtime_api.h of HIP 6.1
typedef struct {
  dim3 block;
  void** extra;
  Function* function;
  dim3 grid;
  void** parameters;
  unsigned dynamic_lds;
} hipKernelNodeParams;

typedef struct {
  void* to;
  unsigned element_bytes;
  size_t height, pitch;
  unsigned value;
  size_t width;
} hipMemsetParams;

enum { MEMORY_TYPE_HOST = 1 };
typedef struct {
  size_t x_bytes, y, z, lod;
  int type;
  void *host, *device, *array;
  size_t pitch, height;
} CopySide;
typedef struct {
  CopySide from, to;
  size_t width_bytes, height, depth;
} HIP_MEMCPY3D;

typedef struct Node {
  enum { EMPTY, KERNEL, FILL, COPY, RECORD } kind;
  int references;  // graphs are used by one thread at a time
  union {
    PackedLaunch launch;
    hipMemsetParams fill;
    hipEvent_t event;
    struct {
      void* to;
      const void* from;
      size_t bytes;
      hipMemcpyKind kind;
    } copy;
  };
} *hipGraphNode_t;

typedef struct Graph {
  size_t count, capacity;
  hipGraphNode_t* nodes;
} *hipGraph_t, *hipGraphExec_t;

static hipError_t add(hipGraphNode_t* result, hipGraph_t graph, struct Node node) {
  if (graph->count == graph->capacity) {
    hipGraphNode_t* larger = realloc(graph->nodes, (graph->capacity * 2 + 16) * sizeof *larger);
    if (!larger) return mx_fail(hipErrorOutOfMemory, "no room for a graph node");
    graph->nodes = larger, graph->capacity = graph->capacity * 2 + 16;
  }
  hipGraphNode_t new = malloc(sizeof *new);
  if (!new) return mx_fail(hipErrorOutOfMemory, "no room for a graph node");
  *new = node;
  new->references = 1;
  *result = graph->nodes[graph->count++] = new;
  return hipSuccess;
}

static hipError_t run(const struct Node* node) {
  switch (node->kind) {
    case KERNEL: return mx_launch(&node->launch);
    case FILL: {
      const hipMemsetParams* fill = &node->fill;
      hipError_t error = hipSuccess;
      for (size_t row = 0; row < fill->height && error == hipSuccess; ++row) {
        uintptr_t to;
        if (__builtin_mul_overflow(row, fill->pitch, &to) || __builtin_add_overflow(to, (uintptr_t)fill->to, &to))
          return mx_fail(hipErrorInvalidValue, "row %zu of a pitch of %zu bytes to fill", row, fill->pitch);
        error = mx_fill((void*)to, fill->value, fill->element_bytes, fill->width);
      }
      return error;
    }
    case COPY: return mx_copy(node->copy.to, node->copy.from, node->copy.bytes, node->copy.kind);
    case RECORD: return mx_record(node->event);
    default: return hipSuccess;
  }
}

HIP_API hipError_t hipGraphCreate(hipGraph_t* graph, unsigned flags) {
  *graph = calloc(1, sizeof **graph);
  return *graph ? hipSuccess : mx_fail(hipErrorOutOfMemory, "no room for a graph");
}

HIP_API hipError_t hipGraphDestroy(hipGraph_t graph) {
  for (size_t i = 0; i < graph->count; ++i) {
    hipGraphNode_t node = graph->nodes[i];
    if (--node->references) continue;
    if (node->kind == KERNEL) free(node->launch.kernarg);
    free(node);
  }
  free(graph->nodes);
  free(graph);
  return hipSuccess;
}

HIP_API hipError_t hipGraphExecDestroy(hipGraphExec_t graph) { return hipGraphDestroy(graph); }

HIP_API hipError_t hipGraphInstantiate(hipGraphExec_t* result, hipGraph_t graph, hipGraphNode_t* error_node, char* log,
                                       size_t log_bytes) {
  hipError_t error = hipGraphCreate(result, 0);
  if (error != hipSuccess) return error;
  size_t bytes = graph->count * sizeof *graph->nodes;
  (*result)->nodes = malloc(bytes + 1);
  if (!(*result)->nodes) return mx_fail(hipErrorOutOfMemory, "no room for a graph");
  if (bytes) memcpy((*result)->nodes, graph->nodes, bytes);
  (*result)->count = (*result)->capacity = graph->count;
  for (size_t i = 0; i < graph->count; ++i) ++graph->nodes[i]->references;
  return hipSuccess;
}

HIP_API hipError_t hipGraphLaunch(hipGraphExec_t graph, hipStream_t stream) {
  if (mx_failure_of(stream)) return hipSuccess;
  hipError_t error = mx_check_stream(stream);
  for (size_t i = 0; i < graph->count && error == hipSuccess; ++i) error = run(graph->nodes[i]);
  return mx_put_off(stream, error);
}

#define DEPENDENCIES const hipGraphNode_t *dependencies, size_t count

HIP_API hipError_t hipGraphAddEmptyNode(hipGraphNode_t* node, hipGraph_t graph, DEPENDENCIES) {
  return add(node, graph, (struct Node){.kind = EMPTY});
}

HIP_API hipError_t hipGraphAddEventRecordNode(hipGraphNode_t* node, hipGraph_t graph, DEPENDENCIES, hipEvent_t event) {
  return add(node, graph, (struct Node){.kind = RECORD, .event = event});
}

HIP_API hipError_t hipGraphAddKernelNode(hipGraphNode_t* node, hipGraph_t graph, DEPENDENCIES, const hipKernelNodeParams* p) {
  struct Node new = {.kind = KERNEL};
  hipError_t error = mx_pack(&new.launch, p->function, p->grid, p->block, p->dynamic_lds, p->parameters, p->extra);
  if (error == hipSuccess) error = add(node, graph, new);
  if (error != hipSuccess) free(new.launch.kernarg);
  return error;
}

HIP_API hipError_t hipGraphAddMemsetNode(hipGraphNode_t* node, hipGraph_t graph, DEPENDENCIES, const hipMemsetParams* p) {
  return add(node, graph, (struct Node){.kind = FILL, .fill = *p});
}

HIP_API hipError_t hipDrvGraphAddMemcpyNode(hipGraphNode_t* node, hipGraph_t graph, DEPENDENCIES, const HIP_MEMCPY3D* p,
                                            Context* context) {
  if (p->height != 1 || p->depth != 1) return mx_fail(hipErrorNotSupported, "copies of more than one row in a graph");
  bool from_host = p->from.type == MEMORY_TYPE_HOST, to_host = p->to.type == MEMORY_TYPE_HOST;
  struct Node new = {.kind = COPY};
  uintptr_t from = (uintptr_t)(from_host ? p->from.host : p->from.device);
  uintptr_t to = (uintptr_t)(to_host ? p->to.host : p->to.device);
  if (__builtin_add_overflow(from, p->from.x_bytes, &from) || __builtin_add_overflow(to, p->to.x_bytes, &to))
    return mx_fail(hipErrorInvalidValue, "a copy from byte %zu to byte %zu", p->from.x_bytes, p->to.x_bytes);
  new.copy.from = (const void*)from;
  new.copy.to = (void*)to;
  new.copy.bytes = p->width_bytes;
  new.copy.kind = from_host ? (to_host ? hipMemcpyHostToHost : hipMemcpyHostToDevice)
                            : (to_host ? hipMemcpyDeviceToHost : hipMemcpyDeviceToDevice);
  return add(node, graph, new);
}
