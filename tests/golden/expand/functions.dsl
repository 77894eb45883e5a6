kernel functions(x: f32[N], a: out f32[N], b: out f32[N], c: out f32[N], d: out f32[N], e: out f32[N]) {
    parallel n in tile(N) {
        let v = x[n]
        a[n] = exp(v)
        b[n] = log(v)
        c[n] = sigmoid(v)
        d[n] = tanh(v)
        e[n] = gelu(v)
    }
}
