; What other makers' kernels do, and none that IREE or Triton compile.
; arguments: in (float[128]), out (uint32[256]), counter (uint32)
.text
.globl peers
.p2align 8
.type peers,@function
peers:
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  ; a raw load through a resource with stride 16, cache swizzle and swizzle: linear, and checked as raw
  s_mov_b32 s12, s4
  s_or_b32 s13, s5, 0xc0100000
  s_movk_i32 s14, 0x80
  s_mov_b32 s15, 0x110000
  buffer_load_dword v2, v1, s[12:15], 0 offen
  s_waitcnt vmcnt(0)
  ; vector instructions between these are not issued, scalar ones are
  s_movk_i32 s16, 0x20
  s_mov_b32 s17, 0
  s_setvskip s16, 5
  v_mov_b32_e32 v2, 0
  global_store_dword v1, v2, s[6:7] offset:256
  s_addk_i32 s17, 0x7
  s_setvskip s16, 4
  v_add_u32_e32 v2, s17, v2
  global_store_dword v1, v2, s[6:7]
  ; scalar memory: a store, an atomic that returns, one that does not
  s_mov_b32 s18, 5
  s_mov_b32 s19, 9
  s_mov_b32 s20, 9
  s_atomic_dec s19, s[8:9], 0x0 glc
  s_atomic_dec s20, s[8:9], 0x0
  s_waitcnt lgkmcnt(0)
  s_store_dwordx2 s[18:19], s[6:7], 0x200
  s_endpgm
.rodata
.p2align 6
.amdhsa_kernel peers
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_kernarg_size 24
  .amdhsa_next_free_vgpr 8
  .amdhsa_next_free_sgpr 32
  .amdhsa_accum_offset 8
.end_amdhsa_kernel
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
  - .name: peers
    .symbol: peers.kd
    .args:
      - { .address_space: global, .offset: 0, .size: 8, .value_kind: global_buffer }
      - { .address_space: global, .offset: 8, .size: 8, .value_kind: global_buffer }
      - { .address_space: global, .offset: 16, .size: 8, .value_kind: global_buffer }
    .kernarg_segment_size: 24
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .wavefront_size: 64
    .sgpr_count: 32
    .vgpr_count: 8
    .max_flat_workgroup_size: 64
...
.end_amdgpu_metadata
