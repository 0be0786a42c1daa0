// Small kernels, each right (fine_*) or with one planted mistake. Arguments: s[0:1] = segment with two addresses, source
// and destination; two waves of 64 lanes; v0 is the lane within the workgroup.

.amdgcn_target "amdgcn-amd-amdhsa--gfx950"

.macro kernel name, lds=0, scratch=0
  .text
  .globl \name
  .p2align 8
  .type \name,@function
  .section .rodata,"a",@progbits
  .p2align 6
  .amdhsa_kernel \name
    .amdhsa_user_sgpr_kernarg_segment_ptr 1
    .amdhsa_kernarg_size 16
    .amdhsa_group_segment_fixed_size \lds
    .amdhsa_private_segment_fixed_size \scratch
    .amdhsa_next_free_vgpr 64
    .amdhsa_next_free_sgpr 32
    .amdhsa_accum_offset 64
  .end_amdhsa_kernel
  .text
\name:
.endm

.macro arguments            // s[4:5] source, s[6:7] destination, v1 = 4·lane
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
.endm

.macro resource records     // s[8:11] = buffer resource over the source
  s_mov_b64 s[8:9], s[4:5]
  s_mov_b32 s10, \records
  s_mov_b32 s11, 0x27000
.endm

.macro wave_number          // s12
  v_readfirstlane_b32 s12, v0
  s_lshr_b32 s12, s12, 6
.endm

.macro store register
  global_store_dword v1, \register, s[6:7]
  s_endpgm
.endm

.macro store_others         // what the other wave has at this lane's place of LDS
  v_xor_b32 v3, 0x100, v1
  ds_read_b32 v2, v3
  s_waitcnt lgkmcnt(0)
  store v2
.endm

kernel fine_copy
  arguments
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  store v2

kernel fine_buffer          // the source has 256 bytes: half of the lanes are out of range and read 0
  arguments
  resource 256
  buffer_load_dword v2, v1, s[8:11], 0 offen
  s_waitcnt vmcnt(0)
  store v2

kernel fine_full_counter    // no more than 63 loads are in flight: with 64, the first has arrived
  arguments
  global_load_dword v2, v1, s[4:5]
  .rept 63
  global_load_dword v3, v1, s[4:5]
  .endr
  store v2

kernel fine_full_lds_counter, 512 // no more than 15 reads of LDS are
  arguments
  v_add_u32 v0, 7, v0
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  ds_read_b32 v2, v1
  .irp register, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15, v16, v17
  ds_read_b32 \register, v1
  .endr
  store v2

kernel counter_not_full
  arguments
  global_load_dword v2, v1, s[4:5]
  .rept 62
  global_load_dword v3, v1, s[4:5]
  .endr
  store v2

kernel buffer_records
  arguments
  resource 0x80000000
  buffer_load_dword v2, v1, s[8:11], 0 offen
  s_waitcnt vmcnt(0)
  store v2

kernel global_load_beyond
  arguments
  global_load_dword v2, v1, s[4:5] offset:128
  s_waitcnt vmcnt(0)
  store v2

kernel global_store_beyond
  arguments
  global_store_dword v1, v0, s[6:7] offset:4
  s_endpgm

kernel scalar_load_beyond
  arguments
  s_load_dword s8, s[4:5], 0x10000
  s_waitcnt lgkmcnt(0)
  v_mov_b32 v2, s8
  store v2

kernel lds_beyond, 512
  arguments
  ds_write_b32 v1, v0 offset:4
  s_endpgm

kernel fine_lds, 512        // each wave reads what the other wrote
  arguments
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  store_others

kernel lds_race, 512
  arguments
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  store_others

kernel lds_write_race, 512
  arguments
  v_and_b32 v3, 0xff, v1
  ds_write_b32 v3, v0
  s_waitcnt lgkmcnt(0)
  s_endpgm

kernel fine_atomic, 512     // both waves add to the same words
  arguments
  v_mov_b32 v4, 0
  ds_write_b32 v1, v4
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_and_b32 v3, 0xff, v1
  ds_add_u32 v3, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v2, v1
  s_waitcnt lgkmcnt(0)
  store v2

kernel lds_atomic_race, 512 // one wave reads what the other adds to
  arguments
  v_mov_b32 v4, 0
  ds_write_b32 v1, v4
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_xor_b32 v3, 0x100, v1
  ds_add_u32 v3, v0
  ds_read_b32 v2, v1
  s_waitcnt lgkmcnt(0)
  store v2

kernel lds_same_value, 512  // both waves write 7 to the same places, and read it
  arguments
  v_and_b32 v3, 0xff, v1
  v_mov_b32 v4, 7
  ds_write_b32 v3, v4
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_read_b32 v2, v3
  s_waitcnt lgkmcnt(0)
  store v2

kernel fine_same_value, 512 // nobody reads it until one of them has written something of its own
  arguments
  v_and_b32 v3, 0xff, v1
  v_mov_b32 v4, 7
  ds_write_b32 v3, v4
  s_waitcnt lgkmcnt(0)
  s_barrier
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  store_others

kernel lds_write_not_waited_for, 512
  arguments
  ds_write_b32 v1, v0
  s_barrier
  store_others

kernel lds_never_written, 512
  arguments
  ds_read_b32 v2, v1
  s_waitcnt lgkmcnt(0)
  store v2

kernel fine_direct, 512     // wave w loads 256 bytes to LDS w·256
  arguments
  resource 512
  wave_number
  s_lshl_b32 m0, s12, 8
  buffer_load_dword v1, s[8:11], 0 offen lds
  s_waitcnt vmcnt(0)
  s_barrier
  store_others

kernel direct_not_waited_for, 512
  arguments
  resource 512
  wave_number
  s_lshl_b32 m0, s12, 8
  buffer_load_dword v1, s[8:11], 0 offen lds
  s_barrier
  store_others

kernel direct_own, 512
  arguments
  resource 512
  wave_number
  s_lshl_b32 m0, s12, 8
  buffer_load_dword v1, s[8:11], 0 offen lds
  ds_read_b32 v2, v1
  s_waitcnt vmcnt(0) lgkmcnt(0)
  store v2

kernel direct_over_read, 512 // overwrites what the other wave reads in the same interval
  arguments
  resource 512
  wave_number
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  s_barrier
  v_xor_b32 v3, 0x100, v1
  ds_read_b32 v2, v3
  s_lshl_b32 m0, s12, 8
  buffer_load_dword v1, s[8:11], 0 offen lds
  s_waitcnt lgkmcnt(0)
  s_barrier
  s_waitcnt vmcnt(0)
  store v2

kernel unequal_barriers
  wave_number
  s_cmp_lg_u32 s12, 0
  s_cbranch_scc1 1f
  s_barrier
1:
  s_endpgm

kernel load_not_waited_for
  arguments
  global_load_dword v2, v1, s[4:5]
  v_add_u32 v2, v2, v1
  store v2

kernel load_counted_wrong   // two loads, the wait proves only the first
  arguments
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[4:5]
  s_waitcnt vmcnt(1)
  v_add_u32 v2, v2, v3
  store v2

kernel load_overwritten
  arguments
  global_load_dword v2, v1, s[4:5]
  v_mov_b32 v2, 0
  s_waitcnt vmcnt(0)
  store v2

kernel fine_load_after_load // loads from memory finish in order
  arguments
  v_mov_b32 v3, 0
  global_load_dword v2, v3, s[4:5]
  global_load_dword v2, v1, s[4:5]
  s_waitcnt vmcnt(0)
  store v2

kernel load_of_another_kind, 512
  arguments
  ds_write_b32 v1, v0
  s_waitcnt lgkmcnt(0)
  global_load_dword v2, v1, s[4:5]
  ds_read_b32 v2, v1
  s_waitcnt vmcnt(0) lgkmcnt(0)
  store v2

kernel scalar_not_waited_for
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  v_lshlrev_b32 v1, 2, v0
  v_mov_b32 v2, 1
  store v2

.macro zero first, last
  .set i, \first
  .rept \last - \first + 1
    v_mov_b32 v[i], 0
    .set i, i + 1
  .endr
.endm

.macro matrix c
  v_mfma_scale_f32_16x16x128_f8f6f4 v[32:35], v[16:19], v[20:23], \c, v24, v24 op_sel_hi:[0,0,0] cbsz:4 blgp:4
.endm

kernel fine_matrix          // 4 passes: 8 wait states
  arguments
  zero 16, 24
  s_nop 1
  matrix 0
  matrix v[32:35]
  s_nop 7
  store v32

kernel matrix_result_too_early
  arguments
  zero 16, 24
  s_nop 1
  matrix 0
  s_nop 6
  store v32

kernel matrix_operand_too_early
  arguments
  zero 16, 24
  s_nop 0
  matrix 0
  s_nop 7
  store v32

kernel matrix_c_too_early   // C overlaps the result but is not the same
  arguments
  zero 16, 31
  zero 36, 39
  s_nop 1
  matrix 0
  s_nop 4
  v_mfma_scale_f32_16x16x128_f8f6f4 v[36:39], v[16:19], v[20:23], v[34:37], v24, v24 op_sel_hi:[0,0,0] cbsz:4 blgp:4
  s_nop 7
  store v36

kernel register_never_written
  arguments
  v_add_u32 v2, v3, v1
  store v2

kernel scratch_never_written, 0, 16
  arguments
  scratch_load_dword v2, off, off offset:4
  s_waitcnt vmcnt(0)
  store v2

kernel fine_scratch, 0, 16
  arguments
  scratch_store_dword off, v0, off offset:4
  s_waitcnt vmcnt(0)
  scratch_load_dword v2, off, off offset:4
  s_waitcnt vmcnt(0)
  store v2

kernel endless
1:
  s_branch 1b

kernel not_implemented
  v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], v[0:7]
  s_endpgm

kernel fine_upper_half      // of an addend, never written; of the sum the lower half counts
  arguments
  v_mad_u64_u32 v[2:3], vcc, v0, v1, v[4:5]
  v_mov_b32 v4, 7
  v_mad_u64_u32 v[2:3], vcc, v0, v1, v[4:5]
  v_mov_b32 v6, v3
  store v2

kernel upper_half_stored
  arguments
  v_mov_b32 v4, 7
  v_mad_u64_u32 v[2:3], vcc, v0, v1, v[4:5]
  v_add_u32 v6, v3, v2
  v_mov_b32 v3, 0
  store v6

kernel fine_select, 512       // v6 is taken in no lane
  arguments
  s_mov_b64 vcc, 0
  v_cndmask_b32 v6, v1, v6, vcc
  ds_write_b32 v1, v6
  s_waitcnt lgkmcnt(0)
  ds_read_b32 v2, v1
  s_waitcnt lgkmcnt(0)
  store v2

kernel fine_masked            // nothing is left of v6
  arguments
  v_lshlrev_b32 v6, 8, v6
  v_and_b32 v6, 0, v6
  v_or_b32 v6, v6, v1
  store v6

kernel select_stored, 512     // v6 is taken in the last lane
  arguments
  s_mov_b32 vcc_lo, 0
  s_brev_b32 vcc_hi, 1
  v_cndmask_b32 v6, v1, v6, vcc
  ds_write_b32 v1, v6
  s_waitcnt lgkmcnt(0)
  ds_read_b32 v2, v1
  s_waitcnt lgkmcnt(0)
  store v2

kernel fine_spill             // s15, never written, and s14 in lanes of v6; s15 comes back and is read by nothing
  arguments
  s_mov_b32 s14, 7
  v_writelane_b32 v6, s14, 3
  v_writelane_b32 v6, s15, 4
  s_mov_b32 s14, 0
  v_readlane_b32 s14, v6, 3
  v_readlane_b32 s15, v6, 4
  v_add_u32 v2, s14, v1
  store v2

kernel spill_stored           // s15 as it was
  arguments
  v_writelane_b32 v6, s15, 4
  v_readlane_b32 s16, v6, 4
  v_mov_b32 v2, s16
  store v2

kernel scalar_stored          // the lowest bit of s15
  arguments
  s_and_b32 s14, s15, 1
  v_mov_b32 v2, s14
  store v2

kernel never_written_decides
  arguments
  s_add_u32 s14, s15, 1
  s_cmp_eq_u32 s14, 3
  s_cbranch_scc1 1f
  v_mov_b32 v2, 0
1:
  v_mov_b32 v2, 1
  store v2

kernel never_written_addresses, 1024
  arguments
  v_and_b32 v3, 0, v7
  v_add_u32 v3, v3, v1
  ds_write_b32 v3, v1
  s_waitcnt lgkmcnt(0)
  store v1
