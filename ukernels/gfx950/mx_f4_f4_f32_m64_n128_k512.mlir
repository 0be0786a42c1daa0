// RUN: iree-opt %s

// MXFP4 x MXFP4 -> f32 on data-tiled operands, for few rows: the RHS is read from memory once and hardly reused,
// so what counts is how early and how far ahead it is asked for.
//
// The tile, computed by four waves standing side by side along N, each 64 x 32:
//   M: 16 (intrinsic) x 4 (intrinsics_m)                    = 64
//   N: 16 (intrinsic) x 2 (intrinsics_n) x 4 (subgroups_n)  = 128
//   K: 128 (intrinsic) x 4 (intrinsics_k)                   = 512
// Everything, scales too, is loaded straight into a ring of three K tiles in LDS: 153 of the 160 KiB, so that a
// workgroup has two tiles (102 KiB) on their way whatever it is computing, and no register waits for memory.
//
// Scales are in the order [3, 0, 1, 2]: thread in K, intrinsic in M or N, thread in M or N, intrinsic in K.
// The four bytes a lane needs along K are one dword, whose byte each MFMA selects.

!lhs_ty = tensor<1x?x1x4x4x4x16x32xf4E2M1FN>
!rhs_ty = tensor<1x?x1x4x2x4x4x16x32xf4E2M1FN>
!lhs_scale_ty = tensor<1x?x4x4x16x4xf8E8M0FNU>
!rhs_scale_ty = tensor<1x?x4x4x2x16x4xf8E8M0FNU>
!acc_ty = tensor<1x1x4x4x2x4x16x4xf32>

!lhs_byte_ty = tensor<1x?x1x4x4x4x16x16xi8>
!rhs_byte_ty = tensor<1x?x1x4x2x4x4x16x16xi8>
!lhs_scale_byte_ty = tensor<1x?x4x4x16x4xi8>
!rhs_scale_byte_ty = tensor<1x?x4x4x2x16x4xi8>

!lhs_packed_ty = memref<1x?x1x4x4x4x16x16xi8, strided<[?, 16384, 16384, 4096, 1024, 256, 16, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!rhs_packed_ty = memref<1x?x1x4x2x4x4x16x16xi8, strided<[?, 32768, 32768, 8192, 4096, 1024, 256, 16, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!lhs_scale_packed_ty = memref<1x?x4x4x16x4xi8, strided<[?, 1024, 256, 64, 4, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!rhs_scale_packed_ty = memref<1x?x4x4x2x16x4xi8, strided<[?, 2048, 512, 128, 64, 4, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>

// What is copied, tile by tile.
!lhs_buffer_ty = memref<?x16384xi8, strided<[?, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!rhs_buffer_ty = memref<?x32768xi8, strided<[?, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!lhs_scale_buffer_ty = memref<?x1024xi8, strided<[?, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!rhs_scale_buffer_ty = memref<?x2048xi8, strided<[?, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!lhs_ring_ty = memref<3x16384xi8, #gpu.address_space<workgroup>>
!rhs_ring_ty = memref<3x32768xi8, #gpu.address_space<workgroup>>
!lhs_scale_ring_ty = memref<3x1024xi8, #gpu.address_space<workgroup>>
!rhs_scale_ring_ty = memref<3x2048xi8, #gpu.address_space<workgroup>>

// The same as it is read: after the stage come the packed dimensions.
!lhs_read_ty = memref<3x4x4x4x16x16xi8, #gpu.address_space<workgroup>>
!rhs_read_ty = memref<3x4x2x4x4x16x16xi8, #gpu.address_space<workgroup>>
!lhs_scale_read_ty = memref<3x4x4x16x4xi8, #gpu.address_space<workgroup>>
!rhs_scale_read_ty = memref<3x4x4x2x16x4xi8, #gpu.address_space<workgroup>>

!acc_vec_ty = vector<4x2x4x1xf32>
!lhs_vec_ty = vector<4x1x1x1x16xi8>
!rhs_vec_ty = vector<2x1x1x1x16xi8>
!lhs_scale_vec_ty = vector<4x1x4xi8>
!rhs_scale_vec_ty = vector<2x1x4xi8>

// A second copy of the loop would only cost instruction cache.
#no_unroll = #llvm.loop_annotation<unroll = <disable = true>, peeled = <count = 0>>

#mfma = #iree_gpu.scaled_mma_layout<
  intrinsic = MFMA_SCALE_F32_16x16x128_B32,
  lhs_elem_type = f4E2M1FN, rhs_elem_type = f4E2M1FN, acc_elem_type = f32>

util.func private @mx_f4_f4_f32_m64_n128_k512(
    %lhs: !lhs_ty, %rhs: !rhs_ty, %lhs_scale: !lhs_scale_ty, %rhs_scale: !rhs_scale_ty,
    %unused_acc: !acc_ty) -> !acc_ty attributes {
  mxcomp.ukernel = {
    archs = ["gfx950"],
    types = [f4E2M1FN, f4E2M1FN, f8E8M0FNU, f8E8M0FNU, f32],
    operands = "data_tiled",
    benefit = 10,
    constraints = {k = {div = 32}},
    layout = {intrinsic = "MFMA_SCALE_F32_16x16x128_B32", intrinsics_m = 4, intrinsics_n = 2, intrinsics_k = 4,
              subgroups_m = 1, subgroups_n = 4, subgroups_k = 1,
              operands_interleaving_intrinsics_m = [2], operands_interleaving_intrinsics_n = [3],
              operands_interleaving_intrinsics_k = [2, 3], scale_permutation = [3, 0, 1, 2]},
    workgroup_size = [256, 1, 1]
  }
} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %pad = arith.constant 0 : i8
  %zero = arith.constant dense<0.0> : !acc_vec_ty
  %k = tensor.dim %lhs, %c1 : !lhs_ty
  %last = arith.subi %k, %c1 : index

  // Bytes, because nothing narrower can be loaded into LDS.
  %lhs_byte = iree_tensor_ext.bitcast %lhs : !lhs_ty{%k} -> !lhs_byte_ty{%k}
  %rhs_byte = iree_tensor_ext.bitcast %rhs : !rhs_ty{%k} -> !rhs_byte_ty{%k}
  %lhs_scale_byte = iree_tensor_ext.bitcast %lhs_scale : !lhs_scale_ty{%k} -> !lhs_scale_byte_ty{%k}
  %rhs_scale_byte = iree_tensor_ext.bitcast %rhs_scale : !rhs_scale_ty{%k} -> !rhs_scale_byte_ty{%k}
  %lhs_packed = bufferization.to_buffer %lhs_byte read_only : !lhs_byte_ty to !lhs_packed_ty
  %rhs_packed = bufferization.to_buffer %rhs_byte read_only : !rhs_byte_ty to !rhs_packed_ty
  %lhs_scale_packed = bufferization.to_buffer %lhs_scale_byte read_only : !lhs_scale_byte_ty to !lhs_scale_packed_ty
  %rhs_scale_packed = bufferization.to_buffer %rhs_scale_byte read_only : !rhs_scale_byte_ty to !rhs_scale_packed_ty
  %lhs_buffer = memref.collapse_shape %lhs_packed [[0, 1], [2, 3, 4, 5, 6, 7]] : !lhs_packed_ty into !lhs_buffer_ty
  %rhs_buffer = memref.collapse_shape %rhs_packed [[0, 1], [2, 3, 4, 5, 6, 7, 8]] : !rhs_packed_ty into !rhs_buffer_ty
  %lhs_scale_buffer = memref.collapse_shape %lhs_scale_packed [[0, 1], [2, 3, 4, 5]] : !lhs_scale_packed_ty into !lhs_scale_buffer_ty
  %rhs_scale_buffer = memref.collapse_shape %rhs_scale_packed [[0, 1], [2, 3, 4, 5, 6]] : !rhs_scale_packed_ty into !rhs_scale_buffer_ty

  %lhs_ring = memref.alloc() : !lhs_ring_ty
  %rhs_ring = memref.alloc() : !rhs_ring_ty
  %lhs_scale_ring = memref.alloc() : !lhs_scale_ring_ty
  %rhs_scale_ring = memref.alloc() : !rhs_scale_ring_ty
  %lhs_read = memref.expand_shape %lhs_ring [[0], [1, 2, 3, 4, 5]] output_shape [3, 4, 4, 4, 16, 16] : !lhs_ring_ty into !lhs_read_ty
  %rhs_read = memref.expand_shape %rhs_ring [[0], [1, 2, 3, 4, 5, 6]] output_shape [3, 4, 2, 4, 4, 16, 16] : !rhs_ring_ty into !rhs_read_ty
  %lhs_scale_read = memref.expand_shape %lhs_scale_ring [[0], [1, 2, 3, 4]] output_shape [3, 4, 4, 16, 4] : !lhs_scale_ring_ty into !lhs_scale_read_ty
  %rhs_scale_read = memref.expand_shape %rhs_scale_ring [[0], [1, 2, 3, 4, 5]] output_shape [3, 4, 4, 2, 16, 4] : !rhs_scale_ring_ty into !rhs_scale_read_ty

  %empty = tensor.empty() : !acc_ty
  %result = scf.forall (%id) in (256) shared_outs(%out = %empty) -> !acc_ty {
    %wave, %g, %r = affine.delinearize_index %id into (4, 4, 16) : index, index, index

    %lane = affine.linearize_index disjoint [%g, %r] by (4, 16) : index
    %lhs_scale_piece = affine.linearize_index disjoint [%wave, %c0] by (4, 256) : index
    %lhs_scale_from = affine.linearize_index disjoint [%wave, %lane, %c0] by (4, 64, 4) : index

    // Fill the ring. Tiles past the last one repeat it: what they bring is never used.
    scf.for %s = %c0 to %c3 step %c1 {
      %tile = arith.minui %s, %last : index
      scf.for %j = %c0 to %c4 step %c1 {
        %piece = affine.linearize_index disjoint [%wave, %j, %c0] by (4, 4, 1024) : index
        %from = affine.linearize_index disjoint [%wave, %j, %lane, %c0] by (4, 4, 64, 16) : index
        amdgpu.gather_to_lds async %lhs_buffer[%tile, %from], %lhs_ring[%s, %piece] : vector<16xi8>, !lhs_buffer_ty, !lhs_ring_ty
      } {unroll_loop}
      scf.for %j = %c0 to %c8 step %c1 {
        %piece = affine.linearize_index disjoint [%wave, %j, %c0] by (4, 8, 1024) : index
        %from = affine.linearize_index disjoint [%wave, %j, %lane, %c0] by (4, 8, 64, 16) : index
        amdgpu.gather_to_lds async %rhs_buffer[%tile, %from], %rhs_ring[%s, %piece] : vector<16xi8>, !rhs_buffer_ty, !rhs_ring_ty
      } {unroll_loop}
      amdgpu.gather_to_lds async %lhs_scale_buffer[%tile, %lhs_scale_from], %lhs_scale_ring[%s, %lhs_scale_piece]
        : vector<4xi8>, !lhs_scale_buffer_ty, !lhs_scale_ring_ty
      scf.for %j = %c0 to %c2 step %c1 {
        %piece = affine.linearize_index disjoint [%wave, %j, %c0] by (4, 2, 256) : index
        %from = affine.linearize_index disjoint [%wave, %j, %lane, %c0] by (4, 2, 64, 4) : index
        amdgpu.gather_to_lds async %rhs_scale_buffer[%tile, %from], %rhs_scale_ring[%s, %piece]
          : vector<4xi8>, !rhs_scale_buffer_ty, !rhs_scale_ring_ty
      } {unroll_loop}
      rocdl.asyncmark
    } {unroll_loop}

    // A wave waits for what it copied itself, the barrier for what the others did.
    rocdl.wait.asyncmark 2
    amdgpu.lds_barrier
    %a0 = vector.transfer_read %lhs_read[%c0, %c0, %c0, %g, %r, %c0], %pad {in_bounds = [true, true, true, true, true]}
      : !lhs_read_ty, !lhs_vec_ty
    %b0 = vector.transfer_read %rhs_read[%c0, %wave, %c0, %c0, %g, %r, %c0], %pad {in_bounds = [true, true, true, true, true]}
      : !rhs_read_ty, !rhs_vec_ty
    %as0 = vector.transfer_read %lhs_scale_read[%c0, %g, %c0, %r, %c0], %pad {in_bounds = [true, true, true]}
      : !lhs_scale_read_ty, !lhs_scale_vec_ty
    %bs0 = vector.transfer_read %rhs_scale_read[%c0, %wave, %g, %c0, %r, %c0], %pad {in_bounds = [true, true, true]}
      : !rhs_scale_read_ty, !rhs_scale_vec_ty

    %loop:5 = scf.for %i = %c0 to %k step %c1 iter_args(%acc_i = %zero, %a_i = %a0, %b_i = %b0, %as_i = %as0, %bs_i = %bs0)
        -> (!acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty) {
      %stage = arith.remui %i, %c3 : index
      %next_i = arith.addi %i, %c1 : index
      %next_stage = arith.remui %next_i, %c3 : index
      %ahead_i = arith.addi %i, %c3 : index
      %ahead = arith.minui %ahead_i, %last : index

      // To [intrinsic in K, intrinsic in M or N].
      %as_byte = vector.shape_cast %as_i : !lhs_scale_vec_ty to vector<4x4xi8>
      %as_mk = arith.bitcast %as_byte : vector<4x4xi8> to vector<4x4xf8E8M0FNU>
      %as = vector.transpose %as_mk, [1, 0] : vector<4x4xf8E8M0FNU> to vector<4x4xf8E8M0FNU>
      %bs_byte = vector.shape_cast %bs_i : !rhs_scale_vec_ty to vector<2x4xi8>
      %bs_nk = arith.bitcast %bs_byte : vector<2x4xi8> to vector<2x4xf8E8M0FNU>
      %bs = vector.transpose %bs_nk, [1, 0] : vector<2x4xf8E8M0FNU> to vector<4x2xf8E8M0FNU>

      // While one step in K is multiplied, the next is read.
      %steps:5 = scf.for %kk = %c0 to %c4 step %c1 iter_args(%acc_kk = %acc_i, %a_kk = %a_i, %b_kk = %b_i, %as_kk = %as_i, %bs_kk = %bs_i)
          -> (!acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty) {
        %end = arith.cmpi eq, %kk, %c3 : index
        %next:4 = scf.if %end -> (!lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty) {
          // Past the barrier the next tile is there and everybody has read this one, whose place is filled again.
          rocdl.wait.asyncmark 1
          amdgpu.lds_barrier
          %a_next = vector.transfer_read %lhs_read[%next_stage, %c0, %c0, %g, %r, %c0], %pad {in_bounds = [true, true, true, true, true]}
            : !lhs_read_ty, !lhs_vec_ty
          %b_next = vector.transfer_read %rhs_read[%next_stage, %wave, %c0, %c0, %g, %r, %c0], %pad {in_bounds = [true, true, true, true, true]}
            : !rhs_read_ty, !rhs_vec_ty
          %as_next = vector.transfer_read %lhs_scale_read[%next_stage, %g, %c0, %r, %c0], %pad {in_bounds = [true, true, true]}
            : !lhs_scale_read_ty, !lhs_scale_vec_ty
          %bs_next = vector.transfer_read %rhs_scale_read[%next_stage, %wave, %g, %c0, %r, %c0], %pad {in_bounds = [true, true, true]}
            : !rhs_scale_read_ty, !rhs_scale_vec_ty
          scf.for %j = %c0 to %c4 step %c1 {
            %piece = affine.linearize_index disjoint [%wave, %j, %c0] by (4, 4, 1024) : index
            %from = affine.linearize_index disjoint [%wave, %j, %lane, %c0] by (4, 4, 64, 16) : index
            amdgpu.gather_to_lds async %lhs_buffer[%ahead, %from], %lhs_ring[%stage, %piece] : vector<16xi8>, !lhs_buffer_ty, !lhs_ring_ty
          } {unroll_loop}
          scf.for %j = %c0 to %c8 step %c1 {
            %piece = affine.linearize_index disjoint [%wave, %j, %c0] by (4, 8, 1024) : index
            %from = affine.linearize_index disjoint [%wave, %j, %lane, %c0] by (4, 8, 64, 16) : index
            amdgpu.gather_to_lds async %rhs_buffer[%ahead, %from], %rhs_ring[%stage, %piece] : vector<16xi8>, !rhs_buffer_ty, !rhs_ring_ty
          } {unroll_loop}
          amdgpu.gather_to_lds async %lhs_scale_buffer[%ahead, %lhs_scale_from], %lhs_scale_ring[%stage, %lhs_scale_piece]
            : vector<4xi8>, !lhs_scale_buffer_ty, !lhs_scale_ring_ty
          scf.for %j = %c0 to %c2 step %c1 {
            %piece = affine.linearize_index disjoint [%wave, %j, %c0] by (4, 2, 256) : index
            %from = affine.linearize_index disjoint [%wave, %j, %lane, %c0] by (4, 2, 64, 4) : index
            amdgpu.gather_to_lds async %rhs_scale_buffer[%ahead, %from], %rhs_scale_ring[%stage, %piece]
              : vector<4xi8>, !rhs_scale_buffer_ty, !rhs_scale_ring_ty
          } {unroll_loop}
          rocdl.asyncmark
          scf.yield %a_next, %b_next, %as_next, %bs_next : !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty
        } else {
          %kk_next = arith.addi %kk, %c1 : index
          %a_next = vector.transfer_read %lhs_read[%stage, %c0, %kk_next, %g, %r, %c0], %pad {in_bounds = [true, true, true, true, true]}
            : !lhs_read_ty, !lhs_vec_ty
          %b_next = vector.transfer_read %rhs_read[%stage, %wave, %c0, %kk_next, %g, %r, %c0], %pad {in_bounds = [true, true, true, true, true]}
            : !rhs_read_ty, !rhs_vec_ty
          scf.yield %a_next, %b_next, %as_kk, %bs_kk : !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty
        }

        %a_byte = vector.shape_cast %a_kk : !lhs_vec_ty to vector<4x16xi8>
        %a = vector.bitcast %a_byte : vector<4x16xi8> to vector<4x32xf4E2M1FN>
        %b_byte = vector.shape_cast %b_kk : !rhs_vec_ty to vector<2x16xi8>
        %b = vector.bitcast %b_byte : vector<2x16xi8> to vector<2x32xf4E2M1FN>
        %as_m = vector.extract %as[%kk] : vector<4xf8E8M0FNU> from vector<4x4xf8E8M0FNU>
        %as_m1 = vector.shape_cast %as_m : vector<4xf8E8M0FNU> to vector<4x1xf8E8M0FNU>
        %bs_n = vector.extract %bs[%kk] : vector<2xf8E8M0FNU> from vector<4x2xf8E8M0FNU>
        %bs_n1 = vector.shape_cast %bs_n : vector<2xf8E8M0FNU> to vector<2x1xf8E8M0FNU>
        %dot = iree_codegen.inner_tiled ins(%a, %b, %as_m1, %bs_n1) outs(%acc_kk) <
          indexing_maps = [affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (n)>, affine_map<(m, n) -> (m)>, affine_map<(m, n) -> (n)>,
                           affine_map<(m, n) -> (m, n)>],
          iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>],
          kind = #mfma, semantics = #iree_gpu.mma_semantics<distributed = true, opaque = false>
        > : vector<4x32xf4E2M1FN>, vector<2x32xf4E2M1FN>, vector<4x1xf8E8M0FNU>, vector<2x1xf8E8M0FNU> into !acc_vec_ty
        rocdl.sched.barrier none
        scf.yield %dot, %next#0, %next#1, %next#2, %next#3 : !acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty
      } {unroll_loop}
      scf.yield %steps#0, %steps#1, %steps#2, %steps#3, %steps#4 : !acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty
    } {llvm.loop_annotation = #no_unroll}
    // Nothing may arrive in LDS that another kernel or the next tile of this workgroup has taken over.
    rocdl.wait.asyncmark 0

    %store = vector.shape_cast %loop#0 : !acc_vec_ty to vector<1x1x1x4x2x1x1x4xf32>
    %tile_empty = tensor.empty() : tensor<1x1x1x4x2x1x1x4xf32>
    %tile = vector.transfer_write %store, %tile_empty[%c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0]
      {in_bounds = [true, true, true, true, true, true, true, true]} : vector<1x1x1x4x2x1x1x4xf32>, tensor<1x1x1x4x2x1x1x4xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %tile into %out[0, 0, %wave, 0, 0, %g, %r, 0] [1, 1, 1, 4, 2, 1, 1, 4] [1, 1, 1, 1, 1, 1, 1, 1]
        : tensor<1x1x1x4x2x1x1x4xf32> into !acc_ty
    }
  } {mapping = [#gpu.thread<linear_dim_0>]}
  util.return %result : !acc_ty
}
