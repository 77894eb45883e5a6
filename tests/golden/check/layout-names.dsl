kernel k(y: out f32[T]) @warps(1, 1) {
    layout first { t: l0 l1; }
    layout copy { t: l0 l1; u: r0; t: r0; }
    layout copy { t: r0; }
    parallel t in tile(T) @tile(4) { y[t] = 1 }
}
