kernel k(y: out f32[T]) @warps(1, 1) {
    shared a: bf16[0][8, 8]
    shared b: bf16[1][7, 8]
    shared c: bool[1][8, 8]
    shared d: bf16[1][8, 8] @swizzle(9)
    shared e: bf16[1][8, 8] @what
    let v = a[0]
    a[0] = 1
}
