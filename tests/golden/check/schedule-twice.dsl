kernel k(y: out f32[T, H]) {
    parallel t in tile(T), c in tile(H) { y[t, c] = 1 }
}
schedule k for sm_80, sm_90a { t 64 }
schedule k for sm_90a { t 32 }
schedule k.a for sm_90a { }
schedule k.a for sm_90a { }
