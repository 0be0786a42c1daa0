; Kernels that read LDS (dword i is lane i's) or scratch that was never written: 64 lanes, lane i at dword i of target.
; Some only seem to depend on it. Volatile loads are neither dropped nor made narrower.

target triple = "amdgcn-amd-amdhsa"

@lds = internal addrspace(3) global [64 x i32] poison, align 16
@many = internal addrspace(3) global [1024 x half] poison, align 16

declare noundef range(i32 0, 64) i32 @llvm.amdgcn.workitem.id.x()

; What lanes from 32 on read is dropped.
define amdgpu_kernel void @lds_lower_lanes(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr i32, ptr addrspace(3) @lds, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %low = icmp ult i32 %i, 32
  br i1 %low, label %write, label %read
write:
  store volatile i32 %i, ptr addrspace(3) %at
  br label %read
read:
  %x = load volatile i32, ptr addrspace(3) %at
  %y = select i1 %low, i32 %x, i32 7
  store i32 %y, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @lds_all_lanes(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr i32, ptr addrspace(3) @lds, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %low = icmp ult i32 %i, 32
  br i1 %low, label %write, label %read
write:
  store volatile i32 %i, ptr addrspace(3) %at
  br label %read
read:
  %x = load volatile i32, ptr addrspace(3) %at
  store i32 %x, ptr addrspace(1) %to
  ret void
}

; Times zero is not dropped: there are NaNs.
define amdgpu_kernel void @lds_times_zero(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr float, ptr addrspace(3) @lds, i32 %i
  %to = getelementptr float, ptr addrspace(1) %target, i32 %i
  %x = load volatile float, ptr addrspace(3) %at
  %y = fmul float %x, 0.0
  store float %y, ptr addrspace(1) %to
  ret void
}

; Of every dword, the lower half is written, and counts.
define amdgpu_kernel void @lds_lower_half(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr i32, ptr addrspace(3) @lds, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %part = trunc i32 %i to i16
  store volatile i16 %part, ptr addrspace(3) %at
  %x = load volatile i32, ptr addrspace(3) %at
  %y = and i32 %x, 65535
  store i32 %y, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @lds_upper_half(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr i32, ptr addrspace(3) @lds, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %part = trunc i32 %i to i16
  store volatile i16 %part, ptr addrspace(3) %at
  %x = load volatile i32, ptr addrspace(3) %at
  %y = lshr i32 %x, 16
  store i32 %y, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @lds_atomic_dropped(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr i32, ptr addrspace(3) @lds, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %old = atomicrmw volatile add ptr addrspace(3) %at, i32 1 syncscope("agent") monotonic
  store i32 %i, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @lds_atomic(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr i32, ptr addrspace(3) @lds, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %old = atomicrmw volatile add ptr addrspace(3) %at, i32 1 syncscope("agent") monotonic
  store i32 %old, ptr addrspace(1) %to
  ret void
}

; Lanes are off or on.
define amdgpu_kernel void @lds_mask(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %at = getelementptr i32, ptr addrspace(3) @lds, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %x = load volatile i32, ptr addrspace(3) %at
  %odd = trunc i32 %x to i1
  br i1 %odd, label %write, label %end
write:
  store i32 1, ptr addrspace(1) %to
  br label %end
end:
  ret void
}

; Device memory and LDS, both never written; the latter is stored.
define amdgpu_kernel void @lds_and_memory(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %from = getelementptr i32, ptr addrspace(1) %source, i32 %i
  %dropped = load volatile i32, ptr addrspace(1) %from
  %at = getelementptr i32, ptr addrspace(3) @lds, i32 %i
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %x = load volatile i32, ptr addrspace(3) %at
  store i32 %x, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @scratch_lower_lanes(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %spilled = alloca [4 x i32], align 16, addrspace(5)
  %at = getelementptr i32, ptr addrspace(5) %spilled, i32 2
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %low = icmp ult i32 %i, 32
  br i1 %low, label %write, label %read
write:
  store volatile i32 %i, ptr addrspace(5) %at
  br label %read
read:
  %x = load volatile i32, ptr addrspace(5) %at
  %y = select i1 %low, i32 %x, i32 7
  store i32 %y, ptr addrspace(1) %to
  ret void
}

define amdgpu_kernel void @scratch_all_lanes(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %spilled = alloca [4 x i32], align 16, addrspace(5)
  %at = getelementptr i32, ptr addrspace(5) %spilled, i32 2
  %to = getelementptr i32, ptr addrspace(1) %target, i32 %i
  %low = icmp ult i32 %i, 32
  br i1 %low, label %write, label %read
write:
  store volatile i32 %i, ptr addrspace(5) %at
  br label %read
read:
  %x = load volatile i32, ptr addrspace(5) %at
  store i32 %x, ptr addrspace(1) %to
  ret void
}

; A sum of so many that there are NaNs among noise as well as among fresh bytes.
define amdgpu_kernel void @lds_sum(ptr addrspace(1) %source, ptr addrspace(1) %target) #0 {
entry:
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  br label %next
next:
  %k = phi i32 [ 0, %entry ], [ %k1, %next ]
  %sum = phi half [ 0.0, %entry ], [ %sum1, %next ]
  %at = getelementptr half, ptr addrspace(3) @many, i32 %k
  %x = load volatile half, ptr addrspace(3) %at
  %sum1 = fadd half %sum, %x
  %k1 = add i32 %k, 1
  %done = icmp eq i32 %k1, 1024
  br i1 %done, label %end, label %next
end:
  %to = getelementptr half, ptr addrspace(1) %target, i32 %i
  store half %sum1, ptr addrspace(1) %to
  ret void
}

attributes #0 = { nounwind "amdgpu-flat-work-group-size"="64,64" }
