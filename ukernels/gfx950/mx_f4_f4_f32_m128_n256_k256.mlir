// RUN: iree-opt %s

// MXFP4 x MXFP4 -> f32 on data-tiled operands, for problems that are limited by the matrix pipe.
//
// The tile, computed by four waves standing side by side along N, each 128 x 64:
//   M: 16 (intrinsic) x 8 (intrinsics_m)                    = 128
//   N: 16 (intrinsic) x 4 (intrinsics_n) x 4 (subgroups_n)  = 256
//   K: 128 (intrinsic) x 2 (intrinsics_k)                   = 256
// So no two waves want the same RHS: packing has put it in register order and each wave loads its own fragments
// straight into registers. All waves want the whole LHS: it goes through a ring in LDS, loaded without registers.
//
// A lane has 128 accumulators, 64 registers of LHS, 32 of RHS, 12 of scales. Below 256, two workgroups share a
// compute unit and fill each other's gaps; 48 of its 160 KiB of LDS each leave room for both.
//
// Every load goes where the value it replaces was used last: an RHS fragment is loaded for the next K tile as soon
// as its eight MFMAs are issued, almost a tile before it is needed, without a second set of registers.

!lhs_ty = tensor<1x?x1x8x2x4x16x32xf4E2M1FN>
!rhs_ty = tensor<1x?x1x4x4x2x4x16x32xf4E2M1FN>
!lhs_scale_ty = tensor<1x?x4x16x8x2xf8E8M0FNU>
!rhs_scale_ty = tensor<1x?x4x4x16x4x2xf8E8M0FNU>
!acc_ty = tensor<1x1x4x8x4x4x16x4xf32>

!lhs_byte_ty = tensor<1x?x1x8x2x4x16x16xi8>
!rhs_byte_ty = tensor<1x?x1x4x4x2x4x16x16xi8>
!lhs_scale_byte_ty = tensor<1x?x4x16x8x2xi8>
!rhs_scale_byte_ty = tensor<1x?x4x4x16x4x2xi8>

!lhs_packed_ty = memref<1x?x1x8x2x4x16x16xi8, strided<[?, 16384, 16384, 2048, 1024, 256, 16, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!rhs_packed_ty = memref<1x?x1x4x4x2x4x16x16xi8, strided<[?, 32768, 32768, 8192, 2048, 1024, 256, 16, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!lhs_scale_packed_ty = memref<1x?x4x16x8x2xi8, strided<[?, 1024, 256, 16, 2, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!rhs_scale_packed_ty = memref<1x?x4x4x16x4x2xi8, strided<[?, 2048, 512, 128, 8, 2, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>

// What the loop indexes: K tile, (wave,) fragment = intrinsic in M or N and intrinsic in K, lane, byte.
!lhs_buffer_ty = memref<?x16x64x16xi8, strided<[?, 1024, 16, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!rhs_buffer_ty = memref<?x4x4x2x64x16xi8, strided<[?, 8192, 2048, 1024, 16, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!lhs_scale_buffer_ty = memref<?x64x16xi8, strided<[?, 16, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!rhs_scale_buffer_ty = memref<?x256x8xi8, strided<[?, 8, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>

// Three K tiles, as copied by fragments and as read by pairs of intrinsics in M.
!ring_ty = memref<3x16x64x16xi8, #gpu.address_space<workgroup>>
!ring_read_ty = memref<3x4x2x2x64x16xi8, #gpu.address_space<workgroup>>

// In registers: intrinsics in M by pairs, intrinsics in K and N, intrinsics in N and M.
!lhs_vec_ty = vector<4x2x16xi8>
!rhs_vec_ty = vector<2x4x16xi8>
!acc_vec_ty = vector<4x8x4x1xf32>

// Unrolled, the loop would need more than 256 registers.
#no_unroll = #llvm.loop_annotation<unroll = <disable = true>, peeled = <count = 0>>

#mfma = #iree_gpu.scaled_mma_layout<
  intrinsic = MFMA_SCALE_F32_16x16x128_B32,
  lhs_elem_type = f4E2M1FN, rhs_elem_type = f4E2M1FN, acc_elem_type = f32>

util.func private @mx_f4_f4_f32_m128_n256_k256(
    %lhs: !lhs_ty, %rhs: !rhs_ty, %lhs_scale: !lhs_scale_ty, %rhs_scale: !rhs_scale_ty,
    %unused_acc: !acc_ty) -> !acc_ty attributes {
  mxcomp.ukernel = {
    archs = ["gfx950"],
    types = [f4E2M1FN, f4E2M1FN, f8E8M0FNU, f8E8M0FNU, f32],
    operands = "data_tiled",
    benefit = 20,
    constraints = {m = {min = 65}, k = {div = 32}},
    layout = {intrinsic = "MFMA_SCALE_F32_16x16x128_B32", intrinsics_m = 8, intrinsics_n = 4, intrinsics_k = 2,
              subgroups_m = 1, subgroups_n = 4, subgroups_k = 1,
              operands_interleaving_intrinsics_m = [2], operands_interleaving_intrinsics_n = [3],
              operands_interleaving_intrinsics_k = [2, 3]},
    workgroup_size = [256, 1, 1],
    llvm_func_attrs = {"amdgpu-waves-per-eu" = "2"}
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
  %lhs_buffer = memref.collapse_shape %lhs_packed [[0, 1], [2, 3, 4], [5, 6], [7]] : !lhs_packed_ty into !lhs_buffer_ty
  %rhs_buffer = memref.collapse_shape %rhs_packed [[0, 1], [2, 3], [4], [5], [6, 7], [8]] : !rhs_packed_ty into !rhs_buffer_ty
  %lhs_scale_buffer = memref.collapse_shape %lhs_scale_packed [[0, 1], [2, 3], [4, 5]] : !lhs_scale_packed_ty into !lhs_scale_buffer_ty
  %rhs_scale_buffer = memref.collapse_shape %rhs_scale_packed [[0, 1], [2, 3, 4], [5, 6]] : !rhs_scale_packed_ty into !rhs_scale_buffer_ty

  %ring = memref.alloc() : !ring_ty
  %ring_read = memref.expand_shape %ring [[0], [1, 2, 3], [4], [5]] output_shape [3, 4, 2, 2, 64, 16] : !ring_ty into !ring_read_ty

  %empty = tensor.empty() : !acc_ty
  %result = scf.forall (%id) in (256) shared_outs(%out = %empty) -> !acc_ty {
    %wave, %lane = affine.delinearize_index %id into (4, 64) : index, index
    %g, %r = affine.delinearize_index %lane into (4, 16) : index, index
    %fragment0 = arith.muli %wave, %c4 : index

    // Ask for the first tiles in the order in which the loop goes on, which is the order in which loads return.
    // Tiles past the last one repeat it: what they bring is never used.
    scf.for %s = %c0 to %c2 step %c1 {
      %tile = arith.minui %s, %last : index
      scf.for %n = %c0 to %c4 step %c1 {
        %fragment = arith.addi %fragment0, %n : index
        amdgpu.gather_to_lds async %lhs_buffer[%tile, %fragment, %lane, %c0], %ring[%s, %fragment, %c0, %c0]
          : vector<16xi8>, !lhs_buffer_ty, !ring_ty
      } {unroll_loop}
      rocdl.asyncmark
    } {unroll_loop}
    rocdl.sched.barrier none

    %tile2 = arith.minui %c2, %last : index
    %as0 = vector.load %lhs_scale_buffer[%c0, %lane, %c0] : !lhs_scale_buffer_ty, vector<16xi8>
    %bs0 = vector.load %rhs_scale_buffer[%c0, %id, %c0] : !rhs_scale_buffer_ty, vector<8xi8>
    %b_none = arith.constant dense<0> : !rhs_vec_ty
    %b0 = scf.for %kk = %c0 to %c2 step %c1 iter_args(%b_kk = %b_none) -> !rhs_vec_ty {
      %second = arith.cmpi eq, %kk, %c1 : index
      %b_columns = scf.for %n = %c0 to %c4 step %c1 iter_args(%b_n = %b_kk) -> !rhs_vec_ty {
        rocdl.sched.barrier none
        scf.if %second {
          %fragment = arith.addi %fragment0, %n : index
          amdgpu.gather_to_lds async %lhs_buffer[%tile2, %fragment, %lane, %c0], %ring[%c2, %fragment, %c0, %c0]
            : vector<16xi8>, !lhs_buffer_ty, !ring_ty
        }
        rocdl.sched.barrier none
        %b_byte = vector.load %rhs_buffer[%c0, %wave, %n, %kk, %lane, %c0] : !rhs_buffer_ty, vector<16xi8>
        %b_out = vector.insert %b_byte, %b_n[%kk, %n] : vector<16xi8> into !rhs_vec_ty
        scf.yield %b_out : !rhs_vec_ty
      } {unroll_loop}
      scf.yield %b_columns : !rhs_vec_ty
    } {unroll_loop}
    rocdl.asyncmark

    // A wave waits for what it copied itself, the barrier for what the others did.
    rocdl.wait.asyncmark 2
    amdgpu.lds_barrier
    %a0_read = vector.transfer_read %ring_read[%c0, %c0, %c0, %c0, %lane, %c0], %pad {in_bounds = [true, true, true, true, true]}
      : !ring_read_ty, vector<4x2x1x1x16xi8>
    %a0 = vector.shape_cast %a0_read : vector<4x2x1x1x16xi8> to !lhs_vec_ty

    %loop:5 = scf.for %i = %c0 to %k step %c1 iter_args(%acc_i = %zero, %a_i = %a0, %b_i = %b0, %as_i = %as0, %bs_i = %bs0)
        -> (!acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, vector<16xi8>, vector<8xi8>) {
      %next_i = arith.addi %i, %c1 : index
      %is_last = arith.cmpi eq, %next_i, %k : index
      %next = arith.select %is_last, %c0, %next_i : index
      %ahead_i = arith.addi %i, %c3 : index
      %ahead = arith.minui %ahead_i, %last : index
      %stage = arith.remui %i, %c3 : index
      %as_next = vector.load %lhs_scale_buffer[%next, %lane, %c0] : !lhs_scale_buffer_ty, vector<16xi8>
      %bs_next = vector.load %rhs_scale_buffer[%next, %id, %c0] : !rhs_scale_buffer_ty, vector<8xi8>
      rocdl.sched.barrier none
      %as_byte = vector.shape_cast %as_i : vector<16xi8> to vector<8x2xi8>
      %bs_byte = vector.shape_cast %bs_i : vector<8xi8> to vector<4x2xi8>
      %as_mk = arith.bitcast %as_byte : vector<8x2xi8> to vector<8x2xf8E8M0FNU>
      %bs = arith.bitcast %bs_byte : vector<4x2xi8> to vector<4x2xf8E8M0FNU>
      %as = vector.transpose %as_mk, [1, 0] : vector<8x2xf8E8M0FNU> to vector<2x8xf8E8M0FNU>

      %halves:3 = scf.for %kk = %c0 to %c2 step %c1 iter_args(%acc_kk = %acc_i, %a_kk = %a_i, %b_kk = %b_i)
          -> (!acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty) {
        %second = arith.cmpi eq, %kk, %c1 : index
        scf.if %second {
          // Past the barrier the next tile is there and everybody has read this one, whose place is filled again.
          rocdl.wait.asyncmark 1
          amdgpu.lds_barrier
        }
        // While one step in K is multiplied, the next is read.
        %read_i = arith.addi %i, %kk : index
        %read_stage = arith.remui %read_i, %c3 : index
        %read_kk = arith.subi %c1, %kk : index
        %a_flat = vector.shape_cast %a_kk : !lhs_vec_ty to vector<8x16xi8>
        %a = vector.bitcast %a_flat : vector<8x16xi8> to vector<8x32xf4E2M1FN>
        %as_m = vector.extract %as[%kk] : vector<8xf8E8M0FNU> from vector<2x8xf8E8M0FNU>
        %as_m1 = vector.shape_cast %as_m : vector<8xf8E8M0FNU> to vector<8x1xf8E8M0FNU>

        %columns:3 = scf.for %n = %c0 to %c4 step %c1 iter_args(%acc_n = %acc_kk, %a_n = %a_kk, %b_n = %b_kk)
            -> (!acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty) {
          scf.if %second {
            %fragment = arith.addi %fragment0, %n : index
            amdgpu.gather_to_lds async %lhs_buffer[%ahead, %fragment, %lane, %c0], %ring[%stage, %fragment, %c0, %c0]
              : vector<16xi8>, !lhs_buffer_ty, !ring_ty
          }
          %a_read = vector.transfer_read %ring_read[%read_stage, %n, %c0, %read_kk, %lane, %c0], %pad {in_bounds = [true, true, true, true]}
            : !ring_read_ty, vector<2x1x1x16xi8>
          %a_pair = vector.shape_cast %a_read : vector<2x1x1x16xi8> to vector<2x16xi8>
          %a_out = vector.insert %a_pair, %a_n[%n] : vector<2x16xi8> into !lhs_vec_ty

          %b_byte = vector.extract %b_n[%kk, %n] : vector<16xi8> from !rhs_vec_ty
          %b = vector.bitcast %b_byte : vector<16xi8> to vector<32xf4E2M1FN>
          %bs_n = vector.extract %bs[%n, %kk] : f8E8M0FNU from vector<4x2xf8E8M0FNU>
          %bs_n1 = vector.broadcast %bs_n : f8E8M0FNU to vector<1xf8E8M0FNU>
          %acc = vector.extract %acc_n[%n] : vector<8x4x1xf32> from !acc_vec_ty
          %dot = iree_codegen.inner_tiled ins(%a, %b, %as_m1, %bs_n1) outs(%acc) <
            indexing_maps = [affine_map<(m) -> (m)>, affine_map<(m) -> ()>, affine_map<(m) -> (m)>, affine_map<(m) -> ()>, affine_map<(m) -> (m)>],
            iterator_types = [#linalg.iterator_type<parallel>],
            kind = #mfma, semantics = #iree_gpu.mma_semantics<distributed = true, opaque = false>
          > : vector<8x32xf4E2M1FN>, vector<32xf4E2M1FN>, vector<8x1xf8E8M0FNU>, vector<1xf8E8M0FNU> into vector<8x4x1xf32>
          %acc_out = vector.insert %dot, %acc_n[%n] : vector<8x4x1xf32> into !acc_vec_ty
          // An MFMA issues in 4 of its 16 cycles: spread the rest of this column over the other 12. The fence keeps
          // the next load of %b_byte behind its last use.
          scf.for %mfma = %c0 to %c8 step %c1 {
            rocdl.sched.group.barrier mfma_wmma, 1, 0
            rocdl.sched.group.barrier all_vmem, 1, 0
            rocdl.sched.group.barrier ds_read, 1, 0
          } {unroll_loop}
          rocdl.sched.barrier none
          %b_next = vector.load %rhs_buffer[%next, %wave, %n, %kk, %lane, %c0] : !rhs_buffer_ty, vector<16xi8>
          %b_out = vector.insert %b_next, %b_n[%kk, %n] : vector<16xi8> into !rhs_vec_ty
          scf.yield %acc_out, %a_out, %b_out : !acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty
        } {unroll_loop}
        scf.if %second {
          rocdl.asyncmark
        }
        scf.yield %columns#0, %columns#1, %columns#2 : !acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty
      } {unroll_loop}
      scf.yield %halves#0, %halves#1, %halves#2, %as_next, %bs_next : !acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, vector<16xi8>, vector<8xi8>
    } {llvm.loop_annotation = #no_unroll}
    // Nothing may arrive in LDS that another kernel or the next tile of this workgroup has taken over.
    rocdl.wait.asyncmark 0

    %mn = vector.transpose %loop#0, [1, 0, 2, 3] : !acc_vec_ty to vector<8x4x4x1xf32>
    %store = vector.shape_cast %mn : vector<8x4x4x1xf32> to vector<1x1x1x8x4x1x1x4xf32>
    %tile_empty = tensor.empty() : tensor<1x1x1x8x4x1x1x4xf32>
    %tile = vector.transfer_write %store, %tile_empty[%c0, %c0, %c0, %c0, %c0, %c0, %c0, %c0]
      {in_bounds = [true, true, true, true, true, true, true, true]} : vector<1x1x1x8x4x1x1x4xf32>, tensor<1x1x1x8x4x1x1x4xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %tile into %out[0, 0, %wave, 0, 0, %g, %r, 0] [1, 1, 1, 8, 4, 1, 1, 4] [1, 1, 1, 1, 1, 1, 1, 1]
        : tensor<1x1x1x8x4x1x1x4xf32> into !acc_ty
    }
  } {mapping = [#gpu.thread<linear_dim_0>]}
  util.return %result : !acc_ty
}
