; Lanes that load a dword each, `stride` bytes apart, four times, from the same 64 KiB for all workgroups, and store a sum.

target triple = "amdgcn-amd-amdhsa"

declare noundef range(i32 0, 256) i32 @llvm.amdgcn.workitem.id.x()
declare noundef i32 @llvm.amdgcn.workgroup.id.x()

define amdgpu_kernel void @strided(ptr addrspace(1) %in, ptr addrspace(1) %out, i32 %stride) #0 {
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %first = mul i32 %i, %stride
  br label %loop
loop:
  %k = phi i32 [ 0, %0 ], [ %next, %loop ]
  %sum = phi i32 [ 0, %0 ], [ %more, %loop ]
  %step = shl i32 %k, 2
  %at = add i32 %first, %step
  %within = and i32 %at, 65535
  %p = getelementptr i8, ptr addrspace(1) %in, i32 %within
  %v = load volatile i32, ptr addrspace(1) %p
  %more = add i32 %sum, %v
  %next = add i32 %k, 1
  %end = icmp eq i32 %next, 4
  br i1 %end, label %done, label %loop
done:
  %row = shl i32 %x, 6
  %place = add i32 %row, %i
  %q = getelementptr i32, ptr addrspace(1) %out, i32 %place
  store i32 %more, ptr addrspace(1) %q
  ret void
}

attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
