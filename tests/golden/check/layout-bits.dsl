kernel k(y: out f32[T]) @warps(1, 1) {
    layout main { t: l0 x1; }
    layout copy { t: l0; }
    layout c { t: l0 l100; }
    parallel t in tile(T) @tile(4) { y[t] = 1 }
}
