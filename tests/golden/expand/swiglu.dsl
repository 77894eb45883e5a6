kernel swiglu(g: bf16[M, N], u: bf16[M, N], y: out bf16[M, N]) {
    parallel m in tile(M), n in tile(N) {
        y[m, n] = silu(g[m, n]) * u[m, n]
    }
}
