; Workgroup i goes i % period + 1 times through a loop, as those of causal attention have more keys the later their queries.

target triple = "amdgcn-amd-amdhsa"

declare noundef i32 @llvm.amdgcn.workgroup.id.x()
declare float @llvm.exp2.f32(float)

define amdgpu_kernel void @uneven(ptr addrspace(1) %out, i32 %period, float %start) #0 {
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %turn = urem i32 %x, %period
  br label %loop
loop:
  %k = phi i32 [ 0, %0 ], [ %next, %loop ]
  %value = phi float [ %start, %0 ], [ %power, %loop ]
  %power = call afn float @llvm.exp2.f32(float %value)
  %next = add i32 %k, 1
  %end = icmp ugt i32 %next, %turn
  br i1 %end, label %done, label %loop
done:
  store float %power, ptr addrspace(1) %out
  ret void
}

attributes #0 = { "amdgpu-flat-work-group-size"="64,64" }
