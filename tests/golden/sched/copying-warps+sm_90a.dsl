kernel k(a: bf16[M, K], b: bf16[N, K], c: out bf16[M, N]) {
  parallel m in tile(M), n in tile(N) {
    var s: f32[m, n] = 0
    for k in tile(K) {
      s += dot(a[m, k], b[n, k])
    }
    c[m, n] = s
  }
}
schedule k for sm_90a { m 128  n 128  k 64  stages 4  warps 8x1 + 4 }
