kernel k(y: out f32[T]) @warps(1, 1) {
    role a(0, 0) { }
    role b(60, 8) { }
}
