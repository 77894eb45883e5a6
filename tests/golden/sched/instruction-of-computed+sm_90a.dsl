kernel k(q: bf16[M, D], k: bf16[N, D], v: bf16[N, C], y: out f32[M, C]) require D <= 32, C <= 16 {
  parallel m in tile(M) {
    let d = range(D)
    let c = range(C)
    var out: f32[m, c] = 0
    for n in tile(N) {
      out += dot(bf16(dot(q[m, d], k[n, d])), v[n, c])
    }
    y[m, c] = out
  }
}
schedule k for sm_90a { m 64  n 128  d 32  warps 4x1  mma m64n16k16_bf16 }
