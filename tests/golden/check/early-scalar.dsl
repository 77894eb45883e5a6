kernel k(x: early f32[N], y: out f32[N]) {
  parallel n in tile(N) {
    y[n] = x[n]
  }
}

kernel s(a: early f32, y: out f32[N]) {
  parallel n in tile(N) {
    y[n] = a
  }
}
