// RUN: iree-opt %s

// MXFP4 x MXFP4 -> f32 on operands as they are, without data tiling.
//
// The tile, computed by four waves standing side by side along N, each 128 x 64:
//   M: 16 (MFMA) x 8 = 128,  N: 16 (MFMA) x 4 x 4 (waves) = 256,  K: 128 (MFMA) x 2 = 256
// Tiles at the border are smaller (hence the dynamic types): rows past the end are read as the last row and not
// stored, blocks past the end of K are read from outside the buffer, which puts zeros into LDS.
//
// Everything is loaded straight into a ring of three K tiles in LDS (153 of 160 KiB), which is where layouts change:
//  - A row of a tile is 128 bytes, fetched by eight neighbouring lanes. Piece p of row q is stored at p ^ (q mod 8),
//    so that the 16 rows an MFMA reads at once lie in different banks.
//  - Rows are stored in the order in which the MFMA takes them, and that is chosen for the result: the four
//    fragments of a wave take every fourth of its 64 columns, the four row groups g of an MFMA every fourth row.
//    So lane (g, r) ends up with rows g, g + 4, ... and columns 4r .. 4r + 3: one slice, stored by 128-bit stores.

!data_ty = tensor<?x?x32xf4E2M1FN>
!scale_ty = tensor<?x?xf8E8M0FNU>
!acc_ty = tensor<?x?xf32>

!data_byte_ty = tensor<?x?x16xi8>
!scale_byte_ty = tensor<?x?xi8>
!data_buffer_ty = memref<?x?x16xi8, strided<[?, 16, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>
!scale_buffer_ty = memref<?x?xi8, strided<[?, 1], offset: ?>, #amdgpu.address_space<fat_raw_buffer>>

// As copied: stage, wave, bytes. As read: stage, fragment, row, piece, bytes.
!lhs_ring_ty = memref<3x4x4096xi8, #gpu.address_space<workgroup>>
!rhs_ring_ty = memref<3x4x8192xi8, #gpu.address_space<workgroup>>
!lhs_scale_ring_ty = memref<3x4x256xi8, #gpu.address_space<workgroup>>
!rhs_scale_ring_ty = memref<3x4x512xi8, #gpu.address_space<workgroup>>
!lhs_read_ty = memref<3x4x2x16x8x16xi8, #gpu.address_space<workgroup>>
!rhs_read_ty = memref<3x4x4x16x8x16xi8, #gpu.address_space<workgroup>>
!lhs_scale_read_ty = memref<3x4x2x16x8xi8, #gpu.address_space<workgroup>>
!rhs_scale_read_ty = memref<3x4x4x16x8xi8, #gpu.address_space<workgroup>>

!acc_vec_ty = vector<4x8x4x1xf32>
!lhs_vec_ty = vector<4x2x16xi8>
!rhs_vec_ty = vector<4x16xi8>
!lhs_scale_vec_ty = vector<4x2x1x8xi8>
!rhs_scale_vec_ty = vector<4x1x8xi8>

// A second copy of the loop would only cost instruction cache.
#no_unroll = #llvm.loop_annotation<unroll = <disable = true>, peeled = <count = 0>>

#mfma = #iree_gpu.scaled_mma_layout<
  intrinsic = MFMA_SCALE_F32_16x16x128_B32,
  lhs_elem_type = f4E2M1FN, rhs_elem_type = f4E2M1FN, acc_elem_type = f32>

util.func private @mx_f4_f4_f32_row_major_m128_n256_k256(
    %lhs: !data_ty, %rhs: !data_ty, %lhs_scale: !scale_ty, %rhs_scale: !scale_ty, %unused_acc: !acc_ty) -> !acc_ty attributes {
  mxcomp.ukernel = {
    archs = ["gfx950"],
    types = [f4E2M1FN, f4E2M1FN, f8E8M0FNU, f8E8M0FNU, f32],
    operands = "row_major",
    benefit = 20,
    constraints = {n = {div = 4}, k = {div = 128}},
    tile = [128, 256, 256],
    workgroup_size = [256, 1, 1]
  }
} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  %c1024 = arith.constant 1024 : index
  %pad = arith.constant 0 : i8
  %zero = arith.constant dense<0.0> : !acc_vec_ty
  // 2 GiB, in blocks and in scales: outside of any buffer, and no row of one carries an offset past 4 GiB.
  %no_block = arith.constant 0x8000000 : index
  %no_scale = arith.constant 0x80000000 : index
  // An instruction copies 8 rows of data or 32 of scales. Rows of a lane in those of its wave, from the first:
  %lhs_steps = arith.constant dense<[0, 2, 16, 18]> : vector<4xindex>
  %rhs_steps = arith.constant dense<[[0, 32], [1, 33], [2, 34], [3, 35]]> : vector<4x2xindex>
  %rhs_scale_steps = arith.constant dense<[0, 2]> : vector<2xindex>
  %m = tensor.dim %lhs, %c0 : !data_ty
  %n = tensor.dim %rhs, %c0 : !data_ty
  %k = tensor.dim %lhs, %c1 : !data_ty
  %m_last = arith.subi %m, %c1 : index
  %n_last = arith.subi %n, %c1 : index
  %lhs_last = vector.broadcast %m_last : index to vector<4xindex>
  %rhs_last = vector.broadcast %n_last : index to vector<4x2xindex>
  %rhs_scale_last = vector.broadcast %n_last : index to vector<2xindex>
  %tiles = arith.ceildivui %k, %c8 : index

  %lhs_byte = iree_tensor_ext.bitcast %lhs : !data_ty{%m, %k} -> !data_byte_ty{%m, %k}
  %rhs_byte = iree_tensor_ext.bitcast %rhs : !data_ty{%n, %k} -> !data_byte_ty{%n, %k}
  %lhs_scale_byte = iree_tensor_ext.bitcast %lhs_scale : !scale_ty{%m, %k} -> !scale_byte_ty{%m, %k}
  %rhs_scale_byte = iree_tensor_ext.bitcast %rhs_scale : !scale_ty{%n, %k} -> !scale_byte_ty{%n, %k}
  %lhs_buffer = bufferization.to_buffer %lhs_byte read_only : !data_byte_ty to !data_buffer_ty
  %rhs_buffer = bufferization.to_buffer %rhs_byte read_only : !data_byte_ty to !data_buffer_ty
  %lhs_scale_buffer = bufferization.to_buffer %lhs_scale_byte read_only : !scale_byte_ty to !scale_buffer_ty
  %rhs_scale_buffer = bufferization.to_buffer %rhs_scale_byte read_only : !scale_byte_ty to !scale_buffer_ty

  %lhs_ring = memref.alloc() : !lhs_ring_ty
  %rhs_ring = memref.alloc() : !rhs_ring_ty
  %lhs_scale_ring = memref.alloc() : !lhs_scale_ring_ty
  %rhs_scale_ring = memref.alloc() : !rhs_scale_ring_ty
  %lhs_read = memref.expand_shape %lhs_ring [[0], [1], [2, 3, 4, 5]] output_shape [3, 4, 2, 16, 8, 16] : !lhs_ring_ty into !lhs_read_ty
  %rhs_read = memref.expand_shape %rhs_ring [[0], [1], [2, 3, 4, 5]] output_shape [3, 4, 4, 16, 8, 16] : !rhs_ring_ty into !rhs_read_ty
  %lhs_scale_read = memref.expand_shape %lhs_scale_ring [[0], [1], [2, 3, 4]] output_shape [3, 4, 2, 16, 8] : !lhs_scale_ring_ty into !lhs_scale_read_ty
  %rhs_scale_read = memref.expand_shape %rhs_scale_ring [[0], [1], [2, 3, 4]] output_shape [3, 4, 4, 16, 8] : !rhs_scale_ring_ty into !rhs_scale_read_ty

  %empty = tensor.empty(%m, %n) : !acc_ty
  %result = scf.forall (%id) in (256) shared_outs(%out = %empty) -> !acc_ty {
    %wave, %g, %r = affine.delinearize_index %id into (4, 4, 16) : index, index, index

    // This lane's part in copying: rows and piece of data, rows and dword of scales.
    %lane = arith.remui %id, %c64 : index
    %q, %slot = affine.delinearize_index %lane into (8, 8) : index, index
    %piece = arith.xori %slot, %q : index
    %lhs_row = affine.apply affine_map<()[w, q] -> (w * 32 + q mod 4 * 4 + q floordiv 4)>()[%wave, %q]
    %lhs_rows_i = vector.broadcast %lhs_row : index to vector<4xindex>
    %lhs_rows_all = arith.addi %lhs_rows_i, %lhs_steps : vector<4xindex>
    %lhs_rows = arith.minui %lhs_rows_all, %lhs_last : vector<4xindex>
    %rhs_row = affine.apply affine_map<()[w, q] -> (w * 64 + q * 4)>()[%wave, %q]
    %rhs_rows_i = vector.broadcast %rhs_row : index to vector<4x2xindex>
    %rhs_rows_all = arith.addi %rhs_rows_i, %rhs_steps : vector<4x2xindex>
    %rhs_rows = arith.minui %rhs_rows_all, %rhs_last : vector<4x2xindex>
    %t, %dword = affine.delinearize_index %lane into (32, 2) : index, index
    %byte = arith.muli %dword, %c4 : index
    %lhs_scale_row_i = affine.apply affine_map<()[w, t] -> (w * 32 + t floordiv 16 * 16 + t mod 4 * 4 + t mod 16 floordiv 4)>()[%wave, %t]
    %lhs_scale_row = arith.minui %lhs_scale_row_i, %m_last : index
    %rhs_scale_row = affine.apply affine_map<()[w, t] -> (w * 64 + t mod 16 * 4 + t floordiv 16)>()[%wave, %t]
    %rhs_scale_rows_i = vector.broadcast %rhs_scale_row : index to vector<2xindex>
    %rhs_scale_rows_all = arith.addi %rhs_scale_rows_i, %rhs_scale_steps : vector<2xindex>
    %rhs_scale_rows = arith.minui %rhs_scale_rows_all, %rhs_scale_last : vector<2xindex>

    // Its part in multiplying: row %r of each fragment, piece %g of each of the two steps in K, scale %g of each four.
    %r8 = arith.remui %r, %c8 : index
    %slot0 = arith.xori %g, %r8 : index
    %shift_g = arith.muli %g, %c8 : index
    %shift = arith.index_cast %shift_g : index to i64
    %lhs_shift = vector.broadcast %shift : i64 to vector<8x1xi64>
    %rhs_shift = vector.broadcast %shift : i64 to vector<4x1xi64>

    // Fill the ring. Tiles past the last one are outside of K.
    scf.for %s = %c0 to %c3 step %c1 {
      %byte0 = arith.muli %s, %c8 : index
      %byte_i = arith.addi %byte0, %byte : index
      %byte_in = arith.cmpi ult, %byte_i, %k : index
      %scale = arith.select %byte_in, %byte_i, %no_scale : index
      amdgpu.gather_to_lds async %lhs_scale_buffer[%lhs_scale_row, %scale], %lhs_scale_ring[%s, %wave, %c0]
        : vector<4xi8>, !scale_buffer_ty, !lhs_scale_ring_ty
      scf.for %j = %c0 to %c2 step %c1 {
        %row = vector.extract %rhs_scale_rows[%j] : index from vector<2xindex>
        %place = arith.muli %j, %c256 : index
        amdgpu.gather_to_lds async %rhs_scale_buffer[%row, %scale], %rhs_scale_ring[%s, %wave, %place]
          : vector<4xi8>, !scale_buffer_ty, !rhs_scale_ring_ty
      } {unroll_loop}
      scf.for %f = %c0 to %c4 step %c1 {
        %block0 = arith.muli %s, %c8 : index
        %block_i = arith.addi %block0, %piece : index
        %block_in = arith.cmpi ult, %block_i, %k : index
        %block = arith.select %block_in, %block_i, %no_block : index
        %lhs_f_row = vector.extract %lhs_rows[%f] : index from vector<4xindex>
        %lhs_place = arith.muli %f, %c1024 : index
        amdgpu.gather_to_lds async %lhs_buffer[%lhs_f_row, %block, %c0], %lhs_ring[%s, %wave, %lhs_place]
          : vector<16xi8>, !data_buffer_ty, !lhs_ring_ty
        scf.for %j = %c0 to %c2 step %c1 {
          %row = vector.extract %rhs_rows[%f, %j] : index from vector<4x2xindex>
          %place = affine.linearize_index disjoint [%f, %j, %c0] by (4, 2, 1024) : index
          amdgpu.gather_to_lds async %rhs_buffer[%row, %block, %c0], %rhs_ring[%s, %wave, %place]
            : vector<16xi8>, !data_buffer_ty, !rhs_ring_ty
        } {unroll_loop}
      } {unroll_loop}
      rocdl.asyncmark
    } {unroll_loop}

    // A wave waits for what it copied itself, the barrier for what the others did.
    rocdl.wait.asyncmark 2
    amdgpu.lds_barrier
    %a0_read = vector.transfer_read %lhs_read[%c0, %c0, %c0, %r, %slot0, %c0], %pad {in_bounds = [true, true, true, true, true]}
      : !lhs_read_ty, vector<4x2x1x1x16xi8>
    %b0_read = vector.transfer_read %rhs_read[%c0, %wave, %c0, %r, %slot0, %c0], %pad {in_bounds = [true, true, true, true]}
      : !rhs_read_ty, vector<4x1x1x16xi8>
    %as0 = vector.transfer_read %lhs_scale_read[%c0, %c0, %c0, %r, %c0], %pad {in_bounds = [true, true, true, true]}
      : !lhs_scale_read_ty, !lhs_scale_vec_ty
    %bs0 = vector.transfer_read %rhs_scale_read[%c0, %wave, %c0, %r, %c0], %pad {in_bounds = [true, true, true]}
      : !rhs_scale_read_ty, !rhs_scale_vec_ty
    %a0 = vector.shape_cast %a0_read : vector<4x2x1x1x16xi8> to !lhs_vec_ty
    %b0 = vector.shape_cast %b0_read : vector<4x1x1x16xi8> to !rhs_vec_ty

    %loop:5 = scf.for %i = %c0 to %tiles step %c1 iter_args(%acc_i = %zero, %a_i = %a0, %b_i = %b0, %as_i = %as0, %bs_i = %bs0)
        -> (!acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty) {
      %stage = arith.remui %i, %c3 : index
      %next = arith.addi %i, %c1 : index
      %next_stage = arith.remui %next, %c3 : index
      %ahead = arith.addi %i, %c3 : index

      // The eight scales of a row are one i64, shifted so that those of this lane are in bytes 0 and 4.
      %as_byte = vector.shape_cast %as_i : !lhs_scale_vec_ty to vector<8x8xi8>
      %as_bits = vector.bitcast %as_byte : vector<8x8xi8> to vector<8x1xi64>
      %as_shifted = arith.shrui %as_bits, %lhs_shift : vector<8x1xi64>
      %as_e8 = vector.bitcast %as_shifted : vector<8x1xi64> to vector<8x8xf8E8M0FNU>
      %as_mk = vector.shape_cast %as_e8 : vector<8x8xf8E8M0FNU> to vector<8x2x4xf8E8M0FNU>
      %as = vector.transpose %as_mk, [1, 2, 0] : vector<8x2x4xf8E8M0FNU> to vector<2x4x8xf8E8M0FNU>
      %bs_byte = vector.shape_cast %bs_i : !rhs_scale_vec_ty to vector<4x8xi8>
      %bs_bits = vector.bitcast %bs_byte : vector<4x8xi8> to vector<4x1xi64>
      %bs_shifted = arith.shrui %bs_bits, %rhs_shift : vector<4x1xi64>
      %bs_e8 = vector.bitcast %bs_shifted : vector<4x1xi64> to vector<4x8xf8E8M0FNU>
      %bs = vector.shape_cast %bs_e8 : vector<4x8xf8E8M0FNU> to vector<4x2x4xf8E8M0FNU>

      // While one step in K is multiplied, the next is read.
      %steps:5 = scf.for %kk = %c0 to %c2 step %c1 iter_args(%acc_kk = %acc_i, %a_kk = %a_i, %b_kk = %b_i, %as_kk = %as_i, %bs_kk = %bs_i)
          -> (!acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty) {
        %second = arith.cmpi eq, %kk, %c1 : index
        scf.if %second {
          // Past the barrier the next tile is there and everybody has read this one, whose place is filled again.
          rocdl.wait.asyncmark 1
          amdgpu.lds_barrier
        }
        %read_stage = arith.select %second, %next_stage, %stage : index
        %read_kk = arith.subi %c1, %kk : index
        %read_flip = arith.muli %read_kk, %c4 : index
        %read_slot = arith.xori %slot0, %read_flip : index
        %a_flat = vector.shape_cast %a_kk : !lhs_vec_ty to vector<8x16xi8>
        %a = vector.bitcast %a_flat : vector<8x16xi8> to vector<8x32xf4E2M1FN>
        %as_m = vector.extract %as[%kk, 0] : vector<8xf8E8M0FNU> from vector<2x4x8xf8E8M0FNU>
        %as_m1 = vector.shape_cast %as_m : vector<8xf8E8M0FNU> to vector<8x1xf8E8M0FNU>

        %columns:5 = scf.for %f = %c0 to %c4 step %c1 iter_args(%acc_f = %acc_kk, %a_f = %a_kk, %b_f = %b_kk, %as_f = %as_kk, %bs_f = %bs_kk)
            -> (!acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty) {
          scf.if %second {
            %block0 = arith.muli %ahead, %c8 : index
            %block_i = arith.addi %block0, %piece : index
            %block_in = arith.cmpi ult, %block_i, %k : index
            %block = arith.select %block_in, %block_i, %no_block : index
            %lhs_f_row = vector.extract %lhs_rows[%f] : index from vector<4xindex>
            %lhs_place = arith.muli %f, %c1024 : index
            amdgpu.gather_to_lds async %lhs_buffer[%lhs_f_row, %block, %c0], %lhs_ring[%stage, %wave, %lhs_place]
              : vector<16xi8>, !data_buffer_ty, !lhs_ring_ty
            scf.for %j = %c0 to %c2 step %c1 {
              %row = vector.extract %rhs_rows[%f, %j] : index from vector<4x2xindex>
              %place = affine.linearize_index disjoint [%f, %j, %c0] by (4, 2, 1024) : index
              amdgpu.gather_to_lds async %rhs_buffer[%row, %block, %c0], %rhs_ring[%stage, %wave, %place]
                : vector<16xi8>, !data_buffer_ty, !rhs_ring_ty
            } {unroll_loop}
          }
          %second_column = arith.cmpi eq, %f, %c1 : index
          %turn = arith.andi %second, %second_column : i1
          %scales:2 = scf.if %turn -> (!lhs_scale_vec_ty, !rhs_scale_vec_ty) {
            %byte0 = arith.muli %ahead, %c8 : index
            %byte_i = arith.addi %byte0, %byte : index
            %byte_in = arith.cmpi ult, %byte_i, %k : index
            %scale = arith.select %byte_in, %byte_i, %no_scale : index
            amdgpu.gather_to_lds async %lhs_scale_buffer[%lhs_scale_row, %scale], %lhs_scale_ring[%stage, %wave, %c0]
              : vector<4xi8>, !scale_buffer_ty, !lhs_scale_ring_ty
            scf.for %j = %c0 to %c2 step %c1 {
              %row = vector.extract %rhs_scale_rows[%j] : index from vector<2xindex>
              %place = arith.muli %j, %c256 : index
              amdgpu.gather_to_lds async %rhs_scale_buffer[%row, %scale], %rhs_scale_ring[%stage, %wave, %place]
                : vector<4xi8>, !scale_buffer_ty, !rhs_scale_ring_ty
            } {unroll_loop}
            %as_next = vector.transfer_read %lhs_scale_read[%next_stage, %c0, %c0, %r, %c0], %pad {in_bounds = [true, true, true, true]}
              : !lhs_scale_read_ty, !lhs_scale_vec_ty
            %bs_next = vector.transfer_read %rhs_scale_read[%next_stage, %wave, %c0, %r, %c0], %pad {in_bounds = [true, true, true]}
              : !rhs_scale_read_ty, !rhs_scale_vec_ty
            scf.yield %as_next, %bs_next : !lhs_scale_vec_ty, !rhs_scale_vec_ty
          } else {
            scf.yield %as_f, %bs_f : !lhs_scale_vec_ty, !rhs_scale_vec_ty
          }
          %a_read = vector.transfer_read %lhs_read[%read_stage, %f, %c0, %r, %read_slot, %c0], %pad {in_bounds = [true, true, true, true]}
            : !lhs_read_ty, vector<2x1x1x16xi8>
          %a_pair = vector.shape_cast %a_read : vector<2x1x1x16xi8> to vector<2x16xi8>
          %a_next = vector.insert %a_pair, %a_f[%f] : vector<2x16xi8> into !lhs_vec_ty
          %b_read = vector.load %rhs_read[%read_stage, %wave, %f, %r, %read_slot, %c0] : !rhs_read_ty, vector<16xi8>
          %b_next = vector.insert %b_read, %b_f[%f] : vector<16xi8> into !rhs_vec_ty

          %b_byte = vector.extract %b_kk[%f] : vector<16xi8> from !rhs_vec_ty
          %b = vector.bitcast %b_byte : vector<16xi8> to vector<32xf4E2M1FN>
          %bs_n = vector.extract %bs[%f, %kk, 0] : f8E8M0FNU from vector<4x2x4xf8E8M0FNU>
          %bs_n1 = vector.broadcast %bs_n : f8E8M0FNU to vector<1xf8E8M0FNU>
          %acc = vector.extract %acc_f[%f] : vector<8x4x1xf32> from !acc_vec_ty
          %dot = iree_codegen.inner_tiled ins(%a, %b, %as_m1, %bs_n1) outs(%acc) <
            indexing_maps = [affine_map<(m) -> (m)>, affine_map<(m) -> ()>, affine_map<(m) -> (m)>, affine_map<(m) -> ()>, affine_map<(m) -> (m)>],
            iterator_types = [#linalg.iterator_type<parallel>],
            kind = #mfma, semantics = #iree_gpu.mma_semantics<distributed = true, opaque = false>
          > : vector<8x32xf4E2M1FN>, vector<32xf4E2M1FN>, vector<8x1xf8E8M0FNU>, vector<1xf8E8M0FNU> into vector<8x4x1xf32>
          %acc_next = vector.insert %dot, %acc_f[%f] : vector<8x4x1xf32> into !acc_vec_ty
          // An MFMA issues in 4 of its 16 cycles: spread the rest of this column over the other 12.
          scf.for %mfma = %c0 to %c8 step %c1 {
            rocdl.sched.group.barrier mfma_wmma, 1, 0
            rocdl.sched.group.barrier all_vmem, 1, 0
            rocdl.sched.group.barrier ds_read, 1, 0
          } {unroll_loop}
          rocdl.sched.barrier none
          scf.yield %acc_next, %a_next, %b_next, %scales#0, %scales#1
            : !acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty
        } {unroll_loop}
        scf.if %second {
          rocdl.asyncmark
        }
        scf.yield %columns#0, %columns#1, %columns#2, %columns#3, %columns#4
          : !acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty
      } {unroll_loop}
      scf.yield %steps#0, %steps#1, %steps#2, %steps#3, %steps#4
        : !acc_vec_ty, !lhs_vec_ty, !rhs_vec_ty, !lhs_scale_vec_ty, !rhs_scale_vec_ty
    } {llvm.loop_annotation = #no_unroll}
    // Nothing may arrive in LDS that another kernel or the next tile of this workgroup has taken over.
    rocdl.wait.asyncmark 0

    // [fragment, M, rows, 1] -> [M and rows, fragment]: rows %g, %g + 4, ... of four columns.
    %mjf = vector.transpose %loop#0, [1, 2, 0, 3] : !acc_vec_ty to vector<8x4x4x1xf32>
    %store = vector.shape_cast %mjf : vector<8x4x4x1xf32> to vector<32x4xf32>
    %column = affine.linearize_index disjoint [%wave, %r, %c0] by (4, 16, 4) : index
    %column_in = arith.cmpi ult, %column, %n : index
    %rows_in = affine.min affine_map<()[m, g] -> ((m - g + 3) floordiv 4, 32)>()[%m, %g]
    %rows = arith.select %column_in, %rows_in, %c0 : index
    %tile_empty = tensor.empty(%rows) : tensor<?x4xf32>
    %tile = vector.transfer_write %store, %tile_empty[%c0, %c0] {in_bounds = [false, true]} : vector<32x4xf32>, tensor<?x4xf32>
    scf.forall.in_parallel {
      tensor.parallel_insert_slice %tile into %out[%g, %column] [%rows, 4] [4, 1] : tensor<?x4xf32> into !acc_ty
    }
  } {mapping = [#gpu.thread<linear_dim_0>]}
  util.return %result : !acc_ty
}
