kernel k(y: out f32[T, H]) {
    parallel t in tile(T), c in tile(H) { y[t, c] = 1 }
}
schedule k for sm_90a { warps 8x8 }
schedule k.a for sm_90a { warps 4x4+17 }
schedule k.b for sm_90a { stages 3+1 }
