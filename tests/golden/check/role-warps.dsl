kernel k(y: out f32[T]) @warps(4, 2) @producers(2) @shared(0) {
    parallel t in tile(T) @tile(16) {
        role a(0, 0) { }
        role b(8, 4) { }
        role c(60, 8) { }
        role d(0, 4) { }
        role e(3, 2) { }
    }
}
kernel nothing_stated(y: out f32[T]) {
    parallel t in tile(T) {
        role a(0, 1) { }
    }
}
