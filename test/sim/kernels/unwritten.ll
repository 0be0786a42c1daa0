; Kernels that read what may never have been written: 64 lanes, lane i at dword i of source and target. The first of each
; pair only seems to depend on it. Volatile loads are not made narrower.

target triple = "amdgcn-amd-amdhsa"

declare noundef range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()

define amdgpu_kernel void @copy(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %source, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %x = load volatile i32, ptr addrspace(1) %from
  store i32 %x, ptr addrspace(1) %to
  ret void
}

; What lanes from 32 on read is dropped.
define amdgpu_kernel void @lower_lanes(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %source, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %x = load volatile i32, ptr addrspace(1) %from
  %low = icmp ult i32 %i, 32
  %y = select i1 %low, i32 %x, i32 7
  store i32 %y, ptr addrspace(1) %to
  ret void
}

; Of every dword, the lower half counts.
define amdgpu_kernel void @lower_half(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %source, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %x = load volatile i32, ptr addrspace(1) %from
  %y = and i32 %x, 65535
  store i32 %y, ptr addrspace(1) %to
  ret void
}

; Replaces the lower four bits of bytes.
define amdgpu_kernel void @nibble(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %to = getelementptr i8, ptr addrspace(1) %target, i32 %i
  %old = load i8, ptr addrspace(1) %to
  %kept = and i8 %old, -16
  %lane = trunc i32 %i to i8
  %low = and i8 %lane, 15
  %new = or i8 %kept, %low
  store i8 %new, ptr addrspace(1) %to
  ret void
}

; The other four bits go where the replaced ones were.
define amdgpu_kernel void @swapped_nibbles(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %to = getelementptr i8, ptr addrspace(1) %target, i32 %i
  %old = load i8, ptr addrspace(1) %to
  %new = lshr i8 %old, 4
  store i8 %new, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @increment(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %x = load i32, ptr addrspace(1) %to
  %y = add i32 %x, 1
  store i32 %y, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @atomic(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %old = atomicrmw add ptr addrspace(1) %to, i32 %i syncscope("agent") monotonic
  ret void
}

define amdgpu_kernel void @scalar(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %x = load i32, ptr addrspace(1) %source, !invariant.load !0
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  store i32 %x, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @store_mask(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %source, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %x = load volatile i32, ptr addrspace(1) %from
  %odd = trunc i32 %x to i1
  br i1 %odd, label %write, label %end
write:
  store i32 1, ptr addrspace(1) %to
  br label %end
end:
  ret void
}

define amdgpu_kernel void @store_address(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %source, i32 %i
  %x = load volatile i32, ptr addrspace(1) %from
  %k = and i32 %x, 63
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %k
  store i32 1, ptr addrspace(1) %to
  ret void
}

; Two loads, of which only the second one's values are stored.
define amdgpu_kernel void @second_load(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %source, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %dropped = load volatile i32, ptr addrspace(1) %from
  %later = getelementptr i32, ptr addrspace(1) %from, i32 64
  %x = load volatile i32, ptr addrspace(1) %later
  store i32 %x, ptr addrspace(1) %to
  ret void
}

attributes #0 = { nounwind "amdgpu-flat-work-group-size"="64,64" }

!0 = !{}
