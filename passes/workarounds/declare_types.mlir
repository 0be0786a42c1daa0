// PyTorch's programs do not say what they take and give. Functions of tensors get a wrapper with iree.abi.declaration,
// from which a caller knows element types. The importer of torch's dialect makes the wrapper itself, without it: of a
// byte nobody knows any more whether it is a number or a boolean. Seen with --compile-to=abi.
//
//     iree-compile declare_types.mlir --iree-hal-target-device=hip --iree-rocm-target=gfx950 --compile-to=abi
//
// stock: omits at abi: iree.abi.declaration

module {
  func.func @main(%x: !torch.vtensor<[4],f32>) -> !torch.vtensor<[4],f32> attributes {torch.assume_strict_symbolic_shapes} {
    %y = torch.aten.neg %x : !torch.vtensor<[4],f32> -> !torch.vtensor<[4],f32>
    return %y : !torch.vtensor<[4],f32>
  }
}
