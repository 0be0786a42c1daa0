; A kernel with the argument block and grid of AITER's MXFP4 GEMMs (24 slots of 16 bytes): for each 256 of K, a workgroup
; of 256 lanes reads 128 bytes of each of 32 rows of A and of 128 rows of B, and stores one number per lane at the end.
; Half of AITER's loads, and nothing that multiplies.

target triple = "amdgcn-amd-amdhsa"

declare noundef range(i32 0, 256) i32 @llvm.amdgcn.workitem.id.x()
declare noundef i32 @llvm.amdgcn.workgroup.id.x()
declare noundef i32 @llvm.amdgcn.workgroup.id.y()
declare ptr addrspace(4) @llvm.amdgcn.kernarg.segment.ptr()

define amdgpu_kernel void @rows([48 x i64] %arguments) #0 {
  %args = call ptr addrspace(4) @llvm.amdgcn.kernarg.segment.ptr()
  %d.at = getelementptr i8, ptr addrspace(4) %args, i64 0
  %a.at = getelementptr i8, ptr addrspace(4) %args, i64 32
  %b.at = getelementptr i8, ptr addrspace(4) %args, i64 48
  %k.at = getelementptr i8, ptr addrspace(4) %args, i64 256
  %d = load ptr addrspace(1), ptr addrspace(4) %d.at
  %a = load ptr addrspace(1), ptr addrspace(4) %a.at
  %b = load ptr addrspace(1), ptr addrspace(4) %b.at
  %k = load i32, ptr addrspace(4) %k.at
  %i = call i32 @llvm.amdgcn.workitem.id.x()
  %x = call i32 @llvm.amdgcn.workgroup.id.x()
  %y = call i32 @llvm.amdgcn.workgroup.id.y()
  %stride32 = lshr i32 %k, 1
  %stride = zext i32 %stride32 to i64
  %row32 = lshr i32 %i, 3
  %row = zext i32 %row32 to i64
  %part32 = and i32 %i, 7
  %part4 = shl i32 %part32, 4
  %part = zext i32 %part4 to i64
  %y64 = zext i32 %y to i64
  %x64 = zext i32 %x to i64
  %a.first = mul i64 %y64, 32
  %a.row = add i64 %a.first, %row
  %a.offset = mul i64 %a.row, %stride
  %a.start = add i64 %a.offset, %part
  %b.first = mul i64 %x64, 128
  %b.row = add i64 %b.first, %row
  %b.offset = mul i64 %b.row, %stride
  %b.start = add i64 %b.offset, %part
  %b.step = mul i64 %stride, 32
  br label %loop
loop:
  %at = phi i64 [ 0, %0 ], [ %next, %loop ]
  %sum = phi <4 x i32> [ zeroinitializer, %0 ], [ %s4, %loop ]
  %a.now = add i64 %a.start, %at
  %pa = getelementptr i8, ptr addrspace(1) %a, i64 %a.now
  %va = load <4 x i32>, ptr addrspace(1) %pa
  %b0 = add i64 %b.start, %at
  %b1 = add i64 %b0, %b.step
  %b2 = add i64 %b1, %b.step
  %b3 = add i64 %b2, %b.step
  %p0 = getelementptr i8, ptr addrspace(1) %b, i64 %b0
  %p1 = getelementptr i8, ptr addrspace(1) %b, i64 %b1
  %p2 = getelementptr i8, ptr addrspace(1) %b, i64 %b2
  %p3 = getelementptr i8, ptr addrspace(1) %b, i64 %b3
  %v0 = load <4 x i32>, ptr addrspace(1) %p0
  %v1 = load <4 x i32>, ptr addrspace(1) %p1
  %v2 = load <4 x i32>, ptr addrspace(1) %p2
  %v3 = load <4 x i32>, ptr addrspace(1) %p3
  %s0 = add <4 x i32> %sum, %va
  %s1 = add <4 x i32> %s0, %v0
  %s2 = add <4 x i32> %s1, %v1
  %s3 = add <4 x i32> %s2, %v2
  %s4 = add <4 x i32> %s3, %v3
  %next = add i64 %at, 128
  %more = icmp ult i64 %next, %stride
  br i1 %more, label %loop, label %end
end:
  %first = extractelement <4 x i32> %s4, i32 0
  %column = mul i32 %x, 256
  %lane = add i32 %column, %i
  %lane64 = zext i32 %lane to i64
  %to = getelementptr i32, ptr addrspace(1) %d, i64 %lane64
  store i32 %first, ptr addrspace(1) %to
  ret void
}

attributes #0 = { "amdgpu-flat-work-group-size"="256,256" "uniform-work-group-size"="true" }
