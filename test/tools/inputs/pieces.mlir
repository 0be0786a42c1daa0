util.func public @first() -> i32 { util.return %none : i32 }
// -----
util.func public @second(%a: i32) -> i32 { util.return %a : i32 }
// -----
util.func public @third() -> i32 { util.return %none : i32 }
